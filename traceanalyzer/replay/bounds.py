"""What removing a cause could win, read off the idle ledger: an upper limit where nothing was re-executed.

A bound is a mean over the steps a rule judges of the idle time that belongs to its cause. It never assumes that
time the device was busy could be won.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.measures.gap_attribution import BoolArray
from traceanalyzer.measures.steps import CUT, EPISODIC, STEADY
from traceanalyzer.model.schema import IntArray
from traceanalyzer.results.finding import Saving
from traceanalyzer.results.vocabulary import Basis, Cause, Phase

# phases that have a rule of their own; whatever happens inside them is that rule's business
EPISODE_PHASES = (Phase.VALIDATE, Phase.CHECKPOINT, Phase.LOG)

# idle that shrinks when the host gets to its next launch earlier; waiting for the loader does not
HOST_CAUSES = (
    Cause.OPERATOR_DISPATCH,
    Cause.PYTHON,
    Cause.LAUNCH_CALL,
    Cause.LAUNCH_LATENCY,
    Cause.GRAPH_LAUNCH,
    Cause.COPY_CALL,
    Cause.SYNC_WAIT,
    Cause.AUTOGRAD_ENGINE,
)


@dataclass(frozen=True, slots=True)
class JudgedSteps:
    """The step windows one rule judges, on one device.

    Attributes:
        device_id: The device with the most busy time.
        is_judged: One flag per step window.
        count: Number of judged windows, at least 1.
        mean_step_ns: Their mean length.
    """

    device_id: int
    is_judged: BoolArray
    count: int
    mean_step_ns: float

    @property
    def key(self) -> tuple[int, bytes]:
        """What tells two choices apart."""
        return self.device_id, self.is_judged.tobytes()

    def per_step(self, total_ns: float) -> int:
        """Mean per judged step of a total over them, ns."""
        return round(total_ns / self.count)

    def holds(self, window: npt.NDArray[np.int32] | npt.NDArray[np.int64]) -> BoolArray:
        """Say which rows of a window column lie in a judged window."""
        held: BoolArray = np.append(self.is_judged, False)[window]  # the last entry stands for window -1
        return held


def judged_steps(measures: Measures, *, with_episodes: bool = False) -> JudgedSteps | None:
    """Choose the windows to judge: the steady ones, with the episodic ones where the cause lives there.

    Without any steady window every window that is not cut is taken, so that a recording of an epoch's edge alone
    is still judged.

    Args:
        measures: One rank.
        with_episodes: Take episodic windows too.

    Returns:
        The choice; None where there is no device or no whole step.
    """
    steps = measures.steps
    if not measures.devices or not len(steps):
        return None
    wanted = [STEADY, EPISODIC] if with_episodes else [STEADY]
    chosen = np.isin(steps.step_class, wanted)
    if not np.any(steps.step_class == STEADY):
        chosen = steps.step_class != CUT
    count = int(np.count_nonzero(chosen))
    if not count:
        return None
    lengths = (steps.end_ns - steps.start_ns)[chosen]
    device = max(measures.devices, key=lambda d: (d.busy_ns, -d.device_id))
    return JudgedSteps(device.device_id, chosen, count, float(lengths.mean()))


def judged_idle(measures: Measures, judged: JudgedSteps, *, with_episode_phases: bool = False) -> BoolArray:
    """Select the idle pieces of the judged windows on the judged device.

    Args:
        measures: One rank.
        judged: The windows.
        with_episode_phases: Keep pieces inside validation, checkpoints and logging, which other rules leave
            alone.

    Returns:
        One flag per piece; read-only, because most rules ask for the same selection.
    """

    def select() -> BoolArray:
        idle = measures.idle
        keep: BoolArray
        if with_episode_phases:
            keep = judged.holds(idle.window) & (idle.device == judged.device_id)
        else:
            keep = judged_idle(measures, judged, with_episode_phases=True) & ~idle.mask(phases=EPISODE_PHASES)
        keep.setflags(write=False)
        return keep

    return measures.kept(("judged idle", *judged.key, with_episode_phases), select)


def idle_total(measures: Measures, mask: BoolArray) -> int:
    """Sum the selected idle pieces, ns."""
    return int(measures.idle.duration_ns[mask].sum())


def bound(judged: JudgedSteps, *, likely_ns: float, low_ns: float = 0, high_ns: float | None = None) -> Saving:
    """State a bound per step from totals over the judged windows.

    Args:
        judged: The windows.
        likely_ns: Idle that would really vanish, total.
        low_ns: What is certain to vanish, total.
        high_ns: Upper limit, total; None means ``likely_ns`` already is the limit.
    """
    return Saving(
        low=judged.per_step(low_ns),
        likely=judged.per_step(likely_ns),
        high=judged.per_step(likely_ns if high_ns is None else high_ns),
        basis=Basis.BOUND,
    )


def open_bound(judged: JudgedSteps, *, likely_ns: float, low_ns: float = 0) -> Saving:
    """State a bound whose upper end is open because part of the cause's cost leaves no idle time of its own."""
    return Saving(low=judged.per_step(low_ns), likely=judged.per_step(likely_ns), high=None, basis=Basis.BOUND)


def ceiling(judged: JudgedSteps, *, high_ns: float) -> Saving:
    """State only an upper limit: how much of it can be won is not known."""
    return Saving(low=0, likely=None, high=judged.per_step(high_ns), basis=Basis.BOUND)


def _host_idle(measures: Measures, judged: JudgedSteps) -> tuple[IntArray, IntArray]:
    """Start of the judged idle pieces that end earlier where the host is earlier, and the running sum before each."""
    idle = measures.idle
    mask = judged_idle(measures, judged) & idle.mask(*HOST_CAUSES)
    return idle.start_ns[mask], np.concatenate([[0], np.cumsum(idle.duration_ns[mask])])


def won_by_running_ahead(
    measures: Measures,
    judged: JudgedSteps,
    start_ns: IntArray,
    end_ns: IntArray,
    kept_start_ns: IntArray,
) -> IntArray:
    """Idle that would vanish if the host did not stop in some waits.

    Without a wait of length w the host issues everything after it w earlier. That wins idle time only where the
    device then waits for the host, and only until the host has to wait anyway: at the next wait that stays, what
    is left of the head start is lost. Waiting for a device that is busy and stays ahead therefore costs nothing.

    Args:
        measures: One rank.
        judged: The windows; only their idle time counts.
        start_ns: Starts of the waits to remove, ascending.
        end_ns: Their ends.
        kept_start_ns: Starts of the waits that stay, ascending.

    Returns:
        Idle won, ns, credited to each removed wait.
    """
    if not len(start_ns):
        return np.zeros(0, dtype=np.int64)
    piece_start, before = measures.kept(("host idle", *judged.key), lambda: _host_idle(measures, judged))

    def idle_until(moments: IntArray) -> IntArray:
        begun = np.searchsorted(piece_start, moments, side="right")
        at = np.maximum(begun - 1, 0)
        # a piece ends where the running sum of the next begins
        return np.where(begun > 0, np.minimum(before[at + 1], before[at] + moments - piece_start[at]), 0)

    if not len(piece_start):
        return np.zeros(len(start_ns), dtype=np.int64)
    last = int((piece_start + np.diff(before)).max())
    following = np.append(start_ns[1:], last)
    stop = np.append(kept_start_ns, last)[np.searchsorted(kept_start_ns, start_ns, side="right")]
    winnable = np.maximum(idle_until(np.minimum(following, stop)) - idle_until(start_ns), 0)
    won: list[int] = []
    head_start = 0
    for wait, at_most, ends_run in zip(
        (end_ns - start_ns).tolist(), winnable.tolist(), (stop < following).tolist(), strict=True
    ):
        head_start += wait
        won.append(min(head_start, at_most))
        head_start = 0 if ends_run else head_start - won[-1]
    return np.array(won, dtype=np.int64)
