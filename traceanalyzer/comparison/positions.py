"""Which gap, which kernels, which rare spike: tests over positions of the step, kernel families and longest gaps."""

from __future__ import annotations

import numpy as np

from traceanalyzer.comparison.matrices import row_medians
from traceanalyzer.comparison.options import (
    FAMILY_FLOOR_NS,
    FAMILY_FLOOR_RELATIVE,
    POSITION_FLOOR_NS,
    POSITION_FLOOR_RELATIVE,
    SPIKE_FACTOR,
    SPIKE_FLOOR_NS,
)
from traceanalyzer.comparison.samples import FloatArray, Run
from traceanalyzer.comparison.statistics import (
    ALPHA,
    MIN_AUTOCORRELATION_STEPS,
    fisher_greater,
    holm,
    mann_whitney,
)
from traceanalyzer.results.comparison import Family, Test, Verdict
from traceanalyzer.units import format_ns

OTHER_FAMILIES = "other"  # what a document calls the families it does not list
REPORTED_POSITIONS = 20
MIN_PRESENT = 0.5  # a position must exist in half of the steps of each side to be tested


def compare_positions(base: list[Run], candidate: list[Run], ranks: int = 1) -> list[Test]:
    """Test the host interval before each launch of the step.

    Each interval is divided by its step's median ratio to the base medians, so that a step on a slower host does
    not count as slower everywhere.

    Args:
        base: Base runs, positions aligned.
        candidate: Candidate runs, aligned to the same template.
        ranks: Ranks compared in the same way, for the correction.

    Returns:
        The positions that changed, largest first, at most ``REPORTED_POSITIONS`` of each direction.
    """
    names = base[0].position_names
    if not names or any(not r.interval_ns.size for r in base + candidate):
        return []
    # positions × steps, so that the medians below run along memory
    raw_base = np.concatenate([r.interval_ns.T for r in base], axis=1)
    raw_candidate = np.concatenate([r.interval_ns.T for r in candidate], axis=1)
    reference = row_medians(raw_base)
    before = _by_step_ratio(raw_base, reference)
    after = _by_step_ratio(raw_candidate, reference)
    median_before, median_after = row_medians(before), row_medians(after)
    seen_before, seen_after = (np.count_nonzero(~np.isnan(side), axis=1) for side in (before, after))
    present = (seen_before >= MIN_PRESENT * before.shape[1]) & (seen_after >= MIN_PRESENT * after.shape[1])
    columns = np.flatnonzero(present & (seen_before > 0) & (seen_after > 0))
    if not len(columns):
        return []
    change = median_after[columns] - median_before[columns]
    scale = np.maximum(np.abs(median_before[columns]), 1.0)
    large = (np.abs(change) > POSITION_FLOOR_NS) & (np.abs(change) / scale > POSITION_FLOOR_RELATIVE)
    tests = []
    for worse in (True, False):
        # only what exceeds the floors can be reported, so only that is ranked; the correction counts every position
        tested = np.flatnonzero(large & ((change > 0) if worse else (change < 0)))
        first, second = (before, after) if worse else (after, before)
        u, p, _ = mann_whitney(first[columns[tested]].T, second[columns[tested]].T, MIN_AUTOCORRELATION_STEPS)
        adjusted = holm(p, total=ranks * len(columns))
        hits = np.flatnonzero(adjusted < ALPHA)
        for turn in hits[np.argsort(-np.abs(change[tested[hits]]), kind="stable")][:REPORTED_POSITIONS]:
            hit = tested[turn]
            column = int(columns[hit])
            previous = names[column - 1] if column else "the step's start"
            tests.append(
                Test(
                    family=Family.POSITION,
                    name=f"launch {column + 1} of {len(names)}: {names[column]}",
                    unit="ns",
                    base=float(median_before[column]),
                    candidate=float(median_after[column]),
                    change=float(change[hit] / scale[hit]),
                    statistic=float(u[turn]),
                    p=float(p[turn]),
                    p_adjusted=float(adjusted[turn]),
                    floor_relative=POSITION_FLOOR_RELATIVE,
                    floor_absolute=POSITION_FLOOR_NS,
                    samples_base=int(seen_before[column]),
                    samples_candidate=int(seen_after[column]),
                    position=column,
                    verdict=Verdict.REGRESSION if worse else Verdict.IMPROVEMENT,
                    method="Mann–Whitney on host intervals divided by the step's median ratio",
                    detail=(
                        f"host time before launching {names[column]} (after {previous}): "
                        f"{format_ns(float(median_before[column]))} → {format_ns(float(median_after[column]))}"
                    ),
                )
            )
    return tests


def compare_families(base: list[Run], candidate: list[Run], ranks: int = 1) -> list[Test]:
    """Test the time of every kernel family per step.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        ranks: Ranks compared in the same way, for the correction.

    Returns:
        The families that changed beyond both floors, largest first.
    """
    names = sorted({n for r in base + candidate for n in r.kernel_family_ns})
    if not names:
        return []
    before = _families(base, names)
    after = _families(candidate, names)
    u, p_worse, p_better = mann_whitney(before, after)
    adjusted_worse, adjusted_better = (holm(p, total=ranks * len(names)) for p in (p_worse, p_better))
    median_before, median_after = row_medians(before.T), row_medians(after.T)
    change = median_after - median_before
    scale = np.maximum(median_before, 1.0)
    large = (np.abs(change) > FAMILY_FLOOR_NS) & (np.abs(change) / scale > FAMILY_FLOOR_RELATIVE)
    tests = []
    for column in np.argsort(-np.abs(change), kind="stable"):
        worse = bool(change[column] > 0)
        adjusted = float((adjusted_worse if worse else adjusted_better)[column])
        if not large[column] or adjusted >= ALPHA:
            continue
        tests.append(
            Test(
                family=Family.KERNEL_FAMILY,
                name=names[column],
                unit="ns",
                base=float(median_before[column]),
                candidate=float(median_after[column]),
                change=float(change[column] / scale[column]) if median_before[column] else None,
                statistic=float(u[column]),
                p=float((p_worse if worse else p_better)[column]),
                p_adjusted=adjusted,
                floor_relative=FAMILY_FLOOR_RELATIVE,
                floor_absolute=FAMILY_FLOOR_NS,
                samples_base=len(before),
                samples_candidate=len(after),
                verdict=Verdict.REGRESSION if worse else Verdict.IMPROVEMENT,
                method="Mann–Whitney on kernel time per step",
                detail=(
                    f"kernels {names[column]}: {format_ns(float(median_before[column]))} → "
                    f"{format_ns(float(median_after[column]))} per step"
                ),
            )
        )
    return tests


def compare_spikes(base: list[Run], candidate: list[Run], ranks: int = 1) -> list[Test]:
    """Test whether long gaps come more often: steps whose longest gap exceeds what the base ever showed.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        ranks: Ranks compared in the same way, for the correction.
    """
    before = np.concatenate([r.max_gap_ns for r in base])
    after = np.concatenate([r.max_gap_ns for r in candidate])
    limit_worse = max(SPIKE_FLOOR_NS, SPIKE_FACTOR * float(before.max()))
    limit_better = max(SPIKE_FLOOR_NS, SPIKE_FACTOR * float(after.max()))
    hits = int((after > limit_worse).sum())
    gone = int((before > limit_better).sum())
    p_worse = fisher_greater(0, len(before), hits, len(after))
    p_better = fisher_greater(0, len(after), gone, len(before))
    verdict = Verdict.NO_CHANGE
    if hits and ranks * p_worse < ALPHA:
        verdict = Verdict.REGRESSION
    elif gone and ranks * p_better < ALPHA:
        verdict = Verdict.IMPROVEMENT
    return [
        Test(
            family=Family.SPIKE,
            name="longest gap",
            unit="steps",
            base=0.0 if verdict is not Verdict.IMPROVEMENT else float(gone),
            candidate=float(hits) if verdict is not Verdict.IMPROVEMENT else 0.0,
            p=p_worse,
            p_adjusted=min(1.0, ranks * p_worse),
            floor_absolute=limit_worse,
            samples_base=len(before),
            samples_candidate=len(after),
            verdict=verdict,
            method="Fisher's exact test on steps whose longest gap exceeds max(3 ms, 1.5 × the other side's maximum)",
            detail=f"{hits} of {len(after)} candidate steps hold a gap above {format_ns(limit_worse)}",
        )
    ]


def _by_step_ratio(intervals: FloatArray, reference: FloatArray) -> FloatArray:
    usable = reference > 0
    ratios = row_medians((intervals[usable] / reference[usable, None]).T)
    return intervals / np.where(ratios > 0, ratios, 1.0)


def _families(runs: list[Run], names: list[str]) -> FloatArray:
    return np.concatenate([np.column_stack([r.kernel_family_ns.get(n, _unlisted(r)) for n in names]) for r in runs])


def _unlisted(run: Run) -> FloatArray:
    """Return what a family that a run does not list may have taken per step, at most.

    A document lists the largest families and sums the rest as ``other``. A family near that cut may be listed in one
    run and not in the next, and reading "not listed" as zero would call that a change.
    """
    if OTHER_FAMILIES not in run.kernel_family_ns:
        return np.zeros(run.steps)
    listed = [v for name, v in run.kernel_family_ns.items() if name != OTHER_FAMILIES]
    smallest = min((float(v.sum()) for v in listed), default=0.0) / max(run.steps, 1)
    return np.minimum(smallest, run.kernel_family_ns[OTHER_FAMILIES])
