"""Most memory allocated in each phase of a step."""

from __future__ import annotations

import numpy as np

from traceanalyzer.measures.host_timeline import HostTimeline
from traceanalyzer.measures.steps import Steps
from traceanalyzer.results.analysis import MemoryCurve
from traceanalyzer.results.vocabulary import PHASE_CODE, PHASES, Phase


def peak_by_phase(curve: MemoryCurve | None, host: HostTimeline, steps: Steps) -> dict[str, int]:
    """Find the highest allocated bytes while the training loop was in each phase.

    The loop's thread decides, where it is in a phase; else a thread of the backward pass at work means backward.

    Args:
        curve: Allocated bytes over time, on the recording's clock; None where the recording has none.
        host: Flattened host threads.
        steps: Step windows; their thread is the loop's.

    Returns:
        Bytes by phase name, phases in which nothing was seen left out; empty without a curve or marked steps.
    """
    if curve is None or steps.thread < 0 or not len(steps):
        return {}
    time = np.array(curve.time_ns, dtype=np.int64)
    inside = (time >= steps.start_ns[0]) & (time < steps.end_ns[-1])
    time, allocated = time[inside], np.array(curve.allocated_bytes, dtype=np.int64)[inside]
    phase = host.phase_at(np.full(len(time), steps.thread, dtype=np.int32), time)
    other = PHASE_CODE[Phase.OTHER]
    for thread in np.flatnonzero(host.autograd).tolist():
        rows = np.flatnonzero(phase == other)
        phase[rows] = host.phase_at(np.full(len(rows), thread, dtype=np.int32), time[rows])
    return {PHASES[code].value: int(allocated[phase == code].max()) for code in np.unique(phase).tolist()}
