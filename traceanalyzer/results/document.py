"""Documents on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.results.analysis import SCHEMA, Analysis, RankReport

_HEAD_BYTES = 4096


class _Head(msgspec.Struct):
    schema: str = ""


def read_document(path: Path) -> Analysis | None:
    """Read an Analysis from a file; None where the file is something else.

    Args:
        path: File to look at; it need not exist.

    Raises:
        TraceFormatError: It is an Analysis, but damaged or of another schema version.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            # the schema is the first key this tool writes; whoever reorders keys keeps it within the first page
            if not head.lstrip().startswith(b"{") or b'"traceanalyzer.' not in head:
                return None
            text = head + stream.read()
    except OSError as error:
        raise TraceFormatError(str(path), f"cannot be read: {error.strerror or error}") from error
    return _decode(str(path), text)


def load_analysis(path: Path) -> Analysis:
    """Read an Analysis from a file.

    Raises:
        TraceFormatError: The file is absent, or not a whole Analysis of this schema.
    """
    if not path.is_file():
        raise TraceFormatError(str(path), "no such file", "write one with 'traceanalyzer analyze INPUT --json FILE'")
    document = read_document(path)
    if document is None:
        raise TraceFormatError(str(path), "not an analysis", "make one with 'traceanalyzer analyze INPUT --json FILE'")
    return document


def _decode(path: str, text: bytes) -> Analysis:
    try:
        schema = msgspec.json.decode(text, type=_Head).schema
        if schema != SCHEMA:
            raise TraceFormatError(path, f"its schema is {schema!r}, this version reads {SCHEMA!r}", "analyse it again")
        document = Analysis.from_json(text)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise TraceFormatError(path, f"not a whole analysis: {error}", "analyse the recording again") from error
    for rank in document.ranks:
        unequal = _unequal_series(rank)
        if unequal:
            problem = f"not a whole analysis: {unequal} of rank {rank.rank} has not one value per step"
            raise TraceFormatError(path, problem, "analyse the recording again")
    return document


def _unequal_series(rank: RankReport) -> str | None:
    """Name a series that does not have one value for every step; what draws or sums them relies on that."""
    steps, series = rank.steps, rank.per_step
    listed: dict[str, Sequence[object]] = {"duration_ns": steps.duration_ns, "class": steps.step_class}
    for field in msgspec.structs.fields(series):
        values = getattr(series, field.name)
        if isinstance(values, list):
            listed[field.name] = values
        elif isinstance(values, dict):
            listed |= {f"{field.name} {name!r:.60}": each for name, each in values.items()}
    if steps.name:
        listed["name"] = steps.name
    return next((name for name, values in listed.items() if len(values) != steps.count), None)
