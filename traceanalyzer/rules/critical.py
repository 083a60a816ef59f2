"""Which device time a faster kernel would really win, and in which phase it was asked for."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray, IntArray
from traceanalyzer.results.vocabulary import PHASE_CODE, Phase

_NEVER = np.iinfo(np.int64).max


def issued_in(measures: Measures, activity: IntArray, phases: Collection[Phase]) -> BoolArray:
    """Say which activities were launched inside one of some phases.

    Args:
        measures: One rank.
        activity: Rows of the activities.
        phases: The phases.

    Returns:
        One flag per activity; False where the launch is not known.
    """
    wanted = [PHASE_CODE[p] for p in phases]
    present = np.zeros(len(PHASE_CODE), dtype=np.bool_)
    present[measures.host.phase] = True
    if not np.any(present[wanted]):
        return np.zeros(len(activity), dtype=np.bool_)
    launches = measures.launches
    launch = np.full(measures.facts.activity_count, -1, dtype=np.int64)
    launch[launches.activity] = np.arange(len(launches.activity))
    row = launch[activity]
    known = np.flatnonzero(row >= 0)
    phase = measures.host.phase_at(launches.thread[row[known]], launches.call_start_ns[row[known]])
    found = np.zeros(len(activity), dtype=np.bool_)
    found[known] = np.isin(phase, wanted)
    return found


def is_waited_for(measures: Measures, device_id: int) -> BoolArray:
    """Say for every kernel whether the device's next activity was already launched when it ended.

    Only then would a shorter kernel let the device go on earlier; else the device waits for the host either way. An
    activity without a known launch counts as not launched.

    Args:
        measures: One rank.
        device_id: The device.

    Returns:
        One flag per row of ``measures.kernels``; False for kernels of other devices.
    """
    kernels, launches, facts = measures.kernels, measures.launches, measures.facts
    rows = next(d.rows for d in measures.devices if d.device_id == device_id)
    launched = np.full(facts.activity_count, _NEVER, dtype=np.int64)
    launched[launches.activity] = launches.call_end_ns
    starts = facts.activity_starts(rows)
    mine = kernels.device == device_id
    end = facts.activity_ends(kernels.activity)
    following = np.searchsorted(starts, end, side="left")
    exists = mine & (following < len(rows))
    flags = np.zeros(len(mine), dtype=np.bool_)
    flags[exists] = launched[rows[following[exists]]] <= end[exists]
    return flags
