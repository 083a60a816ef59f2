"""The host factor: how fast each side's host was, from the length of name-aligned launch calls."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from traceanalyzer.comparison.matrices import row_medians
from traceanalyzer.comparison.options import HOST_GUARD
from traceanalyzer.comparison.samples import Run
from traceanalyzer.results.comparison import HostFactor

FloatArray = npt.NDArray[np.float64]

NAMED_SHIFT = 0.01  # smaller differences of launch-call time are not worth a sentence


def log_host_factors(base: list[Run], candidate: list[Run]) -> tuple[list[FloatArray], list[FloatArray], int]:
    """Measure every steady step's host speed against the base side's median launch calls.

    ``log h`` is the mean over aligned launches of ``ln(call time / base median)``, each clipped to ±1 so that a few
    preempted calls do not decide.

    Args:
        base: Base runs, positions aligned.
        candidate: Candidate runs, positions aligned to the same template.

    Returns:
        Per base run and per candidate run one value per steady step, and the number of positions used
        (0: nothing aligned, and every factor is 0).
    """
    runs = base + candidate
    usable = [r for r in runs if r.launch_call_ns.size]
    if len(usable) < len(runs):
        return [np.zeros(r.steps) for r in base], [np.zeros(r.steps) for r in candidate], 0
    # positions × steps, so that medians run along memory
    calls = [r.launch_call_ns.T for r in runs]
    reference = row_medians(np.concatenate(calls[: len(base)], axis=1))
    used = reference > 0  # NaN where the base lacks a position altogether
    for side in calls:
        used &= ~np.isnan(side).all(axis=1)
    if not used.any():
        return [np.zeros(r.steps) for r in base], [np.zeros(r.steps) for r in candidate], 0
    factors = []
    for side in calls:
        logs = np.clip(np.log(np.maximum(side[used], 1.0) / reference[used, None]), -1.0, 1.0)
        seen = np.maximum(np.count_nonzero(~np.isnan(logs), axis=0), 1)
        factors.append(np.nansum(logs, axis=0) / seen)  # 0 for a step that holds none of these launches
    return factors[: len(base)], factors[len(base) :], int(used.sum())


def describe_host(base: list[FloatArray], candidate: list[FloatArray], positions: int, slope: float) -> HostFactor:
    """State the two sides' relative host speed for the document.

    Args:
        base: Log host factors per base run.
        candidate: Log host factors per candidate run.
        positions: Launch positions used.
        slope: Slope of log idle on log host factor.
    """
    if not positions:
        return HostFactor(
            ratio=None,
            slope=slope,
            positions=0,
            is_other_host=False,
            note="The two sides have no launches in common, so host speed could not be compared.",
        )
    shift = float(np.mean([b.mean() for b in candidate]) - np.mean([b.mean() for b in base]))
    ratio = math.exp(shift)
    other = abs(shift) > math.log(HOST_GUARD)
    if other:
        note = f"Launch calls took {ratio:.2f} times as long: a different host; idle times cannot be compared."
    elif abs(shift) > NAMED_SHIFT:
        word = "slower" if shift > 0 else "faster"
        note = f"The candidate's host was {abs(ratio - 1) * 100:.1f} % {word}; idle is adjusted for it."
    else:
        note = "Both hosts were equally fast."
    return HostFactor(ratio=ratio, slope=slope, positions=positions, is_other_host=other, note=note)
