"""Hand-written training loops whose idle time is known to the nanosecond.

Times are microseconds. Every loop has five steps of 10,000 µs, so all of them are steady, a total over them divides
by five, and the floor is 100 µs per step.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from tests.builders import TraceBuilder
from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding
from traceanalyzer.rules.run import check_all

STEPS = 5
LENGTH = 10_000
US = 1_000
FLOOR_US = 100


def loop(step: Callable[[TraceBuilder, int, float], None], **facts: object) -> Measures:
    """Build a loop.

    Args:
        step: Adds the content of one step, given its number and its start in microseconds.
        **facts: Passed on as the recorder's facts.
    """
    builder = TraceBuilder(metadata={"loader_workers": str(facts.pop("workers"))} if "workers" in facts else {})
    for number in range(STEPS):
        start = number * LENGTH
        builder.step(number, start, start + LENGTH)
        step(builder, number, start)
    return Measures(builder.build(), recorder=facts)


def work(builder: TraceBuilder, launch: float, start: float, end: float) -> None:
    """Add a convolution whose kernel keeps the device busy from start to end, launched just after ``launch``."""
    builder.operator("aten::conv2d", launch, launch + 4)
    builder.kernel("gemm", start, end, launch=(launch + 1, launch + 3))


def busy_step(builder: TraceBuilder, _number: int, at: float) -> None:
    """A healthy step: the host launches at once and the device never waits."""
    work(builder, at, at + 5, at + LENGTH + 5)


def launch_bound(builder: TraceBuilder, start: float, end: float) -> None:
    """Add a 20 µs kernel every 100 µs, each launched when the one before has long finished."""
    at = start
    while at < end:
        builder.operator("aten::add", at, at + 16)
        builder.kernel("add", at + 20, at + 40, launch=(at + 10, at + 15))
        at += 100


def healthy() -> Measures:
    """A loop in which the device is busy throughout."""
    return loop(busy_step)


def empty() -> Measures:
    """A recording with nothing in it."""
    return Measures(TraceBuilder().build())


def judge(rule: ModuleType, measures: Measures, **overrides: float) -> Finding:
    """Run one rule, with some thresholds replaced."""
    code = rule.META.code
    return check_all(measures, select=[code], overrides={code: overrides})[0]


def likely_us(finding: Finding) -> float | None:
    """Likely saving in microseconds."""
    likely = finding.saving_per_step_ns.likely
    return None if likely is None else likely / US
