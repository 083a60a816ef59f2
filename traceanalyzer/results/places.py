"""Where in the code a finding points: the places of its evidence that are a file and a line, not a range's name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from traceanalyzer.results.finding import Finding

# "train.py(12): main" as stacks are recorded, or "train.py:12"
_FRAME = re.compile(r"(?P<file>[^<>()\n]+?)(?:\((?P<line>\d{1,7})\): (?P<function>[^\n]+)|:(?P<bare>\d{1,7}))")


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of code.

    Attributes:
        file: Path as the recording gives it, with forward slashes.
        line: Line, counted from 1.
        function: Function around it; empty where the recording does not say.
    """

    file: str
    line: int
    function: str = ""


def code_place(text: str) -> CodePlace | None:
    """Read a place in the code; None for anything else, such as the name of a range."""
    match = _FRAME.fullmatch(text.strip())
    if match is None:
        return None
    line = int(match["line"] or match["bare"])
    # "a.py(0): <module>" is how a profiler writes a line it does not know
    if line < 1 or not match["file"].endswith((".py", ".pyx", ".pyi", ".ipynb")):
        return None
    return CodePlace(match["file"].replace("\\", "/"), line, match["function"] or "")


def code_places(finding: Finding) -> list[str]:
    """Return the lines of code of a finding as the recording writes them, those with most time in evidence first."""
    times: Counter[str] = Counter()
    for place in finding.evidence:
        if place.where is not None and code_place(place.where) is not None:
            times[place.where] += place.end_ns - place.start_ns
    named = finding.observed.get("where")
    # what the rule itself names has looked at all of the recording, not only at the evidence that is kept
    first = [named] if isinstance(named, str) and code_place(named) is not None else []
    return list(dict.fromkeys([*first, *(place for place, _ in sorted(times.items(), key=lambda e: (-e[1], e[0])))]))
