"""Cutting a trace file into whole events and metadata, block by block, around whatever damage it has.

The text between two guessed event boundaries goes to a strict parser; only text that it refuses is looked at again:
halved until the damage is isolated, repaired where the intention is clear, otherwise left out and counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers import kineto_chunks
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.kineto_chunks import BOUNDARY, KEY, MAX_EVENT_BYTES, Chunks
from traceanalyzer.readers.kineto_columns import ChunkParser, Columns
from traceanalyzer.readers.kineto_repair import (
    DECODER,
    escape_backslashes,
    event_text,
    irregularity,
    is_event,
    repaired,
)

_EVENT_START = re.compile(KEY)
_SEPARATOR = re.compile(rb"[\s,]*")
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*(?=\S)')
_EVENT_THEN_END = re.compile(rb'\}(?=\s*\]\s*(?:,\s*"|\}\s*$|$))')
_BRACKET_THEN_MEMBER = re.compile(rb'\]\s*,\s*"')
_LAST_BRACKETS = re.compile(rb"\][\s,}]*$")
_MAX_PREAMBLE_BYTES = 256 << 20
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


@dataclass
class _Step:
    """Where reading goes on after a refused stretch: exactly one of the places is meant."""

    done: int = 0
    carry_from: int | None = None
    tail_from: int | None = None


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
        source = Chunks(self.stream, self._open_list())
        parsed = self.parser.parsed(source)
        carried = b""
        for chunk, columns in parsed:
            if progress is not None:
                progress(chunk.done_bytes, self.stream.size_bytes)
            made: Columns | None = None
            if not carried and chunk.size > chunk.start:
                with suppress(ValueError):  # not whole events: looked at more closely below
                    made = columns()
            if made is not None:
                source.release(chunk)
                yield made
                continue
            text = carried + chunk.text()
            source.release(chunk)
            rest = yield from self._piece(text, is_final=chunk.is_final)
            carried = rest.carried
            if rest.tail is not None:
                self.is_closed = True
                self._read_tail(rest.tail, (behind.text() for behind, _ in parsed))
                break
        for problem, count in sorted(self._repairs.items()):
            what = "1 event" if count == 1 else f"{count} events"
            self.integrity.note(f"{what} held {problem} and {'was' if count == 1 else 'were'} repaired")

    def _open_list(self) -> bytes:
        """Read up to the first event, keep the metadata before it, and return the text behind the bracket."""
        text = self.stream.read(kineto_chunks.BLOCK_BYTES).removeprefix(_BOM)
        if text.lstrip()[:1] == b"[":
            self._is_array = True
            return text.lstrip()[1:]
        while (match := self._find_list(text)) is None:
            block = self.stream.read(kineto_chunks.BLOCK_BYTES)
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
        """Parse a stretch, halving it around what the parser refuses until one event or less is left."""
        view = memoryview(text)
        stack = [(0, len(text))]
        done = 0
        while stack:
            low, high = stack.pop()
            low = _after_separator(text, max(low, done))
            if low >= high:
                continue
            try:
                columns = self.parser.parse(b"".join((b"[", view[low:high], b"]")))
            except ValueError:
                middle = (low + high) // 2
                match = BOUNDARY.search(text, middle, high) or BOUNDARY.search(text, low, high)
                if match is not None:
                    stack.append((match.end(), high))
                    stack.append((low, match.start() + 1))
                    continue
                step = yield from self._salvage(text, low, high, is_final=is_final)
                if step.carry_from is not None:
                    return _Rest(carried=text[step.carry_from :])
                if step.tail_from is not None:
                    return _Rest(tail=text[step.tail_from :])
                done = step.done
            else:
                done = high
                yield columns
        return _Rest()

    def _salvage(self, text: bytes, low: int, high: int, *, is_final: bool) -> Generator[Columns | Damage, None, _Step]:
        """Read what can be read of a stretch the strict parser refused, one event at a time."""
        position = low
        in_list = True  # a closing bracket here closes the list, not something inside a broken event
        while (position := _after_separator(text, position)) < high:
            if in_list and self._closes_list(text, position, is_final=is_final):
                return _Step(tail_from=position + 1)
            event: dict[str, Any] | None = None
            problem = ""
            if text[position : position + 1] == b"{":
                value, end, is_cut = _decode_at(text, position, high)
                if is_cut and high < len(text):
                    # what looked like a border between events may lie inside this one
                    value, end, is_cut = _decode_at(text, position, len(text))
                if is_cut and not is_final and len(text) - position < MAX_EVENT_BYTES:
                    return _Step(carry_from=position)
                if value is None:
                    stop = BOUNDARY.search(text, position, high) or _EVENT_THEN_END.search(text, position, high)
                    if stop is None and is_final and high == len(text):
                        example = text[position : position + 120].decode("utf-8", "replace")
                        self.integrity.drop("event cut off at the end of the file", example)
                        return _Step(done=high)
                    end = stop.start() + 1 if stop is not None else high
                    if (fixed := repaired(_text(text[position:end]))) is not None:
                        event, problem = fixed
                    else:
                        end = _next_readable(text, position, end)
                elif is_event(value):
                    event = value
                    problem = irregularity(_text(text[position:end]))
            else:
                start = _EVENT_START.search(text, position, high)
                end = high if start is None else start.start()
            in_list = event is not None and is_event(event)
            if event is None:
                example = text[position : position + 120].decode("utf-8", "replace")
                self.integrity.drop("unreadable text among the events", example)
                yield DAMAGE
            else:
                if problem:
                    self._repairs[problem] += 1
                yield self.parser.parse(b"[" + event_text(event) + b"]")
            position = end
        return _Step(done=max(position, high))

    def _closes_list(self, text: bytes, position: int, *, is_final: bool) -> bool:
        """Say whether a bracket closes the list of events, and not something inside a broken one."""
        if text[position : position + 1] != b"]":
            return False
        if is_final and (self._is_array or _LAST_BRACKETS.match(text, position)):
            return True
        return _BRACKET_THEN_MEMBER.match(text, position) is not None

    def _read_tail(self, text: bytes, more: Iterable[bytes]) -> None:
        """Read the members behind the list of events."""
        parts = [text]
        size = len(text)
        for block in more:
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


def _after_separator(text: bytes, position: int) -> int:
    match = _SEPARATOR.match(text, position)
    return position if match is None else match.end()


def _decode_at(text: bytes, position: int, stop: int) -> tuple[Any, int, bool]:
    """Decode the JSON value at a position, leniently.

    Returns:
        The value (None when there is none), the index behind it, and whether only its end was missing.
    """
    # one character per byte keeps positions; the value itself is then decoded from its own bytes
    window = text[position:stop].decode("latin-1")
    try:
        _, length = DECODER.raw_decode(window)
        value, _ = DECODER.raw_decode(_text(text[position : position + length]))
    except json.JSONDecodeError as error:
        return None, position, error.pos >= len(window.rstrip())
    except (ValueError, RecursionError):  # a number of thousands of digits, nesting without end
        return None, position, False
    return value, position + length, False


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _next_readable(text: bytes, position: int, end: int) -> int:
    """Return where the next whole event starts inside a broken stretch, or its end."""
    for start in _EVENT_START.finditer(text, position + 1, end):
        if is_event(_decode_at(text, start.start(), end)[0]):
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
