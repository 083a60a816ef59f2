"""Collective kernels of the judged steps; what a collective is called is known in one place (``kernel_names``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import covered_within, union_of
from traceanalyzer.measures.facts import BoolArray, IntArray
from traceanalyzer.replay.bounds import JudgedSteps


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collective kernels of one rank's judged steps, in time order.

    Attributes:
        row: Rows of ``measures.communication``.
        activity: Rows of the activities.
        start_ns: Start.
        end_ns: End.
        exposed_ns: Part during which the device computed nothing.
        name: Names.
        exposed_in_steps_ns: Union of all collectives less compute, within the judged windows.
    """

    row: IntArray
    activity: IntArray
    start_ns: IntArray
    end_ns: IntArray
    exposed_ns: IntArray
    name: tuple[str, ...]
    exposed_in_steps_ns: int


def collectives(measures: Measures, judged: JudgedSteps) -> Collectives:
    """Find the collectives that the judged windows launched on the judged device."""
    found, kernels = measures.communication, measures.kernels
    window = kernels.window[np.searchsorted(kernels.activity, found.activity)]
    mine: BoolArray = judged.holds(window) & (found.device == judged.device_id)
    row = np.flatnonzero(mine).astype(np.int64)
    activity = found.activity[row]
    return Collectives(
        row=row,
        activity=activity,
        start_ns=found.start_ns[row],
        end_ns=found.end_ns[row],
        exposed_ns=found.exposed_ns[row],
        name=tuple(measures.facts.activity_name(int(at)) for at in activity),
        exposed_in_steps_ns=_exposed_in_steps(measures, judged, found.device == judged.device_id),
    )


def _exposed_in_steps(measures: Measures, judged: JudgedSteps, rows: BoolArray) -> int:
    """Time of the judged windows in which a collective runs and no compute does: |(U or C) in W| - |C in W|."""
    device = next(d for d in measures.devices if d.device_id == judged.device_id)
    found, steps = measures.communication, measures.steps
    window_start, window_end = steps.start_ns[judged.is_judged], steps.end_ns[judged.is_judged]
    both_start, both_end = union_of(
        np.concatenate([found.start_ns[rows], device.compute_start_ns]),
        np.concatenate([found.end_ns[rows], device.compute_end_ns]),
    )
    both = covered_within(window_start, window_end, both_start, both_end)
    compute = covered_within(window_start, window_end, device.compute_start_ns, device.compute_end_ns)
    return int(both.sum() - compute.sum())
