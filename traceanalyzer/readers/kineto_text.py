"""Cutting a trace file into whole events and metadata, block by block, around whatever damage it has.

The text between two guessed event boundaries goes to a strict parser; only text that it refuses is looked at again:
halved until the damage is isolated, repaired where the intention is clear, otherwise left out and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.kineto_columns import ChunkParser, Columns
from traceanalyzer.readers.kineto_repair import (
    DECODER,
    escape_backslashes,
    event_text,
    irregularity,
    is_event,
    repaired,
)

_KEY = r'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*:'
_BOUNDARY = re.compile((r"\}\s*,\s*(?=" + _KEY + ")").encode())
_BOUNDARY_TEXT = re.compile(r"\}(?=\s*,?\s*" + _KEY + ")")
_EVENT_START = re.compile(_KEY)
_SEPARATOR = re.compile(rb"[\s,]*")
_SEPARATOR_TEXT = re.compile(r"[\s,]*")
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*(?=\S)')
_EVENT_THEN_END = re.compile(r"\}(?=\s*\]\s*(?:,\s*\"|\}\s*$|$))")
_LAST_WINDOW = 1 << 16
_MAX_PREAMBLE_BYTES = 256 << 20
_MAX_EVENT_BYTES = 64 << 20
_MAX_TAIL_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"


class Damage:
    """Marks a place in the list of events where something is missing."""


DAMAGE = Damage()


@dataclass
class _Rest:
    """What a piece leaves over: text to put before the next piece, or text behind the closed list."""

    carried: bytes = b""
    tail: bytes | None = None


_Pieces = Generator[Columns | Damage, None, _Rest]


@dataclass
class TraceText:
    """The events and metadata of one trace file.

    Attributes:
        stream: Where the text comes from.
        parser: Turns whole events into columns.
        integrity: Receives what was repaired or left out.
        metadata: Members of the top-level object besides the events; complete once ``chunks()`` is exhausted.
        is_closed: The list of events ended with its closing bracket.
    """

    stream: Stream
    parser: ChunkParser
    integrity: Integrity
    metadata: dict[str, Any] = field(default_factory=dict)
    is_closed: bool = False
    _is_array: bool = False
    _repairs: Counter[str] = field(default_factory=Counter)

    def chunks(self, progress: Progress | None = None) -> Iterator[Columns | Damage]:
        """Yield the events in file order as columns, with ``DAMAGE`` where some are missing.

        Raises:
            TraceFormatError: There is no list of events.
        """
        text = self._open_list()
        tail: bytes | None = None
        while tail is None:
            block = self.stream.read()
            if progress is not None:
                progress(self.stream.done_bytes, self.stream.size_bytes)
            text += block
            cut = _last_boundary(text) if block else len(text)
            if block and not cut:
                if len(text) < _MAX_EVENT_BYTES:
                    continue  # an event larger than a block
                cut = len(text)
            rest = yield from self._piece(text[:cut], is_final=not block)
            tail = rest.tail
            text = (rest.carried if tail is None else tail) + text[cut:]
            if not block:
                break
        if tail is not None:
            self.is_closed = True
            self._read_tail(text)
        for problem, count in sorted(self._repairs.items()):
            what = "1 event" if count == 1 else f"{count} events"
            self.integrity.note(f"{what} held {problem} and {'was' if count == 1 else 'were'} repaired")

    def _open_list(self) -> bytes:
        """Read up to the first event, keep the metadata before it, and return the text behind the bracket."""
        text = self.stream.read().removeprefix(_BOM)
        if text.lstrip()[:1] == b"[":
            self._is_array = True
            return text.lstrip()[1:]
        while (match := self._find_list(text)) is None:
            block = self.stream.read()
            if not block:
                raise TraceFormatError(
                    str(self.stream.path), "holds no list of trace events", "it may have been cut off before the first"
                )
            text += block
            if len(text) > _MAX_PREAMBLE_BYTES:
                raise TraceFormatError(str(self.stream.path), "no trace events in the first 256 MiB")
        if text[match.end() : match.end() + 1] != b"[":
            raise TraceFormatError(str(self.stream.path), "traceEvents is not a list", where=f"byte {match.start()}")
        return text[match.end() + 1 :]

    def _find_list(self, text: bytes) -> re.Match[bytes] | None:
        """Find the top-level key, telling it from the same word inside the metadata."""
        first: tuple[re.Match[bytes], dict[str, Any]] | None = None
        for match in _ARRAY.finditer(text):
            members, is_whole = _members(text[: match.start()])
            if is_whole:
                self.metadata.update(members)
                return match
            first = first or (match, members)
        if first is None:
            return None
        self.integrity.note("the metadata before the events could not be read whole")
        self.metadata.update(first[1])
        return first[0]

    def _piece(self, text: bytes, *, is_final: bool) -> _Pieces:
        for low, high, columns in self._parse(text):
            if columns is not None:
                yield columns
                continue
            is_last = high == len(text)
            may_carry = is_last and not is_final and high - low < _MAX_EVENT_BYTES
            rest = yield from self._salvage(text[low:high], is_final=is_last and is_final, may_carry=may_carry)
            if rest.tail is not None:
                return _Rest(tail=rest.tail + text[high:])
            if rest.carried:
                return rest
        return _Rest()

    def _parse(self, text: bytes) -> Iterator[tuple[int, int, Columns | None]]:
        """Parse a stretch, halving it around what the parser refuses; None marks refused stretches."""
        view = memoryview(text)
        stack = [(_after_separator(text, 0), len(text))]
        bad: tuple[int, int] | None = None
        while stack:
            low, high = stack.pop()
            if low >= high:
                continue
            try:
                columns = self.parser.parse(b"".join((b"[", view[low:high], b"]")))
            except ValueError:
                middle = (low + high) // 2
                match = _BOUNDARY.search(text, middle, high) or _BOUNDARY.search(text, low, high)
                if match is not None:
                    stack.append((match.end(), high))
                    stack.append((low, match.start() + 1))
                else:
                    # stretches that fail side by side may be one event cut at a false boundary
                    bad = (low, high) if bad is None else (bad[0], high)
                continue
            if bad is not None:
                yield (*bad, None)
                bad = None
            yield low, high, columns
        if bad is not None:
            yield (*bad, None)

    def _salvage(self, region: bytes, *, is_final: bool, may_carry: bool) -> _Pieces:
        """Read what can be read of a stretch the strict parser refused, one event at a time."""
        text = region.decode("utf-8", "surrogateescape")
        position = 0
        in_list = True  # a closing bracket here closes the list, not something inside a broken event
        while (position := _SEPARATOR_TEXT.match(text, position).end()) < len(text):  # type: ignore[union-attr]
            if text[position] == "]" and in_list:
                return _Rest(tail=text[position + 1 :].encode("utf-8", "surrogateescape"))
            event: dict[str, Any] | None = None
            problem = ""
            end = position
            if text[position] == "{":
                try:
                    value, end = DECODER.raw_decode(text, position)
                except (ValueError, RecursionError):
                    boundary = _BOUNDARY_TEXT.search(text, position)
                    closing = _EVENT_THEN_END.search(text, position) if is_final and boundary is None else None
                    if boundary is None and closing is None:
                        if may_carry:
                            return _Rest(carried=text[position:].encode("utf-8", "surrogateescape"))
                        if is_final:
                            self.integrity.drop("event cut off at the end of the file", text[position : position + 120])
                            return _Rest()
                    stop = boundary or closing
                    end = stop.end() if stop is not None else len(text)
                    if (fixed := repaired(text[position:end])) is not None:
                        event, problem = fixed
                    else:
                        end = _next_readable(text, position, end)
                else:
                    if is_event(value):
                        event = value
                        problem = irregularity(text[position:end], value)
            else:
                start = _EVENT_START.search(text, position)
                end = len(text) if start is None else start.start()
            in_list = event is not None and is_event(event)
            if event is None:
                self.integrity.drop("unreadable text among the events", text[position : position + 120])
                yield DAMAGE
            else:
                if problem:
                    self._repairs[problem] += 1
                yield self.parser.parse(b"[" + event_text(event) + b"]")
            position = end
        return _Rest()

    def _read_tail(self, text: bytes) -> None:
        """Read the members behind the list of events."""
        parts = [text]
        size = len(text)
        while block := self.stream.read():
            size += len(block)
            if size <= _MAX_TAIL_BYTES:
                parts.append(block)
        tail = b"".join(parts).strip()
        if self._is_array:
            if tail:
                self.integrity.note(f"{len(tail)} bytes behind the list of events were ignored")
            return
        if size > _MAX_TAIL_BYTES:
            self.integrity.note("metadata behind the events beyond 64 MiB was ignored")
        members, is_whole = _members(b"{" + tail.lstrip(b","))
        for key, value in members.items():
            self.metadata.setdefault(key, value)
        if not is_whole:
            self.integrity.note("the metadata behind the events could not be read whole")
        if not tail.endswith(b"}"):
            self.integrity.is_truncated = True


def _last_boundary(text: bytes) -> int:
    """Return the index behind the closing brace of the last event known to be followed by another; 0 without one."""
    window = _LAST_WINDOW
    while True:
        low = max(0, len(text) - window)
        last = None
        for match in _BOUNDARY.finditer(text, low):
            last = match
        if last is not None:
            return last.start() + 1
        if low == 0:
            return 0
        window *= 16


def _after_separator(text: bytes, position: int) -> int:
    match = _SEPARATOR.match(text, position)
    return position if match is None else match.end()


def _next_readable(text: str, position: int, end: int) -> int:
    """Return where the next whole event starts inside a broken stretch, or its end."""
    for start in _EVENT_START.finditer(text, position + 1, end):
        try:
            value, _ = DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        if is_event(value):
            return start.start()
    return end


def _members(text: bytes) -> tuple[dict[str, Any], bool]:
    """Read ``{"key": value, …`` without needing its end.

    Returns:
        The members, and whether all of the text was understood.
    """
    decoded = text.decode("utf-8", "replace")
    members, is_whole = _walk_members(decoded)
    if not is_whole and "\\" in decoded:
        members, is_whole = _walk_members(escape_backslashes(decoded))
    return members, is_whole


def _walk_members(text: str) -> tuple[dict[str, Any], bool]:
    members: dict[str, Any] = {}
    separator = re.compile(r"[\s,]*")
    colon = re.compile(r"\s*:\s*")
    position = text.find("{") + 1
    while True:
        position = separator.match(text, position).end()  # type: ignore[union-attr]
        if position == len(text):
            return members, True
        if text[position] == "}":
            return members, not text[position + 1 :].strip()
        try:
            key, position = DECODER.raw_decode(text, position)
            between = colon.match(text, position)
            if between is None or not isinstance(key, str):
                return members, False
            value, position = DECODER.raw_decode(text, between.end())
        except (ValueError, RecursionError):
            return members, False
        members[key] = value
