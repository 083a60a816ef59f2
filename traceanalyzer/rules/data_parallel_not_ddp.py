"""One process drives several GPUs and copies the model to all of them in every step.

## Detects
`torch.nn.DataParallel`: replicating the module, scattering the batch and gathering the outputs in every step.

## Why it matters
One Python thread (or one interpreter lock) launches the work of all devices, parameters are copied in every step and
the first device holds and reduces everything. Processes of their own scale, this does not.

## How it is measured
Idle time of the judged device while the host replicates, scatters or gathers (`Broadcast`, `Scatter`, `Gather` and
their backward forms), mean over the judged steps. The upper limit is all idle time inside `DataParallel.forward`.

## Does not apply when
The recording holds no host ranges.

## How to fix
`torch.nn.parallel.DistributedDataParallel` with one process per GPU (`torchrun --nproc-per-node=N`).

## Limits and false positives
Functions of one's own that carry these names would be counted.

## References
PyTorch, "Getting Started with Distributed Data Parallel": comparison between DataParallel and DistributedDataParallel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import inside
from traceanalyzer.replay.bounds import bound, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA703",
    slug="data-parallel-not-ddp",
    kind=FindingKind.FAULT,
    category="communication",
    fail_title="The model is copied to every GPU in every step (DataParallel)",
    pass_title="The model is not copied to other GPUs in the step",
    remedy=Remedy(
        settings=("DistributedDataParallel", "torchrun --nproc-per-node=N"),
        before="""
        model = torch.nn.DataParallel(model)
        """,
        after="""
        # one process per device: torchrun --nproc-per-node=N train.py
        torch.distributed.init_process_group("nccl")
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])
        """,
    ),
)

_WRAPPER = ("DataParallel.forward",)
_MOVES = (
    "Broadcast",
    "BroadcastBackward",
    "ReduceAddCoalesced",
    "Scatter",
    "ScatterBackward",
    "Gather",
    "GatherBackward",
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.facts.has_operators:
        return not_applicable(META, measures, thresholds, "operators (record with torch.profiler, CPU activities)")
    facts, idle = measures.facts, measures.idle
    wrapper, moves = facts.slices_named(_WRAPPER), facts.slices_named(_MOVES)
    if not len(wrapper):
        return passed(META, measures, thresholds, "No DataParallel in the recording.", judged=judged)
    base = judged_idle(measures, judged)
    moving = base & inside(idle.start_ns, idle.thread, *facts.slice_columns(moves))
    within = base & (moving | inside(idle.start_ns, idle.thread, *facts.slice_columns(wrapper)))
    lost, most = idle_total(measures, moving), idle_total(measures, within)
    devices = len(np.unique(measures.kernels.device))
    observed: dict[str, Scalar] = {
        "moving_idle_per_step_ns": judged.per_step(lost),
        "forward_idle_per_step_ns": judged.per_step(most),
        "devices": devices,
        "steps": judged.count,
    }
    evidence, count = idle_evidence(measures, moving if np.any(moving) else within)
    case = Case(
        saving=bound(judged, likely_ns=lost, high_ns=most),
        message=(
            f"DataParallel drives {devices} device{'s' if devices != 1 else ''} from one process. The first is idle "
            f"{format_ns(judged.per_step(lost))} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(judged.per_step(lost), judged.mean_step_ns)}) while the model is copied and batches are "
            f"scattered and gathered, and {format_ns(judged.per_step(most))} in all of its forward."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=[
            "Use DistributedDataParallel with one process per GPU (torchrun --nproc-per-node=N train.py).",
            "On one GPU leave the wrapper out.",
        ],
        confidence=0.9,
    )
    quiet = f"DataParallel leaves the device idle only {format_ns(judged.per_step(lost))} per step."
    return decide(META, measures, thresholds, judged, case, quiet)
