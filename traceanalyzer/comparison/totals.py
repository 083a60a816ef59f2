"""Totals of whole recordings: kernels where steps are not marked, and the peak of memory."""

from __future__ import annotations

import numpy as np

from traceanalyzer.comparison.options import FAMILY_FLOOR_NS, FAMILY_FLOOR_RELATIVE
from traceanalyzer.comparison.samples import Run
from traceanalyzer.results.comparison import Family, Test, Verdict
from traceanalyzer.units import format_bytes, format_ns


def compare_totals(base: list[Run], candidate: list[Run]) -> list[Test]:
    """Set the kernel families' totals of the recordings side by side.

    Inferred steps are windows of equal content, so kernels lost or gained by doing fewer of them cannot show per
    step. Totals depend on how long the recording ran, which nothing here knows to be meant; so they explain, and
    never decide.

    Args:
        base: Base runs.
        candidate: Candidate runs.

    Returns:
        The families whose count or time changed, largest change of time first; none where every run marks its steps.
    """
    if all(r.steps_are_marked for r in base + candidate):
        return []
    tests = []
    for name in sorted({n for r in base + candidate for n in r.kernel_totals}):
        count_before, time_before = _mean(base, name)
        count_after, time_after = _mean(candidate, name)
        change = time_after - time_before
        large = abs(change) > FAMILY_FLOOR_NS and abs(change) > FAMILY_FLOOR_RELATIVE * time_before
        if not large and count_before == count_after:
            continue
        tests.append(
            Test(
                family=Family.ADVISORY,
                name=f"recording total of {name}",
                unit="ns",
                base=time_before,
                candidate=time_after,
                change=change / time_before if time_before else None,
                verdict=Verdict.INCONCLUSIVE,
                method="totals over the whole recordings, all ranks; no test",
                detail=(
                    f"{name} {count_before:g} → {count_after:g} calls, {format_ns(time_before)} → "
                    f"{format_ns(time_after)} ({format_ns(change, signed=True)})"
                ),
                samples_base=len(base),
                samples_candidate=len(candidate),
            )
        )
    return sorted(tests, key=lambda t: -abs((t.candidate or 0.0) - (t.base or 0.0)))


def compare_memory(base: list[Run], candidate: list[Run]) -> list[Test]:
    """Set the peaks of reserved memory side by side; they explain, and a budget can limit them.

    Args:
        base: Base runs.
        candidate: Candidate runs.

    Returns:
        One test, or none where a side does not know its peak.
    """
    peaks = [[r.peak_reserved_bytes for r in side if r.peak_reserved_bytes is not None] for side in (base, candidate)]
    if not all(peaks):
        return []
    before, after = (float(max(side)) for side in peaks)
    return [
        Test(
            family=Family.ADVISORY,
            name="peak_reserved_bytes",
            unit="bytes",
            base=before,
            candidate=after,
            change=(after - before) / before if before else None,
            verdict=Verdict.INCONCLUSIVE,
            method="largest peak of the runs; no test",
            detail=f"peak of reserved memory: {format_bytes(before)} → {format_bytes(after)}",
            samples_base=len(peaks[0]),
            samples_candidate=len(peaks[1]),
        )
    ]


def _mean(runs: list[Run], name: str) -> tuple[float, float]:
    pairs = np.array([r.kernel_totals.get(name, (0, 0)) for r in runs], dtype=np.float64)
    return float(pairs[:, 0].mean()), float(pairs[:, 1].mean())
