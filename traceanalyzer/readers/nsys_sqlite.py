"""Nsight Systems exports as SQLite databases (``nsys export --type sqlite``), plain or compressed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Recording
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import Stream

NAME = "nsys-sqlite"

_MAGIC = b"SQLite format 3\0"


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content is an SQLite database; whether it is an Nsight export shows when it is read."""
    return head.startswith(_MAGIC)


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Read a ``.sqlite`` export, also a compressed one.

    Raises:
        TraceFormatError: It is damaged, no Nsight Systems export, or lacks a needed column.
    """
    # only who reads an export pays for importing pyarrow and the database driver
    from traceanalyzer.readers.nsys_normalise import build_recording
    from traceanalyzer.readers.nsys_tables import SqliteTables

    with plain_database(path) as plain:
        return build_recording(SqliteTables(plain, str(path)), path, NAME, progress)


@contextmanager
def plain_database(path: Path) -> Iterator[Path]:
    """Provide the database uncompressed, as SQLite needs it to seek in; a copy lives as long as the context.

    Raises:
        TraceFormatError: It is no database, or a damaged compressed one.
    """
    with Stream(path) as stream:
        if stream.compression:
            with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
                plain = Path(folder) / "export.sqlite"
                _decompress(stream, plain)
                yield plain
            return
        magic = stream.read(len(_MAGIC))
    if magic != _MAGIC:
        problem = "not an SQLite database" if magic else "the file is empty"
        raise TraceFormatError(str(path), problem, "export one with `nsys export --type sqlite FILE.nsys-rep`")
    yield path


def _decompress(stream: Stream, plain: Path) -> None:
    with plain.open("wb") as target:
        while block := stream.read():
            target.write(block)
    if stream.damage:
        # what is left of a cut database does not open: unlike text it is not readable from its beginning
        raise TraceFormatError(str(stream.path), stream.damage, "copy or export the file again")
