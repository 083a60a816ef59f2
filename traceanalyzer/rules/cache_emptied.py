"""`torch.cuda.empty_cache()` is called in the loop: memory goes back to the driver and is taken again.

## Detects
Bursts of device frees outside any allocation, in most steps, after which about as much memory is allocated again.

## Why it matters
Freeing device memory waits for the device, and the next step pays a driver allocation for every segment it needs.
The caching allocator exists to avoid exactly that; emptying it does not make more memory available to the loop.

## How it is measured
Idle time inside the frees, inside the allocations that bring the segments back, and inside the waits just before a
burst; mean over the judged steps.

## Does not apply when
The recording holds no runtime calls.

## How to fix
Remove `torch.cuda.empty_cache()` from the loop. Where it was added against fragmentation, use
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

## Limits and false positives
An allocator that retries after running out of memory frees in the same pattern, but right after a failed allocation or
in the operator whose allocation then fits: that is left to TA403. Where neither is seen, because the second try failed
too or no operators were recorded, a memory snapshot tells (TA403 and TA404 explain the finding away).

## References
PyTorch, "CUDA semantics, memory management".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.measures.facts import BoolArray, CallKind, CodeArray, IntArray
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Evidence, Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import longest, where
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_count, format_ns, format_share

META = Meta(
    code="TA402",
    slug="cache-emptied",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="The memory cache is emptied in the loop",
    pass_title="The memory cache is left alone",
    remedy=Remedy(
        settings=("torch.cuda.empty_cache",),
        before="""
        for batch in loader:
            train_step(batch)
            torch.cuda.empty_cache()
        """,
        after="""
        for batch in loader:
            train_step(batch)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # empty_cache() frees every cached segment at once; two frees in a row also happen by chance
    min_frees_in_burst: int = 3
    # frees of one burst follow each other directly; 1 ms leaves room for a slow profiled host
    burst_gap_ns: int = 1_000_000
    # a retry frees directly after its own failed allocation
    retry_gap_ns: int = 200_000
    # "in the loop": in at least half of the steps
    min_share_of_steps: float = 0.5
    # the same segments come back
    min_share_allocated_again: float = 0.5


@dataclass(frozen=True, slots=True)
class Bursts:
    """Bursts of frees outside allocations, in time order.

    Attributes:
        call: Rows of ``measures.allocator`` of each burst.
        start_ns: Start of each.
        end_ns: End of each.
        window: Step window of each.
        thread: Thread index of each.
    """

    call: list[IntArray]
    start_ns: IntArray
    end_ns: IntArray
    window: IntArray
    thread: IntArray


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.launches.report.count:
        return not_applicable(META, measures, thresholds, "runtime calls (CUDA API rows)")
    bursts = find_bursts(measures, thresholds)
    if not is_emptied(measures, judged, bursts, thresholds):
        message = "No step gives its cached memory back to the driver."
        return passed(META, measures, thresholds, message, judged=judged)
    mask = emptied_idle(measures, judged, thresholds)
    lost = idle_total(measures, mask)
    per_step = judged.per_step(lost)
    alloc = measures.allocator
    mine = judged.holds(alloc.window)
    frees = int(np.count_nonzero(mine & (alloc.kind == CallKind.DEVICE_FREE)))
    mallocs = int(np.count_nonzero(mine & (alloc.kind == CallKind.DEVICE_MALLOC)))
    evidence, count, place = _evidence(measures, judged, bursts)
    at = f" at {place}" if place else ""
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            "Cached memory is given back to the driver and taken again: "
            f"{format_count(frees / judged.count)} frees and {format_count(mallocs / judged.count)} allocations per "
            f"step leave the device idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}). This is what "
            f"torch.cuda.empty_cache() in the loop does{at}."
        ),
        observed={
            "bursts": len(bursts.start_ns),
            "frees_per_step": round(frees / judged.count, 2),
            "allocations_per_step": round(mallocs / judged.count, 2),
            "idle_per_step_ns": per_step,
            "steps": judged.count,
            "where": place,
        },
        evidence=evidence,
        evidence_count=count,
        fix=[
            f"Remove torch.cuda.empty_cache() from the training loop{at}.",
            "If it was meant against fragmentation, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True instead.",
        ],
        confidence=0.9,
    )
    quiet = f"Emptying the cache leaves the device idle only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def find_bursts(measures: Measures, thresholds: Thresholds) -> Bursts:
    """Find bursts of device frees that no failed allocation explains."""
    alloc = measures.allocator
    rows = np.flatnonzero(alloc.kind == CallKind.DEVICE_FREE)
    thread = measures.facts.call_columns(alloc.call)[2]
    mallocs = np.flatnonzero(alloc.kind == CallKind.DEVICE_MALLOC)
    found: list[IntArray] = []
    operators = measures.facts.slice_columns(measures.facts.slices_named(("aten::",), prefix=True))
    for one in np.unique(thread[rows]):
        mine = rows[thread[rows] == one]
        breaks = np.flatnonzero(alloc.start_ns[mine[1:]] - alloc.end_ns[mine[:-1]] > thresholds.burst_gap_ns) + 1
        tried = alloc.end_ns[mallocs[thread[mallocs] == one]]
        asked = alloc.start_ns[mallocs[thread[mallocs] == one]]
        for burst in np.split(mine, breaks):
            begin = alloc.start_ns[burst[0]]
            before = int(np.searchsorted(tried, begin, side="right")) - 1
            is_retry = before >= 0 and begin - tried[before] <= thresholds.retry_gap_ns
            after = int(np.searchsorted(asked, alloc.end_ns[burst[-1]]))
            # where a limit on the process refused it nothing was tried before, but the same operator asks again
            is_retry |= after < len(asked) and _in_one_operator(operators, int(one), begin, asked[after])
            if len(burst) >= thresholds.min_frees_in_burst and not is_retry:
                found.append(burst)
    found.sort(key=lambda burst: int(alloc.start_ns[burst[0]]))
    return Bursts(
        found,
        np.array([alloc.start_ns[b[0]] for b in found], dtype=np.int64),
        np.array([alloc.end_ns[b[-1]] for b in found], dtype=np.int64),
        np.array([alloc.window[b[0]] for b in found], dtype=np.int64),
        np.array([thread[b[0]] for b in found], dtype=np.int64),
    )


def _in_one_operator(
    operators: tuple[IntArray, IntArray, CodeArray], thread: int, begin: np.int64, end: np.int64
) -> bool:
    """Whether one operator of a thread was running from the one moment to the other."""
    start, stop, owner = operators
    return bool(np.any((owner == thread) & (start <= begin) & (stop >= end)))


def is_emptied(measures: Measures, judged: JudgedSteps, bursts: Bursts, thresholds: Thresholds) -> bool:
    """Whether bursts come in most judged steps and what they free is allocated again."""
    alloc = measures.allocator
    windows = bursts.window[(bursts.window >= 0)]
    windows = np.unique(windows[judged.is_judged[windows]]) if len(windows) else windows
    if not len(windows) or len(windows) < thresholds.min_share_of_steps * judged.count:
        return False
    freed = sum(len(burst) for burst in bursts.call)
    mallocs = alloc.start_ns[alloc.kind == CallKind.DEVICE_MALLOC]
    # counted from the first burst on; after the last one the recording may end before the memory is needed again
    again = int(np.count_nonzero(mallocs >= bursts.start_ns[0]))
    freed -= len(bursts.call[-1]) if len(bursts.call) > 1 else 0
    return again >= thresholds.min_share_allocated_again * freed


def emptied_calls(measures: Measures, thresholds: Thresholds) -> IntArray:
    """Waiting calls that belong to an emptied cache; empty where the cache is not emptied in the loop."""
    judged = judged_steps(measures)
    bursts = find_bursts(measures, thresholds)
    if judged is None or not is_emptied(measures, judged, bursts, thresholds):
        return np.zeros(0, dtype=np.int64)
    waits = measures.synchronisations
    thread = measures.facts.call_columns(waits.call)[2]
    mine = np.zeros(len(waits.call), dtype=np.bool_)
    for begin, end, one in zip(bursts.start_ns, bursts.end_ns, bursts.thread, strict=True):
        mine |= (thread == one) & (waits.end_ns >= begin - thresholds.burst_gap_ns) & (waits.start_ns < end)
    return waits.call[mine]


def emptied_idle(measures: Measures, judged: JudgedSteps, thresholds: Thresholds) -> BoolArray:
    """Idle pieces inside frees, allocations and waits of an emptied cache."""
    idle = measures.idle
    driver = idle.cause == CAUSE_CODE[Cause.ALLOCATOR]
    kinds = measures.facts.call_kinds(idle.call_row[driver])
    driver[driver] = among(kinds, (CallKind.DEVICE_FREE, CallKind.DEVICE_MALLOC))
    driver |= among(idle.call_row, emptied_calls(measures, thresholds))
    mask: BoolArray = judged_idle(measures, judged) & driver
    return mask


def _evidence(measures: Measures, judged: JudgedSteps, bursts: Bursts) -> tuple[list[Evidence], int, str | None]:
    rows = np.flatnonzero(judged.holds(bursts.window))
    places = [
        Evidence(
            start_ns=int(bursts.start_ns[at]),
            end_ns=int(bursts.end_ns[at]),
            thread=measures.facts.tid(int(bursts.thread[at])),
            what=f"{len(bursts.call[at])} device frees in a row",
            where=where(measures, int(bursts.thread[at]), int(bursts.start_ns[at])),
        )
        for at in (int(rows[i]) for i in longest((bursts.end_ns - bursts.start_ns)[rows]))
    ]
    return places, len(rows), places[0].where if places else None
