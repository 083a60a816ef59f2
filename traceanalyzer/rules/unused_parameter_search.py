"""DistributedDataParallel walks the autograd graph in every step, looking for parameters that were not used.

## Detects
Device idle time inside DistributedDataParallel's search for unused parameters.

## Why it matters
With `find_unused_parameters=True` the whole graph is traversed between forward and backward, on the thread that should
be launching the backward pass. Most models use all their parameters in every step and gain nothing from it.

## How it is measured
Idle time of the judged steps inside `torch.distributed.ddp.reducer::search_unused_parameters`.

## Does not apply when
The recording holds no DistributedDataParallel.

## How to fix
`find_unused_parameters=False`; where parameters really go unused in a fixed pattern, `static_graph=True`.

## Limits and false positives
Models whose unused parameters change from step to step need the search.

## References
PyTorch, `DistributedDataParallel`, parameter `find_unused_parameters`.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import inside
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable, passed
from traceanalyzer.rules.stalls import judge_stall

META = Meta(
    code="TA704",
    slug="unused-parameter-search",
    kind=FindingKind.FAULT,
    category="communication",
    fail_title="Every step searches for unused parameters",
    pass_title="No step searches for unused parameters",
    remedy=Remedy(
        settings=("DistributedDataParallel(find_unused_parameters=False)",),
        before="""
        model = DistributedDataParallel(model, device_ids=[local_rank], find_unused_parameters=True)
        """,
        after="""
        model = DistributedDataParallel(model, device_ids=[local_rank])
        # where parameters go unused in a fixed pattern: static_graph=True
        """,
    ),
)

_SEARCH = ("torch.distributed.ddp.reducer::search_unused_parameters",)
_WRAPPER = ("DistributedDataParallel.forward",)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    facts, idle = measures.facts, measures.idle
    searches = facts.slices_named(_SEARCH, prefix=True)
    if not len(searches):
        if not len(facts.slices_named(_WRAPPER)):
            return not_applicable(META, measures, thresholds, "DistributedDataParallel (its ranges)")
        message = "DistributedDataParallel does not search for unused parameters."
        return passed(META, measures, thresholds, message, judged=judged)
    mask = judged_idle(measures, judged) & inside(idle.start_ns, idle.thread, *facts.slice_columns(searches))
    fix = [
        "Set find_unused_parameters=False.",
        "If the same parameters go unused in every step, set static_graph=True instead.",
    ]
    during = "DistributedDataParallel searches the graph for unused parameters"
    return judge_stall(META, measures, thresholds, judged, mask, during, fix)
