"""Nsight Systems exports as folders of Arrow or Parquet files (``nsys export --type parquetdir`` or ``arrowdir``)."""

from __future__ import annotations

from pathlib import Path

from traceanalyzer.model.trace import Recording
from traceanalyzer.readers.base import Progress

NAME = "nsys-arrow"

_TABLES = ("StringIds", "CUPTI_ACTIVITY_KIND_*", "NVTX_EVENTS*", "OSRT_API")


def sniff(path: Path, head: bytes) -> bool:
    """Say whether a folder holds the table files of an Nsight Systems export."""
    if not path.is_dir():
        return False
    return any(next(path.glob(f"{table}.{suffix}"), None) for table in _TABLES for suffix in ("parquet", "arrow"))


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Read a ``parquetdir`` or ``arrowdir`` export.

    Raises:
        TraceFormatError: A file is damaged, nothing was recorded, or a needed column is absent.
    """
    # only who reads an export pays for importing pyarrow
    from traceanalyzer.readers.nsys_normalise import build_recording
    from traceanalyzer.readers.nsys_tables import ArrowFolderTables

    return build_recording(ArrowFolderTables(path, str(path)), path, NAME, progress)
