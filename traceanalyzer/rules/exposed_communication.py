"""The device communicates while it computes nothing.

## Detects
Time of collective kernels (NCCL, RCCL and the like) during which no compute kernel runs on the same device.

## Why it matters
Gradients can travel while the backward pass still computes. What is not hidden lengthens every step of every rank.

## How it is measured
Union of collective kernels less compute on the same device, mean over the judged steps: the upper limit of what overlap
could win. A collective that waits for a slower rank counts too: TA702 tells that part.

## Does not apply when
The recording holds no collectives.

## How to fix
Let DistributedDataParallel overlap (no `no_sync` at the last micro-batch, gradients as bucket views), smaller first
buckets (`bucket_cap_mb`), `static_graph=True`, gradient compression or accumulation, faster links.

## Limits and false positives
How much can be hidden depends on how much there is to compute: the saving is an upper limit. Forward all-gathers of
sharded training have less to hide behind.

## References
Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import ceiling, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.collectives import collectives
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA701",
    slug="exposed-communication",
    kind=FindingKind.LIMITER,
    category="communication",
    fail_title="Communication is not hidden behind compute",
    pass_title="Communication is hidden behind compute",
    remedy=Remedy(
        settings=("DistributedDataParallel(bucket_cap_mb=…, static_graph=True)",),
        before="""
        model = DistributedDataParallel(model, device_ids=[local_rank])
        """,
        after="""
        model = DistributedDataParallel(
            model, device_ids=[local_rank], bucket_cap_mb=10, gradient_as_bucket_view=True, static_graph=True
        )
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
    if not len(measures.communication.activity):
        return not_applicable(META, measures, thresholds, "collective kernels (a run on several GPUs)")
    found = collectives(measures, judged)
    time_ns, exposed = int((found.end_ns - found.start_ns).sum()), found.exposed_in_steps_ns
    by_name: Counter[str] = Counter()
    for name, ns in zip(found.name, found.exposed_ns.tolist(), strict=True):
        by_name[name.split("(")[0]] += ns
    per_step = judged.per_step(exposed)
    observed: dict[str, Scalar] = {
        "communication_per_step_ns": judged.per_step(time_ns),
        "exposed_per_step_ns": per_step,
        "collectives_per_step": round(len(found.row) / judged.count, 2),
        "world_size": measures.world_size,
        "steps": judged.count,
    }
    observed |= {f"{name}_exposed_ns": ns for name, ns in by_name.most_common(4)}
    evidence = [
        Evidence(
            start_ns=int(found.start_ns[at]),
            end_ns=int(found.end_ns[at]),
            stream=measures.facts.stream(int(found.activity[at])),
            what=f"{found.name[at].split('(')[0]}, {format_ns(int(found.exposed_ns[at]))} of it exposed",
        )
        for at in longest(found.exposed_ns)
    ]
    named = ", ".join(f"{name} {format_ns(judged.per_step(ns))}" for name, ns in by_name.most_common(2))
    case = Case(
        saving=ceiling(judged, high_ns=exposed),
        message=(
            f"Of {format_ns(judged.per_step(time_ns))} of collectives per step {format_ns(per_step)} run while the "
            f"device computes nothing: {format_share(per_step, judged.mean_step_ns)} of the "
            f"{format_ns(judged.mean_step_ns)} step ({named})."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=len(found.row),
        fix=[
            "Overlap the gradients' reduction with the backward pass: DistributedDataParallel does, unless no_sync, "
            "find_unused_parameters or a wrapper prevents it.",
            "Tune bucket_cap_mb (smaller buckets start earlier, larger ones use the links better); static_graph=True.",
            "Communicate less: accumulate gradients, or compress them (bf16 or PowerSGD communication hook).",
        ],
        confidence=0.8,
    )
    quiet = f"Only {format_ns(per_step)} of communication per step is not hidden behind compute."
    return decide(META, measures, thresholds, judged, case, quiet)
