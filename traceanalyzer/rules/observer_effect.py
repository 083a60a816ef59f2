"""The profiler itself slowed the step by more than a quarter.

## Detects
A recorded step much longer than the steps the recorder timed without a profiler.

## Why it matters
A profiler costs host time at every operator and call. A step bound by the host is stretched most, so idle time and
savings read from the recording are too large.

## How it is measured
Mean recorded step divided by the mean step without a profiler, per phase where phases were timed.

## Does not apply when
Nobody timed steps without the profiler: `traceanalyzer record` does.

## How to fix
Lighter settings: no stacks, no shapes, no memory; fewer steps; nsys with CUDA and NVTX only. Judge the result of a fix
without a profiler.

## Limits and false positives
Both means come from one run; whole runs of one configuration differ by several percent.

## References
torch.profiler, options `with_stack`, `record_shapes`, `profile_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import informative, not_applicable, passed
from traceanalyzer.units import format_ns

META = Meta(
    code="TA902",
    slug="observer-effect",
    kind=FindingKind.NOTE,
    category="recording",
    fail_title="Profiling slowed the step",
    pass_title="Profiling hardly slowed the step",
    remedy=Remedy(
        settings=("torch.profiler.profile(with_stack=…, record_shapes=…, profile_memory=…)",),
        before="""
        profiler = torch.profiler.profile(with_stack=True, record_shapes=True, profile_memory=True)
        """,
        after="""
        profiler = torch.profiler.profile()
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # below a quarter, whole runs of one configuration differ as much (17 ms of 60 ms steps)
    max_inflation: float = 1.25


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    report = measures.observer.report
    if report.inflation is None:
        missing = "step times without the profiler (`traceanalyzer record` measures them)"
        return not_applicable(META, measures, thresholds, missing)
    observed: dict[str, Scalar] = {
        "profiled_step_ns": report.profiled_step_ns,
        "unprofiled_step_ns": report.unprofiled_step_ns,
        "inflation": round(report.inflation, 4),
    }
    observed |= {f"inflation_{phase}": round(value, 4) for phase, value in sorted(report.inflation_by_phase.items())}
    message = (
        f"The recorded step takes {format_ns(report.profiled_step_ns)}, without the profiler "
        f"{format_ns(report.unprofiled_step_ns)}: {report.inflation:.2f} times as long."
    )
    if report.inflation <= thresholds.max_inflation:
        return passed(META, measures, thresholds, message, observed=observed)
    message += " Idle time caused by the host is overstated; shares of the step are safer than times."
    fix = [
        "Record without stacks, shapes and memory (with_stack, record_shapes, profile_memory = False).",
        "Compare step times before and after a fix without a profiler.",
    ]
    return informative(META, measures, thresholds, message, observed=observed, fix=fix)
