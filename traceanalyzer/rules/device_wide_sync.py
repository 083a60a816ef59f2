"""The loop waits for the whole device in steady steps.

## Detects
`cudaDeviceSynchronize` (`torch.cuda.synchronize()`) inside steps, where the device later waits for the host because of
it.

## Why it matters
It waits for every stream, copies and collectives included, and empties the queue of launched kernels completely.

## How it is measured
As TA501, for device-wide waits.

## Does not apply when
The recording holds no runtime calls. Waits that belong to an emptied cache are counted under TA402.

## How to fix
Remove `torch.cuda.synchronize()` from the loop; time with CUDA events, order streams with events.

## Limits and false positives
A profiler waits for the device before it stops: a device-wide wait after which nothing is launched any more is left
out. Benchmark timers that synchronise inside the loop are counted: they are part of it.

## References
torch.cuda.synchronize; torch.cuda.Event.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.waits import callers, loop_waits, wait_evidence, waiting_idle_ns
from traceanalyzer.units import format_count, format_ns, format_share

META = Meta(
    code="TA502",
    slug="device-wide-sync",
    kind=FindingKind.FAULT,
    category="sync",
    fail_title="The loop waits for the whole device",
    pass_title="No wait for the whole device costs time",
    remedy=Remedy(
        settings=("torch.cuda.synchronize",),
        before="""
        started = time.perf_counter()
        train_step(batch)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        """,
        after="""
        started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        train_step(batch)
        ended.record()
        # some steps later, when the event has long passed: milliseconds = started.elapsed_time(ended)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.launches.report.count:
        return not_applicable(META, measures, thresholds, "runtime calls (CUDA API rows)")
    waits = loop_waits(measures, judged)
    waits = waits.take(waits.is_device_wide)
    if not len(waits.call):
        return passed(META, measures, thresholds, "No step waits for the whole device.", judged=judged)
    won, certain = int(waits.won_ns.sum()), waiting_idle_ns(measures, judged, waits)
    per_step, count = judged.per_step(won), len(waits.call) / judged.count
    place = next((c.where for c in callers(measures, waits) if c.where), None)
    evidence, places = wait_evidence(measures, waits)
    at = f" at {place}" if place else ""
    case = Case(
        saving=bound(judged, likely_ns=won, low_ns=min(certain, won)),
        message=(
            f"The host waits for the whole device {format_count(count)} times per step{at}. Without that it would run "
            f"ahead and the device would idle {format_ns(per_step)} less of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)})."
        ),
        observed={
            "waits_per_step": round(count, 2),
            "waited_per_step_ns": judged.per_step(int((waits.end_ns - waits.start_ns).sum())),
            "won_per_step_ns": per_step,
            "steps": judged.count,
            "where": place,
        },
        evidence=evidence,
        evidence_count=places,
        fix=[
            f"Remove torch.cuda.synchronize() from the loop{at}.",
            "Measure times with torch.cuda.Event(enable_timing=True), order streams with wait_stream or wait_event.",
        ],
        confidence=0.8,
    )
    quiet = (
        f"The host waits for the whole device {format_count(count)} times per step, "
        f"which costs only {format_ns(per_step)}."
    )
    return decide(META, measures, thresholds, judged, case, quiet)
