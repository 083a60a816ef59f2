"""What was different about the recordings themselves; shown first, because it explains most surprises."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from traceanalyzer.comparison.samples import Run
from traceanalyzer.results.comparison import Difference

# settings under which two runs are not the same experiment
STOPPING = ("gpu", "batch", "imgsz", "workers", "model", "amp", "torch", "driver", "cuda", "pin_memory")


def find_differences(base: list[Run], candidate: list[Run]) -> tuple[list[Difference], list[str]]:
    """List the settings that differ between the sides.

    A setting unknown on one side is noted and does not stop the comparison.

    Args:
        base: Base runs.
        candidate: Candidate runs.

    Returns:
        Differences, and notes for the reader.
    """
    differences: list[Difference] = []
    notes: list[str] = []
    before = [msgspec.to_builtins(a.configuration) for a in base]
    after = [msgspec.to_builtins(a.configuration) for a in candidate]
    unknown = []
    for setting in before[0]:
        left = {d[setting] for d in before}
        right = {d[setting] for d in after}
        if left == right:
            continue
        if None in left or None in right:
            unknown.append(setting)
            continue
        differences.append(
            Difference(
                setting=setting,
                base=_text(left),
                candidate=_text(right),
                stops=setting in STOPPING,
            )
        )
    if unknown:
        notes.append(f"Known on one side only, so not compared: {', '.join(unknown)}.")
    for label, left_values, right_values, stops in (
        ("recording format", {a.format for a in base}, {a.format for a in candidate}, True),
        (
            "recorded with stacks",
            {a.recorded_with.stacks for a in base},
            {a.recorded_with.stacks for a in candidate},
            True,
        ),
        (
            "recorded with memory",
            {a.recorded_with.memory for a in base},
            {a.recorded_with.memory for a in candidate},
            True,
        ),
        (
            "recorded with shapes",
            {a.recorded_with.shapes for a in base},
            {a.recorded_with.shapes for a in candidate},
            False,
        ),
        ("ranks", {a.ranks for a in base}, {a.ranks for a in candidate}, True),
    ):
        if left_values != right_values:
            differences.append(
                Difference(setting=label, base=_text(left_values), candidate=_text(right_values), stops=stops)
            )
    return differences, notes


def _text(values: Iterable[object]) -> str:
    return ", ".join(sorted(str(v) for v in values))
