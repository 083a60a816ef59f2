"""Making sense of event text that is not JSON: what exporters are known to write, undone."""

from __future__ import annotations

import json
import re
from typing import Any

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONE_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SINGLE_BACKSLASH = re.compile(r'\\(\\|")|\\')
_BARE_CONSTANT = re.compile(r":\s*[+-]?(?:nan|inf(?:inity)?)(?=\s*[,}])", re.IGNORECASE)
_NAME = re.compile(
    r'("name"\s*:\s*")(.*?)("\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|\}\s*(?:[,\]]|$)))',
    re.DOTALL,
)
_BARE_QUOTE = re.compile(r'(?<!\\)"')
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f]")

BACKSLASHES = "unescaped backslashes"
QUOTES = "unescaped quotes"
CONSTANTS = "NaN or infinite numbers"
CONTROL = "raw control characters"
ENCODING = "bytes that are not UTF-8"


class NumberText(str):
    """The text of a JSON float, kept so that no digit is lost."""

    __slots__ = ()


class ConstantText(str):
    """NaN, Infinity or -Infinity, kept as text that no number parser accepts."""

    __slots__ = ()


DECODER = json.JSONDecoder(strict=False, parse_float=NumberText, parse_constant=ConstantText)


def escape_backslashes(text: str) -> str:
    r"""Double the single backslashes of every string that holds an impossible escape.

    In such a string the writer escaped nothing, so ``\n`` in ``C:\new`` is a path, not a line break.
    """

    def fix(match: re.Match[str]) -> str:
        literal = match.group()
        if not _LONE_BACKSLASH.search(literal):
            return literal
        return _SINGLE_BACKSLASH.sub(lambda m: m.group() if m.group(1) else r"\\", literal)

    return _STRING.sub(fix, text)


def repaired(text: str) -> tuple[dict[str, Any], str] | None:
    """Parse the text of one event that is not JSON.

    Args:
        text: From its opening to its closing brace, undecodable bytes as surrogates.

    Returns:
        The event and what was wrong with it, or None when the intention is not clear.
    """
    attempts = (
        (BACKSLASHES, escape_backslashes),
        (CONSTANTS, _quote_constants),
        (QUOTES, _escape_quotes),
        (QUOTES, lambda damaged: escape_backslashes(_escape_quotes(damaged))),
    )
    for problem, attempt in attempts:
        try:
            fixed = attempt(text)
            event, end = DECODER.raw_decode(fixed)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and not fixed[end:].strip():
            return event, problem
    return None


def _quote_constants(text: str) -> str:
    return _BARE_CONSTANT.sub(": NaN", text)


def _escape_quotes(text: str) -> str:
    return _NAME.sub(lambda m: m.group(1) + _BARE_QUOTE.sub(r"\\" + '"', m.group(2)) + m.group(3), text, count=1)


def irregularity(text: str) -> str:
    """Name what kept a strict parser from reading an event that a lenient one could read; empty when unclear."""
    if _SURROGATE.search(text):
        return ENCODING
    if any(_CONTROL.search(literal.group()) for literal in _STRING.finditer(text)):
        return CONTROL
    return ""


def is_event(value: object) -> bool:
    """Say whether a JSON value is a trace event rather than some object inside one."""
    return isinstance(value, dict) and ("ph" in value or "ts" in value) and "name" in value


def event_text(event: dict[str, Any]) -> bytes:
    """Write an event as strict JSON whose members have the types a typed parser expects."""
    members: dict[str, Any] = dict(event)
    numbers = ""
    for key in ("ts", "dur"):
        if isinstance(members.get(key), NumberText):
            numbers += f', "{key}": {members.pop(key)}'
        elif isinstance(members.get(key), ConstantText):
            del members[key]
            numbers += f', "{key}": 1e999'  # JSON has no NaN; no number parser takes this for a time either
    for key in ("ph", "cat", "name"):
        if key in members and not isinstance(members[key], str):
            members[key] = "" if members[key] is None else str(members[key])
    if not isinstance(members.get("args"), dict):
        members.pop("args", None)
    text = json.dumps(members, ensure_ascii=False)
    text = text[:-1] + (numbers if len(members) else numbers[2:]) + "}"
    return _SURROGATE.sub("\ufffd", text).encode()
