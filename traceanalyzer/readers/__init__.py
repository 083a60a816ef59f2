"""One reader per source; the registry opens any input."""

from __future__ import annotations

from pathlib import Path

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Recording
from traceanalyzer.readers import kineto, memory_snapshot, nsys_arrow, nsys_rep, nsys_sqlite
from traceanalyzer.readers.base import Progress, Reader
from traceanalyzer.readers.files import check_regular, compression, read_head

READERS: tuple[Reader, ...] = (kineto, nsys_sqlite, nsys_arrow, nsys_rep, memory_snapshot)

_SUPPORTED = (
    "give a PyTorch-profiler trace, an Nsight Systems export (.sqlite, parquetdir, arrowdir) "
    "or a memory snapshot (.pickle)"
)
# what people hand over by mistake, by first bytes
_KNOWN_STRANGERS = (
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; decompress it first"),
    (b"PK\x03\x04", "a zip archive; extract the recording first"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
)


def find_reader(path: Path) -> Reader:
    """Return the one reader that recognises the content of a file or folder.

    Raises:
        TraceFormatError: The path cannot be opened, is empty, or none or several readers recognise it.
    """
    status = check_regular(path)
    if path.is_dir():
        head = b""
    else:
        if status.st_size == 0:
            raise TraceFormatError(str(path), "the file is empty", "the export may have failed; record again")
        head = read_head(path)
        if not head:
            kind = "compressed data" if _is_compressed(path) else "file"
            raise TraceFormatError(str(path), f"the {kind} is empty", "the export may have failed; record again")
    claims = [reader for reader in READERS if reader.sniff(path, head)]
    if len(claims) == 1:
        return claims[0]
    if claims:
        names = " and ".join(reader.NAME for reader in claims)
        raise TraceFormatError(str(path), f"looks like {names} at once", "this is a fault of the readers; report it")
    if path.is_dir():
        raise TraceFormatError(str(path), "the folder is no recording", _SUPPORTED)
    stranger = next((what for start, what in _KNOWN_STRANGERS if head.startswith(start)), "")
    raise TraceFormatError(str(path), "not a recording" + (f" but {stranger}" if stranger else ""), _SUPPORTED)


def open_recording(path: str | Path, progress: Progress | None = None) -> Recording:
    """Read any supported recording, recognised by content alone.

    Args:
        path: File (plain or compressed) or folder.
        progress: Called now and then with bytes done and in all.

    Raises:
        TraceFormatError: It is not a recording, or nothing usable is in it.
    """
    place = Path(path)
    return find_reader(place).read(place, progress)


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(compression(file.read(8)))
