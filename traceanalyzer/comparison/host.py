"""The host factor: how fast each side's host was, from the length of name-aligned launch calls."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from traceanalyzer.comparison.options import HOST_GUARD
from traceanalyzer.comparison.samples import Run
from traceanalyzer.results.comparison import HostFactor

FloatArray = npt.NDArray[np.float64]


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
    reference_calls = np.concatenate([r.launch_call_ns for r in base])
    with warnings.catch_warnings():
        # positions that a side lacks altogether are NaN columns; they drop out below
        warnings.simplefilter("ignore", RuntimeWarning)
        reference = np.nanmedian(reference_calls, axis=0)
        present = [~np.isnan(r.launch_call_ns).all(axis=0) for r in runs]
        used = np.logical_and.reduce(present) & (reference > 0)
        factors = []
        for run in runs:
            logs = np.log(np.maximum(run.launch_call_ns[:, used], 1.0) / reference[used])
            factors.append(np.nan_to_num(np.nanmean(np.clip(logs, -1.0, 1.0), axis=1)))
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
    elif abs(shift) > 0.02:
        word = "slower" if shift > 0 else "faster"
        note = f"The candidate's host was {abs(ratio - 1) * 100:.1f} % {word}; idle is adjusted for it."
    else:
        note = "Both hosts were equally fast."
    return HostFactor(ratio=ratio, slope=slope, positions=positions, is_other_host=other, note=note)
