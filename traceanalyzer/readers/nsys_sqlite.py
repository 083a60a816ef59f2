"""Nsight Systems exports as SQLite databases (``nsys export --type sqlite``), plain or compressed."""

from __future__ import annotations

import lzma
import shutil
import tempfile
import zlib
from pathlib import Path

from isal import igzip

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Recording
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.nsys_normalise import build_recording
from traceanalyzer.readers.nsys_tables import SQLITE_MAGIC, SqliteTables

NAME = "nsys-sqlite"

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\0"
_COPY_BYTES = 4 << 20


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content is an SQLite database; whether it is an Nsight export shows when it is read."""
    return head.startswith(SQLITE_MAGIC)


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Read a ``.sqlite`` export, also inside gzip or xz.

    Raises:
        TraceFormatError: It is damaged, no Nsight Systems export, or lacks a needed column.
    """
    with path.open("rb") as file:
        magic = file.read(len(SQLITE_MAGIC))
    if magic.startswith(SQLITE_MAGIC):
        return build_recording(SqliteTables(path, str(path)), path, NAME, progress)
    if magic.startswith((_GZIP_MAGIC, _XZ_MAGIC)):
        # SQLite needs a real file to seek in
        with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
            plain = Path(folder) / "export.sqlite"
            _decompress(path, plain, is_gzip=magic.startswith(_GZIP_MAGIC))
            return build_recording(SqliteTables(plain, str(path)), path, NAME, progress)
    problem = "the file is empty" if not magic else "not an SQLite database"
    raise TraceFormatError(str(path), problem, "export one with `nsys export --type sqlite FILE.nsys-rep`")


def _decompress(path: Path, plain: Path, *, is_gzip: bool) -> None:
    try:
        with igzip.open(path, "rb") if is_gzip else lzma.open(path, "rb") as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise TraceFormatError(str(path), f"the compressed data are damaged ({error})", "copy the file again") from None
