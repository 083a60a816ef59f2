"""The main process loads the data itself, and the device waits for it.

## Detects
Device idle time in which the training loop makes its next batch in the main process (`num_workers=0`).

## Why it matters
Reading, decoding and augmenting a batch on the thread that also launches kernels puts the whole cost of the input
between two steps. Nothing overlaps: the device is idle for as long as the batch takes.

## How it is measured
Idle time inside the outermost `next` of a `_SingleProcessDataLoaderIter`, mean over the judged steps. An nsys
recording has no such ranges: there it is the idle time between two `step` ranges, when the recording shows that the
process had no worker processes. The likely saving is that idle time; the low end gives back what worker processes
take from the launching thread when they compete for cores.

## Does not apply when
The recording has neither loader ranges nor step ranges. Loading inside validation belongs to TA801.

## How to fix
Set `num_workers` (Ultralytics: `workers`) to at least the number given: batch cost divided by the step time without
loading, rounded up. Leave a quarter to a half of the cores to everything else.

## Limits and false positives
A loader that keeps up is quiet whatever `num_workers` is. Between two nsys step ranges other work of the loop
(callbacks, logging) cannot be told from loading.

## References
torch.utils.data, "Single- and Multi-process Data Loading".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.batch_cost import batch_cost, workers_needed
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.settings import setting
from traceanalyzer.rules.supply import MAIN_PROCESS, LoaderWait, has_loader, loader_wait
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA101",
    slug="loader-in-main-process",
    kind=FindingKind.FAULT,
    category="input",
    fail_title="The main process loads the data and the device waits for it",
    pass_title="No time is lost to loading in the main process",
    remedy=Remedy(
        settings=("DataLoader(num_workers=…)", "Ultralytics: workers"),
        before="""
        loader = DataLoader(dataset, 16)
        # Ultralytics: model.train(data="data.yaml", workers=0)
        """,
        after="""
        loader = DataLoader(dataset, 16, num_workers=$workers_needed, pin_memory=True, persistent_workers=True)
        # Ultralytics: model.train(data="data.yaml", workers=$workers_needed)
        """,
        yolo=("--workers=$workers_needed",),
        stand_ins={"workers_needed": 8},
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # upper end of how much slower the launching thread ran beside loader workers on 16 cores (1.09 to 1.4 times)
    worker_contention_share: float = 0.4
    # half to three quarters of the cores as workers is common advice; beyond that workers fight the main process
    core_share_for_workers: float = 0.75


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not has_loader(measures):
        return not_applicable(META, measures, thresholds, "loader ranges (DataLoader `next`) or step ranges")
    wait = loader_wait(measures, judged)
    lost = idle_total(measures, wait.main)
    if not lost:
        return passed(META, measures, thresholds, "The main process loaded no batch while the device idled.")
    batch_ns = _batch_ns(measures, judged, wait)
    rest_ns = max(judged.mean_step_ns - lost / judged.count, 1.0)
    workers = workers_needed(batch_ns, rest_ns)
    low = max(0.0, lost - thresholds.worker_contention_share * rest_ns * judged.count)
    evidence, count = idle_evidence(measures, wait.main, lambda _: "device idle while the main process makes a batch")
    per_step = judged.per_step(lost)
    cores = setting(measures, "cpu_cores")
    fix = [
        f"Set num_workers to at least {workers}: a batch takes {format_ns(batch_ns)} and the rest of the step "
        f"{format_ns(rest_ns)}."
    ]
    if cores is not None and workers > thresholds.core_share_for_workers * cores:
        fix.append(
            f"That is more than {thresholds.core_share_for_workers:.0%} of the {cores} cores: make each batch cheaper "
            "as well (decode smaller images, cache decoded data, fewer augmentations)."
        )
    fix.append("Then add pin_memory=True and persistent_workers=True, so that copies and epoch starts stay cheap.")
    cost = batch_cost(measures, rest_ns)
    split = f" Its time goes to {cost.stages}." if cost.stages else ""
    place = "between two step ranges, where" if wait.is_between_steps else "while"
    seen = " The recording shows no loader worker." if wait.is_between_steps else ""
    case = Case(
        saving=bound(judged, likely_ns=lost, low_ns=low, high_ns=lost),
        message=(
            f"The device is idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) {place} the main process makes the next "
            f"batch. A batch takes {format_ns(batch_ns)}; about {workers} loader "
            f"worker{'s' if workers > 1 else ''} would keep up.{seen}{split}"
        ),
        observed={
            "input_wait_per_step_ns": per_step,
            "batch_ns": round(batch_ns),
            "step_without_loading_ns": round(rest_ns),
            "workers_needed": workers,
            "steps": judged.count,
            **{name: value for name, value in cost.observed.items() if name.endswith(("_per_batch_ns", "_stage"))},
        },
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        # between step ranges a callback or a logger could hide in the same time
        confidence=0.7 if wait.is_between_steps else 0.95,
    )
    quiet = f"The main process loads the data, but the device waits only {format_ns(per_step)} per step for it."
    return decide(META, measures, thresholds, judged, case, quiet)


def _batch_ns(measures: Measures, judged: JudgedSteps, wait: LoaderWait) -> float:
    """Median time the main process takes for one batch; where no range shows it, the idle time per step."""
    supply = measures.input
    rows = judged.holds(supply.window) & (supply.in_validation == 0) & (supply.in_main_process == MAIN_PROCESS)
    if np.any(rows):
        return float(np.median((supply.end_ns - supply.start_ns)[rows]))
    return idle_total(measures, wait.main) / judged.count
