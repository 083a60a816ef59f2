"""Recordings kept as columns, so that a second look at one does not parse it again.

An entry is one file: a line that names the format, a JSON header (names, threads, what is known about the reading),
and the columns as they lie in memory, each at a multiple of 64 bytes. It is mapped, not read. Entries are found by the
content of the recording (size, modification time, a hash of head, tail and sampled blocks), its name, and the version
of the tool. Nothing in an entry is trusted: a checksum covers all of it, and a damaged one is written anew.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from traceanalyzer.model.schema import (
    Activities,
    Calls,
    Counters,
    MemoryEvents,
    Overheads,
    Schedules,
    Slices,
    Table,
    Waits,
)
from traceanalyzer.model.trace import Device, Integrity, Recording, Source, Thread, Trace
from traceanalyzer.readers import open_recording
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import fingerprint

FOLDER_VARIABLE = "TRACEANALYZER_CACHE"
MOST_BYTES = 8 << 30
_MAGIC = b"traceanalyzer columns 1\n"
_SUFFIX = ".columns"
_ALIGNMENT = 64
_TABLES: dict[str, type[Table]] = {
    "activities": Activities,
    "calls": Calls,
    "slices": Slices,
    "overheads": Overheads,
    "waits": Waits,
    "memory": MemoryEvents,
    "schedules": Schedules,
    "counters": Counters,
}
_LINKS = "activity_call"


class _Column(msgspec.Struct):
    """Where a column lies: bytes from the end of the header, type and length."""

    offset: int
    dtype: str
    rows: int


class _Trace(msgspec.Struct):
    names: list[str]
    origin_ns: int
    threads: list[Thread]
    devices: list[Device]
    rank: int | None
    world_size: int | None
    metadata: dict[str, str]
    integrity: Integrity
    columns: dict[str, dict[str, _Column]]


class _Header(msgspec.Struct):
    source: Source
    traces: list[_Trace]
    data_bytes: int
    checksum: int


class DamagedEntryError(ValueError):
    """A cache entry is not what was written."""


def default_folder() -> Path | None:
    """Return where recordings are kept: ``TRACEANALYZER_CACHE``, else in the user's cache; None without a home."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if base:
        return Path(base, "traceanalyzer", "columns")
    return Path.home() / ".cache" / "traceanalyzer" / "columns" if os.environ.get("HOME") else None


@dataclass(frozen=True)
class ColumnCache:
    """A folder of recordings kept as columns.

    Attributes:
        folder: The folder; made when it is first written.
        version: Version of the tool; what another one kept is not used.
        most_bytes: What all entries may take together; those not used for longest go first.
    """

    folder: Path
    version: str = ""
    most_bytes: int = MOST_BYTES

    def open_recording(self, path: str | Path, progress: Progress | None = None) -> Recording:
        """Return a recording from the cache, or read it and keep it.

        What the cache cannot do (write, or read a damaged entry) is a note of the recording, never an error.

        Args:
            path: File or folder; folders are read without the cache.
            progress: Called now and then with bytes done and in all.

        Raises:
            TraceFormatError: It is not a recording, or nothing usable is in it.
        """
        place = Path(path)
        entry = self._entry(place)
        if entry is None:
            return open_recording(place, progress)
        notes = []
        try:
            recording = load(entry)
            with suppress(OSError):
                os.utime(entry)  # entries not used for longest go first
            return replace(recording, source=replace(recording.source, path=str(path)))
        except OSError:
            pass  # absent, as a rule; what cannot be read cannot be written either, and that is noted below
        except DamagedEntryError:
            notes.append("a damaged entry of the cache was ignored and written anew")
        recording = open_recording(place, progress)
        if any(trace.snapshot is not None for trace in recording.traces):
            return recording
        try:
            self._keep(entry, recording)
        except (OSError, UnicodeEncodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "a name is not text"
            notes.append(f"the recording could not be kept in the cache ({reason})")
        for trace in recording.traces:
            for note in notes:
                trace.integrity.note(note)
        return recording

    def _entry(self, path: Path) -> Path | None:
        try:
            status = path.stat()
            if not path.is_file():
                return None
            content = fingerprint(path)
        except (OSError, ValueError):
            return None  # the reader says what is wrong with it
        key = "\n".join((self.version, path.name, str(status.st_mtime_ns), content))
        return self.folder / (hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=20).hexdigest() + _SUFFIX)

    def _keep(self, entry: Path, recording: Recording) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # written aside and renamed: an entry is whole or absent, also when two commands write it at once
        handle, name = tempfile.mkstemp(suffix=".part", dir=self.folder)
        try:
            with open(handle, "wb") as file:  # noqa: PTH123 (a descriptor)
                for part in _written(recording):
                    file.write(part)
            Path(name).replace(entry)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._trim(entry)

    def _trim(self, newest: Path) -> None:
        entries = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another command removed it
                status = path.stat()
                entries.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.most_bytes:
                return
            if path != newest or size > self.most_bytes:
                path.unlink(missing_ok=True)
                total -= size


def _written(recording: Recording) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an entry."""
    arrays: list[npt.NDArray[Any]] = []
    offset = 0
    traces = []
    for trace in recording.traces:
        tables = {name: getattr(trace, name).columns() for name in _TABLES} | {_LINKS: {_LINKS: trace.activity_call}}
        columns: dict[str, dict[str, _Column]] = {}
        for name, table in tables.items():
            columns[name] = {}
            for column, values in table.items():
                array = np.ascontiguousarray(values)
                columns[name][column] = _Column(offset, array.dtype.str, len(array))
                arrays.append(array)
                offset += array.nbytes + -array.nbytes % _ALIGNMENT
        traces.append(
            _Trace(
                list(trace.names),
                trace.origin_ns,
                list(trace.threads),
                list(trace.devices),
                trace.rank,
                trace.world_size,
                dict(trace.metadata),
                trace.integrity,
                columns,
            )
        )
    checksum = 0
    for part in _padded(arrays):
        checksum = isal_zlib.crc32(part, checksum)
    header = msgspec.json.encode(_Header(recording.source, traces, offset, checksum))
    start = len(_MAGIC) + 16
    header += b" " * (-(start + len(header)) % _ALIGNMENT)
    yield _MAGIC
    yield b"%08x%08x" % (len(header), isal_zlib.crc32(header))
    yield header
    yield from _padded(arrays)


def _padded(arrays: list[npt.NDArray[Any]]) -> Iterator[bytes | memoryview]:
    for array in arrays:
        if array.nbytes:
            yield array.view(np.uint8).data
            yield bytes(-array.nbytes % _ALIGNMENT)


def load(entry: Path) -> Recording:
    """Map an entry; its columns are private to this process and may be written to.

    Raises:
        DamagedEntryError: It is not what was written.
        OSError: It cannot be read.
    """
    with entry.open("rb") as file:
        start = file.read(len(_MAGIC) + 16)
        try:
            if not start.startswith(_MAGIC):
                raise ValueError("not an entry")
            size, check = int(start[len(_MAGIC) : -8], 16), int(start[-8:], 16)
            text = file.read(size)
            if len(text) != size or isal_zlib.crc32(text) != check:
                raise ValueError("a damaged header")
            header = msgspec.json.decode(text, type=_Header)
            base = len(start) + size
            if os.fstat(file.fileno()).st_size != base + header.data_bytes:
                raise ValueError("cut off")
            data = np.zeros(0, dtype=np.uint8)
            if header.data_bytes:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                data = np.frombuffer(mapped, dtype=np.uint8)[base:]
            if isal_zlib.crc32(data.data) != header.checksum:
                raise ValueError("damaged columns")
            return Recording(header.source, tuple(_trace(trace, data) for trace in header.traces))
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise DamagedEntryError(str(error)) from error


def _trace(kept: _Trace, data: npt.NDArray[np.uint8]) -> Trace:
    def column(where: _Column) -> npt.NDArray[Any]:
        kind = np.dtype(where.dtype)
        return data[where.offset : where.offset + where.rows * kind.itemsize].view(kind)

    tables: dict[str, Any] = {
        name: kind(**{key: column(where) for key, where in kept.columns[name].items()})
        for name, kind in _TABLES.items()
    }
    return Trace(
        names=kept.names,
        origin_ns=kept.origin_ns,
        threads=tuple(kept.threads),
        devices=tuple(kept.devices),
        activity_call=column(kept.columns[_LINKS][_LINKS]),
        rank=kept.rank,
        world_size=kept.world_size,
        metadata=kept.metadata,
        integrity=kept.integrity,
        **tables,
    )
