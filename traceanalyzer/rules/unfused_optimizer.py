"""The optimizer launches many small kernels, one set per parameter.

## Detects
Optimizer steps with hundreds of kernels of their own, whose launching leaves the device idle.

## Why it matters
A parameter needs a handful of small kernels per update. For hundreds of parameters that is thousands of launches, while
`foreach` or fused optimizers update all of them with a few.

## How it is measured
Idle time caused by the host inside `Optimizer.step` ranges, where at least a hundred kernels per step launched there
belong to no multi-tensor or fused update.

## Does not apply when
The recording has no `Optimizer.step` ranges (torch.profiler writes them).

## How to fix
`fused=True` or `foreach=True` in the optimizer's constructor.

## Limits and false positives
A closure evaluated inside the optimizer step is counted as if it belonged to it. An optimizer that multiplies matrices
for every parameter (Muon, Shampoo, SOAP) has no fused form to switch on: it is not accused here, and TA201 says what
its launches cost.

## References
torch.optim, "Algorithms": for-loop, foreach and fused implementations.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import HOST_CAUSES, judged_idle, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.optimizer import optimizer_step
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable, passed
from traceanalyzer.rules.stalls import judge_stall
from traceanalyzer.units import format_count

META = Meta(
    code="TA604",
    slug="unfused-optimizer",
    kind=FindingKind.FAULT,
    category="compute",
    fail_title="The optimizer launches a kernel per parameter",
    pass_title="The optimizer's launches cost no device time",
    remedy=Remedy(
        settings=("torch.optim: fused=True or foreach=True",),
        before="""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        """,
        after="""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # foreach updates of a few hundred parameters launch 12 to 18 kernels; one per parameter launches hundreds
    min_kernels_per_step: int = 100
    # SGD and the Adam family multiply no matrices; Muon's Newton-Schulz iteration needs 15 products per parameter
    max_matrix_products_per_step: int = 10


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    step = optimizer_step(measures, judged)
    if step is None:
        return not_applicable(META, measures, thresholds, "Optimizer.step ranges (torch.profiler writes them)")
    idle, per_step = measures.idle, step.single_per_step
    observed: dict[str, Scalar] = {
        "optimizer": step.name,
        "single_kernels_per_step": round(per_step, 2),
        "matrix_products_per_step": round(step.matrix_per_step, 2),
    }
    if per_step < thresholds.min_kernels_per_step:
        message = f"An optimizer step launches {format_count(per_step)} kernels outside multi-tensor updates."
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    if step.matrix_per_step > thresholds.max_matrix_products_per_step:
        message = (
            f"{step.name} multiplies matrices for every parameter ({step.matrix_per_step:.0f} products per step), so "
            "it has no fused or multi-tensor form to switch on."
        )
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    mask = judged_idle(measures, judged) & idle.mask(*HOST_CAUSES)
    mask &= step.idle_inside(measures)
    fix = [
        "Construct the optimizer with fused=True (or foreach=True).",
        "If it is your own, use torch._foreach operations over the list of parameters.",
    ]
    during = f"the optimizer launches {per_step:.0f} single kernels"
    return judge_stall(META, measures, thresholds, judged, mask, during, fix, observed)
