"""Python's garbage collector pauses the thread that launches kernels.

## Detects
Device idle time inside garbage collections on the launching thread.

## Why it matters
A full collection walks every container object. With a model, its optimizer and a framework loaded that takes tens of
milliseconds, at a moment nobody chose.

## How it is measured
Idle time of cause `garbage_collection` in the judged steps.

## Does not apply when
The recording holds no collections: `traceanalyzer record` notes them, a plain profiler does not.

## How to fix
`gc.collect(); gc.freeze()` once after setup, then `gc.disable()` and a collection every few hundred steps.

## Limits and false positives
Collections on other threads also stop the launching thread, through the interpreter lock, and are not seen.

## References
Python documentation, module `gc`: `freeze`, `disable`, `set_threshold`.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import SliceKind
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable
from traceanalyzer.rules.stalls import judge_stall

META = Meta(
    code="TA205",
    slug="garbage-collection-pauses",
    kind=FindingKind.FAULT,
    category="launch",
    fail_title="Garbage collection pauses the launching thread",
    pass_title="Garbage collection costs no device time",
    remedy=Remedy(
        settings=("gc.freeze(), gc.disable()",),
        before="""
        for number, batch in enumerate(loader):
            train_step(batch)
        """,
        after="""
        gc.collect()
        gc.freeze()  # what exists after setup is not looked at again
        gc.disable()
        for number, batch in enumerate(loader):
            train_step(batch)
            if number % 500 == 499:
                gc.collect()
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
    if not measures.facts.has_slices(SliceKind.GARBAGE_COLLECTION):
        return not_applicable(META, measures, thresholds, "garbage collections (`traceanalyzer record` notes them)")
    mask = judged_idle(measures, judged) & (measures.idle.cause == CAUSE_CODE[Cause.GARBAGE_COLLECTION])
    fix = [
        "After setup call gc.collect() and gc.freeze(), so that later collections skip the model and the libraries.",
        "Or gc.disable() and collect every few hundred steps, for instance between epochs.",
    ]
    return judge_stall(META, measures, thresholds, judged, mask, "Python collects garbage", fix)
