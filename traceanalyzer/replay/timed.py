"""Savings by the recorder's timers: where it timed the very cause in unprofiled steps, that beats the recorded steps.

The recorded steps are few, and what they wait for their input depends on how full the queue of batches was when they
began. The unprofiled steps are more, and the workers' own seconds per batch say what the queue settles at.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.measures.unprofiled_times import UnprofiledTimes, two_errors
from traceanalyzer.measures.worker_stages import Stage
from traceanalyzer.results.finding import Saving
from traceanalyzer.results.vocabulary import Basis
from traceanalyzer.units import format_ns

# what asking a loader costs whose batch is ready: PyTorch takes it from a queue
READY_BATCH_NS = 100_000
# the launching thread ran 1.09 to 1.4 times slower beside loader workers on 16 cores; in between, by their mean ratio
LEAST_CONTENTION, WORKER_CONTENTION = 0.09, 0.4
LIKELY_CONTENTION = ((1 + LEAST_CONTENTION) * (1 + WORKER_CONTENTION)) ** 0.5 - 1
# half to three quarters of the cores as workers is what the host bears
WORKER_CORE_SHARE = 0.75
# reading one image from memory or a local disk and decoding it takes less; more is waiting for storage
LOCAL_READ_NS = 5_000_000

IN_MAIN_PROCESS, BY_WORKERS = "TA101", "TA102"


@dataclass(frozen=True, slots=True)
class Price:
    """A saving without the profiler and what stays.

    Attributes:
        saving: Saving per step.
        left: What was not removable, one clause; may be empty.
        step_ns: Mean step without the profiler, ns.
        said: How it is known, where that is not replay; may be empty.
    """

    saving: Saving
    left: str
    step_ns: int
    said: str = ""


def input_price(measures: Measures, code: str) -> Price | None:
    """What not waiting for the input is worth, by the unprofiled steps.

    Args:
        measures: One rank.
        code: A finding about the input.

    Returns:
        The price; None where the timers do not decide: nobody timed, it is another finding, or workers whose own
        seconds show that they keep up (then what is missing comes from bursts or an epoch's start).
    """
    times = measures.unprofiled
    if times is None:
        return None
    if code == BY_WORKERS and not falls_behind(times):
        return None
    if code not in (IN_MAIN_PROCESS, BY_WORKERS) or times.mean_wait_ns <= READY_BATCH_NS:
        return None
    step, rest = times.lasting_step_ns, times.mean_rest_ns
    more = supply_floor_ns(measures)
    cheaper = supply_floor_ns(measures, without_storage=True)
    added = added_share(times)

    def saved(contention: float, floor_ns: float) -> float:
        return step - max(rest * (1 + contention * added) + READY_BATCH_NS, floor_ns)

    likely = saved(LIKELY_CONTENTION, cheaper)
    # measured waiting is uncertain by itself; a step as long as the workers take is so only by its rest
    is_supplied = (times.supply_ns or 0.0) >= times.step_ns
    spread = times.noise_ns if is_supplied else two_errors(times.wait_ns)
    low, high = saved(WORKER_CONTENTION, more) - spread, saved(0.0, cheaper) + spread
    left = "taking a ready batch from the queue" + (", and what the workers can supply" if more else "")
    said = (
        f"In {times.steps} steps timed without the profiler the loop waited {format_ns(times.mean_wait_ns)} of "
        f"{format_ns(times.step_ns)} for its batch."
    )
    if is_supplied and times.batch_ns and times.workers and step > times.step_ns:
        said += f" The workers together make one every {format_ns(step)}: the step once the queue is used up."
    return Price(
        Saving(
            low=round(max(low, 0.0)), likely=round(max(likely, 0.0)), high=round(max(high, 0.0)), basis=Basis.REPLAY
        ),
        left,
        round(step),
        said,
    )


def falls_behind(times: UnprofiledTimes) -> bool:
    """Whether the workers' own seconds per batch say that they cannot keep up with the rest of the step."""
    return times.supply_ns is not None and times.supply_ns > times.mean_rest_ns


def added_share(times: UnprofiledTimes) -> float:
    """How many more workers there may be, as a share of those the cores bear; none are added where all are at work."""
    most = WORKER_CORE_SHARE * times.cores if times.cores else 0.0
    return 1 - (min((times.workers or 0) / most, 1.0) if most >= 1 else 0.0)


def supply_floor_ns(measures: Measures, *, without_storage: bool = False) -> float:
    """Shortest step the loader can supply with as many workers as the cores bear; 0 where nothing was timed.

    Args:
        measures: One rank.
        without_storage: Take off the time images take to arrive, where they take so long that they come from a disk
            or over a network.
    """
    times, stages = measures.unprofiled, measures.worker_stages
    if times is None or times.batch_ns is None or not times.cores:
        return 0.0
    batch = times.batch_ns
    if without_storage and stages is not None:
        # reading inside a transform that asks for further images counts as the transform's own time
        slow = sum(
            part.ns
            for part in stages.parts
            if part.ns_per_call > LOCAL_READ_NS and (part.stage is Stage.READ or part.name == "Mosaic")
        )
        batch *= max(1 - slow / stages.batch_ns, 0.0)
    return batch / max(1.0, WORKER_CORE_SHARE * times.cores)
