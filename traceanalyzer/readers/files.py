"""Opening files of any compression in bounded blocks, and fingerprinting them."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import os
import stat
import sys
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers.base import HEAD_BYTES

BLOCK_BYTES = 8 << 20
# Small enough that what a block still holds unread cannot hide an expansion: 300-fold of it is less than 16 MB.
_COMPRESSED_BLOCK_BYTES = 32 << 10
# Kineto's repetitive text shrinks 15- to 40-fold; deflate itself cannot exceed 1032-fold, which only padding reaches.
_MAX_EXPANSION = 300
_EXPANSION_CHECKED_FROM_BYTES = 16 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 4096
_EDGE_BYTES = 64 << 10
# isal's stubs declare its exception class as an instance
_DAMAGE = (cast("type[Exception]", IsalError), lzma.LZMAError, OSError, EOFError)


class _Decompressor(Protocol):
    """What zlib, bz2 and lzma decompressor objects have in common once wrapped."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """Return at most ``limit`` decompressed bytes, taking ``data`` first."""

    @property
    def has_more(self) -> bool:
        """Whether output is waiting without further input."""

    @property
    def at_end(self) -> bool:
        """Whether the last member read so far is complete."""


class _Gzip:
    """Gzip members one after another; zero padding behind the last one is allowed."""

    def __init__(self, library: Any = isal_zlib) -> None:
        self._library = library
        self._member = library.decompressobj(wbits=31)
        self._waiting = b""
        self._full = False
        self.at_end = False

    def feed(self, data: bytes, limit: int) -> bytes:
        data = self._waiting + data
        self._waiting = b""
        made: list[bytes] = []
        # a member whose output did not fit last time may have taken all its input and still hold text
        is_holding = self._full and not self._member.eof
        while (data or is_holding) and limit > 0:
            is_holding = False
            if self._member.eof:
                data = data.lstrip(b"\0")
                if data and not b"\x1f\x8b".startswith(data[:2]):
                    break  # bytes behind the last member are not part of the recording
                if len(data) < 2:
                    self._waiting = data
                    break
                self._member = self._library.decompressobj(wbits=31)
            part = self._member.decompress(data, limit)
            made.append(part)
            limit -= len(part)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        else:
            self._waiting = data
        self._full = limit <= 0
        self.at_end = bool(self._member.eof)
        return b"".join(made)

    def copy(self) -> Self:
        """Return an independent decompressor in the same state (zlib only)."""
        twin = type(self)(self._library)
        twin._member = self._member.copy()
        twin._waiting, twin._full, twin.at_end = self._waiting, self._full, self.at_end
        return twin

    @property
    def has_more(self) -> bool:
        return self._full and not (self._member.eof and not self._waiting)


class _Members:
    """xz or bzip2 streams one after another."""

    def __init__(self, kind: type[lzma.LZMADecompressor] | type[bz2.BZ2Decompressor]) -> None:
        self._kind = kind
        self._member = kind()

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._member.eof:
            data = self._member.unused_data + data
            if not data.lstrip(b"\0"):
                return b""
            self._member = self._kind()
        return self._member.decompress(data, limit)

    @property
    def has_more(self) -> bool:
        if self._member.eof:
            return bool(self._member.unused_data.lstrip(b"\0"))
        return not self._member.needs_input

    @property
    def at_end(self) -> bool:
        return self._member.eof


_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"))


def compression(start: bytes) -> str:
    """Name the compression of a file from its first bytes: gzip, xz, bzip2, or an empty string."""
    for magic, name in _MAGIC:
        if start.startswith(magic):
            return name
    return ""


def check_regular(path: Path) -> os.stat_result:
    """Return the status of a readable file or folder.

    Raises:
        TraceFormatError: The path is missing, unreadable, or a pipe, socket or device.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise TraceFormatError(str(path), "no such file or folder", "check the path") from None
    except OSError as error:
        raise TraceFormatError(str(path), f"cannot be opened ({error.strerror})", "check its permissions") from error
    except ValueError as error:  # a null character
        raise TraceFormatError(repr(str(path)), "is not a path", "check the path") from error
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise TraceFormatError(
            str(path), "is a pipe, socket or device, not a file", "save the recording to a file first"
        )
    return status


class Stream:
    """A file read forwards as decompressed blocks; damage ends the stream instead of raising.

    Attributes:
        path: The file.
        size_bytes: Size on disk.
        compression: ``gzip``, ``xz``, ``bzip2`` or an empty string.
        done_bytes: Bytes of the file consumed so far.
        damage: Why the compressed data ended early, or an empty string.
    """

    def __init__(self, path: Path) -> None:
        status = check_regular(path)
        self.path = path
        self.size_bytes = status.st_size
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise TraceFormatError(
                str(path), f"cannot be opened ({error.strerror})", "check its permissions"
            ) from error
        start = self._file.read(8)
        self._file.seek(0)
        self.compression = compression(start)
        self.done_bytes = 0
        self.damage = ""
        self._made_bytes = 0
        self._ended = False
        self._rest = b""  # what salvaging gave beyond the block that was asked for
        self._decompressor: _Decompressor | None = None
        if self.compression == "gzip":
            self._decompressor = _Gzip()
        elif self.compression:
            self._decompressor = _Members(lzma.LZMADecompressor if self.compression == "xz" else bz2.BZ2Decompressor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end, empty when nothing is left.

        Raises:
            TraceFormatError: The file expands beyond any recording (a decompression bomb) or cannot be read.
        """
        try:
            if self._decompressor is None:
                block = self._file.read(size)
                self.done_bytes += len(block)
                return block
            return self._read_compressed(self._decompressor, size)
        except OSError as error:
            raise TraceFormatError(str(self.path), f"cannot be read ({error.strerror})") from error

    @property
    def share_left(self) -> float:
        """Share of the file that has not been read yet, 0 to 1."""
        return 1 - min(1.0, self.done_bytes / max(self.size_bytes, 1))

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer as far as the file goes; returns the bytes written, 0 when nothing is left.

        Raises:
            TraceFormatError: As ``read``.
        """
        if self._decompressor is not None:
            block = self.read(len(buffer))
            buffer[: len(block)] = block
            return len(block)
        try:
            size = self._file.readinto(buffer)  # type: ignore[attr-defined]
        except OSError as error:
            raise TraceFormatError(str(self.path), f"cannot be read ({error.strerror})") from error
        self.done_bytes += size
        return int(size)

    def _read_compressed(self, decompressor: _Decompressor, size: int) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing and (self._rest or not self._ended):
            if self._rest:
                parts.append(self._rest[:missing])
                self._rest = self._rest[missing:]
                missing -= len(parts[-1])
                continue
            data = b"" if decompressor.has_more else self._file.read(_COMPRESSED_BLOCK_BYTES)
            self.done_bytes += len(data)
            if not data and not decompressor.has_more:
                self._ended = True
                if not decompressor.at_end:
                    self.damage = f"the {self.compression} data is cut off"
                break
            part = self._feed(decompressor, data, missing)
            parts.append(part[:missing])
            self._rest = part[missing:]
            missing -= len(parts[-1])
            self._made_bytes += len(part)
            expansion = self._made_bytes / max(self.done_bytes, 1)
            if self._made_bytes > _EXPANSION_CHECKED_FROM_BYTES and expansion > _MAX_EXPANSION:
                raise TraceFormatError(
                    str(self.path),
                    f"expands more than {_MAX_EXPANSION}-fold, which no recording does",
                    "decompress it by hand if it is trusted",
                )
        return b"".join(parts)

    def _feed(self, decompressor: _Decompressor, data: bytes, limit: int) -> bytes:
        try:
            return decompressor.feed(data, limit)
        except _DAMAGE as error:
            self._ended = True
            self.damage = f"the {self.compression} data is damaged ({error})"
            return self._salvage_gzip() if isinstance(decompressor, _Gzip) else b""

    def _salvage_gzip(self) -> bytes:
        """Return what the failed call withheld: everything up to the damaged bit, found by going over it again."""
        decompressor = _Gzip(zlib)
        made: list[bytes] = []
        skip = self._made_bytes  # handed out already
        with self.path.open("rb") as file:
            while piece := file.read(4096):
                before = decompressor.copy()
                try:
                    part = decompressor.feed(piece, sys.maxsize)
                    is_last = False
                except zlib.error:
                    part = _feed_bytewise(before, piece)
                    is_last = True
                made.append(part[skip:])
                skip = max(0, skip - len(part))
                if is_last:
                    break
        return b"".join(made)


def _feed_bytewise(decompressor: _Gzip, piece: bytes) -> bytes:
    made: list[bytes] = []
    for i in range(len(piece)):
        try:
            made.append(decompressor.feed(piece[i : i + 1], sys.maxsize))
        except zlib.error:
            break
    return b"".join(made)


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the first decompressed bytes of a file.

    Raises:
        TraceFormatError: As ``Stream``.
    """
    with Stream(path) as stream:
        return stream.read(size)


def fingerprint(path: Path) -> str:
    """Identify a file cheaply: its size and a hash of head, tail and 64 blocks spread evenly between.

    Args:
        path: A regular file, hashed as it lies on disk (compressed where it is compressed).
    """
    digest = hashlib.blake2b(digest_size=16)
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        digest.update(file.read(_EDGE_BYTES))
        for i in range(_SAMPLES):
            file.seek(size * (i + 1) // (_SAMPLES + 1))
            digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, size - _EDGE_BYTES))
        digest.update(file.read(_EDGE_BYTES))
    return f"{size}-{digest.hexdigest()}"
