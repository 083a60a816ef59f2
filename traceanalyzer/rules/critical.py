"""Which device time a faster kernel would really win."""

from __future__ import annotations

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray

_NEVER = np.iinfo(np.int64).max


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
