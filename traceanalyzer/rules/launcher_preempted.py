"""The thread that launches kernels loses its core while the device waits for it.

## Detects
Device idle time in which the launching thread was able to run but had no core.

## Why it matters
When loader workers, intra-operator threads and other jobs outnumber the cores, the operating system takes the core away
from the one thread the device depends on.

## How it is measured
The overlap of idle time with stretches in which the thread that should have launched was scheduled out while runnable
(nsys, process-tree context switches). Idle time in which that thread waited for data or for the device is left out.

## Does not apply when
The recording holds no scheduling events.

## How to fix
Fewer loader workers than cores (half to three quarters of them), `OMP_NUM_THREADS` and `torch.set_num_threads` bounded,
`cv2.setNumThreads(0)` in workers, no second job on the same cores; or pin the launching thread to a core.

## Limits and false positives
Without the thread's state in the recording a thread that slept by itself looks alike; the recording then says so.

## References
NVIDIA Nsight Systems user guide, `--cpuctxsw=process-tree`; PyTorch, "CPU threading".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray, IntArray
from traceanalyzer.replay.bounds import HOST_CAUSES, JudgedSteps, bound, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable
from traceanalyzer.rules.settings import setting
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA206",
    slug="launcher-preempted",
    kind=FindingKind.FAULT,
    category="launch",
    fail_title="The launching thread loses its core",
    pass_title="The launching thread keeps its core",
    remedy=Remedy(
        settings=("DataLoader(num_workers=…)", "torch.set_num_threads", "cv2.setNumThreads"),
        before="""
        loader = DataLoader(dataset, batch_size=16, num_workers=os.cpu_count())
        """,
        after="""
        def on_one_thread(worker):
            cv2.setNumThreads(0)


        torch.set_num_threads(4)
        loader = DataLoader(dataset, batch_size=16, num_workers=os.cpu_count() // 2, worker_init_fn=on_one_thread)
        """,
    ),
)

# waiting for the device or for data is a sleep, whatever the scheduler says
_RUNNING = tuple(c for c in (*HOST_CAUSES, Cause.PREEMPTED, Cause.UNKNOWN) if c is not Cause.SYNC_WAIT)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.facts.has_schedules:
        return not_applicable(META, measures, thresholds, "scheduling events (nsys --cpuctxsw=process-tree)")
    covered = _off_core(measures, judged)
    lost = int(covered.sum())
    per_step = judged.per_step(lost)
    mask: BoolArray = covered > 0
    cores, workers = setting(measures, "cpu_cores"), setting(measures, "workers")
    evidence, count = idle_evidence(measures, mask, lambda _: "device idle while the launching thread has no core")
    observed: dict[str, Scalar] = {
        "idle_per_step_ns": per_step,
        "affected_steps": len(np.unique(measures.idle.window[mask])),
        "steps": judged.count,
        "cpu_cores": cores,
        "workers": workers,
    }
    known = f" The machine has {cores} cores and the loader {workers} workers." if cores and workers else ""
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"For {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) the device is idle while the thread that launches its "
            f"work was ready to run but had no core.{known}"
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=[
            "Leave the launching thread a core: at most three quarters of the cores as loader workers"
            + (f" (of {cores})." if cores else "."),
            "Bound the threads of workers: OMP_NUM_THREADS=1, torch.set_num_threads(1), cv2.setNumThreads(0).",
            "Keep other jobs off these cores, or pin the training process (taskset, numactl).",
        ],
        confidence=0.8,
    )
    quiet = f"The launching thread was off its core for {format_ns(per_step)} of idle time per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def _off_core(measures: Measures, judged: JudgedSteps) -> IntArray:
    """Part of each idle piece in which the thread that decided it was scheduled out, ns."""
    idle = measures.idle
    mine = judged_idle(measures, judged) & idle.mask(*_RUNNING) & (idle.thread >= 0)
    start, end, thread = measures.facts.scheduled_out()
    covered = np.zeros(len(mine), dtype=np.int64)
    for one in np.unique(idle.thread[mine]).tolist():
        rows = np.flatnonzero(mine & (idle.thread == one))
        out_start, out_end = start[thread == one], end[thread == one]
        if not len(out_start):
            continue
        # stretches of one thread follow each other, so their total before a moment is a running sum
        before = np.concatenate([[0], np.cumsum(out_end - out_start)])

        def until(
            moments: IntArray, starts: IntArray = out_start, ends: IntArray = out_end, sums: IntArray = before
        ) -> IntArray:
            at = np.searchsorted(starts, moments, side="right")
            last = np.maximum(at - 1, 0)
            within = np.minimum(moments, ends[last]) - starts[last]
            return np.where(at > 0, sums[last] + within, 0)

        covered[rows] = until(idle.end_ns[rows]) - until(idle.start_ns[rows])
    return covered
