"""The text of a recording in chunks that most likely hold whole events, in buffers that are used again."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from traceanalyzer.readers import files
from traceanalyzer.readers.files import Stream

BLOCK_BYTES = files.BLOCK_BYTES // 2  # half a dozen of them are in flight
KEY = rb'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*:'
BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + KEY + rb")")
MAX_EVENT_BYTES = 64 << 20
PADDING = 128  # zeros behind every chunk, so that nobody needs to look where it ends
_LAST_WINDOW = 1 << 16
_SEPARATORS = b" \t\r\n,"
_AHEAD = 1


@dataclass(slots=True)
class Chunk:
    """Text between two guessed borders of events.

    Attributes:
        buffer: The text and zeros behind it.
        start: Where the text starts; white space and commas before the first event are left out.
        size: Where it ends.
        is_final: The file ends here, as opposed to a guessed border.
        done_bytes: Bytes of the file read up to here.
    """

    buffer: npt.NDArray[np.uint8]
    start: int
    size: int
    is_final: bool
    done_bytes: int

    def text(self) -> bytes:
        """Return a copy of all of the text."""
        return self.buffer[: self.size].tobytes()

    def list_text(self) -> bytes:
        """Return the events as a JSON list."""
        return b"".join((b"[", self.buffer[self.start : self.size].data, b"]"))


@dataclass
class Chunks:
    """Cuts what a stream holds behind the bracket of the list of events.

    Attributes:
        stream: The file, read up to and including ``text``.
        text: The text behind the bracket that has been read already.
    """

    stream: Stream
    text: bytes
    _free: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks in order; hand each back with ``release`` once its buffer may be used again."""
        carried = self.text
        self.text = b""
        while True:
            held = len(carried)
            # as much again as is held, so that text without a border is not searched over and over
            wanted = max(BLOCK_BYTES - held, BLOCK_BYTES // 2, held)
            buffer = self._take(held + wanted + PADDING)
            buffer[:held] = np.frombuffer(carried, dtype=np.uint8)
            got = self.stream.readinto(buffer[held : held + wanted].data)
            size = held + got
            cut = last_boundary(buffer[:size].data) if got else size
            if got and not cut:
                if size < MAX_EVENT_BYTES:
                    carried = buffer[:size].tobytes()  # an event larger than a block
                    self._free.append(buffer)
                    continue
                cut = size
            carried = buffer[cut:size].tobytes()
            buffer[cut : cut + PADDING] = 0
            yield Chunk(buffer, _behind_separators(buffer, cut), cut, not got, self.stream.done_bytes)
            if not got:
                return

    def release(self, chunk: Chunk) -> None:
        """Take back the buffer of a chunk nobody reads any more."""
        self._free.append(chunk.buffer)

    def _take(self, size: int) -> npt.NDArray[np.uint8]:
        while self._free:
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
        return np.empty(max(size, BLOCK_BYTES + PADDING), dtype=np.uint8)


def _behind_separators(buffer: npt.NDArray[np.uint8], size: int) -> int:
    """Return where the first event starts; ``size`` where there is none."""
    start = 0
    while start < size:
        piece = buffer[start : min(start + _LAST_WINDOW, size)].tobytes()
        kept = piece.lstrip(_SEPARATORS)
        start += len(piece) - len(kept)
        if kept:
            break
    return start


def last_boundary(text: Any) -> int:
    """Return the index behind the closing brace of the last event known to be followed by another; 0 without one."""
    window = _LAST_WINDOW
    while True:
        low = max(0, len(text) - window)
        last = None
        for match in BOUNDARY.finditer(text, low):
            last = match
        if last is not None:
            return last.start() + 1
        if low == 0:
            return 0
        window *= 16


def read_ahead(chunks: Chunks) -> Iterator[Chunk]:
    """Yield the same chunks, read and unpacked in a thread of their own."""
    ready: queue.Queue[Chunk | BaseException | None] = queue.Queue(maxsize=_AHEAD)
    stop = threading.Event()

    def offer(item: Chunk | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def produce() -> None:
        try:
            for chunk in chunks:
                offer(chunk)
                if stop.is_set():
                    return
            offer(None)
        except BaseException as error:  # handed to the thread that waits
            offer(error)

    thread = threading.Thread(target=produce, name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
