"""The loop asks the device for a value and so stops the host from running ahead.

## Detects
Calls inside a step in which the host waits for the device (`.item()`, `nonzero`, `.cpu()`, printing a loss), where
the device later waits for the host because of it.

## Why it matters
A host that never waits keeps a queue of launched kernels in front of the device. Every wait empties that queue, and
the device idles while the host fills it again.

## How it is measured
Each wait of length w is taken out: everything after it is issued w earlier. What that wins is the idle time caused by
the host that follows, at most w, and only up to the next wait that has to stay. A wait during which the device is busy
and stays ahead costs nothing, however long it is. The low end is the idle time inside the waiting calls alone.

## Does not apply when
The recording holds no runtime calls. Waits that complete host-to-device copies belong to TA301 and TA302, those of
anomaly detection to TA207, those of `empty_cache()` to TA402, device-wide ones to TA502. The gradient scaler's own read
of its overflow flag is part of mixed precision in float16; what it costs is stated but is no fault of the loop.

## How to fix
Keep values on the device: sum losses as tensors and read them every N steps; replace `nonzero` and boolean indexing by
`where` and masks; format or log after a copy that was started earlier with `non_blocking=True`.

## Limits and false positives
Where the value decides what the loop does next, the wait cannot simply go. The scaler's wait is recognised as the first
one after its unscaling kernels: a value read between `scaler.unscale_()` and `scaler.step()` is taken for it, and the
scaler's own then for the loop's.

## References
PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy, floor_ns
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.waits import callers, loop_waits, scaler_cost_ns, wait_evidence, waiting_idle_ns
from traceanalyzer.units import format_count, format_ns, format_share

META = Meta(
    code="TA501",
    slug="sync-in-step",
    kind=FindingKind.FAULT,
    category="sync",
    fail_title="The loop waits for values of the device inside the step",
    pass_title="No wait inside the step costs time",
    remedy=Remedy(
        settings=("Tensor.item, Tensor.cpu, print",),
        before="""
        total = 0.0
        for number, batch in enumerate(loader):
            loss = train_step(batch)
            total += loss.item()  # waits for the device in every step
            print(number, total)
        """,
        after="""
        total = torch.zeros((), device="cuda")
        for number, batch in enumerate(loader):
            loss = train_step(batch)
            total += loss.detach()  # stays on the device
            if number % 50 == 49:
                print(number, total.item())
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # places listed by name in the finding
    listed_places: int = 5


# what people write that ends in these operators
_WRITTEN = {
    "aten::is_nonzero": "a tensor as a condition, or printed",
    "aten::item": ".item(), float() or printing",
    "aten::_local_scalar_dense": ".item(), float() or printing",
    "aten::nonzero": "nonzero or boolean indexing",
    "aten::masked_select": "boolean indexing",
    "aten::to": ".cpu() or .to()",
    "aten::_to_copy": ".cpu() or .to()",
}


def _in_python(operator: str) -> str:
    """Name an operator by what the user wrote; without a stack nothing else leads to the line."""
    written = _WRITTEN.get(operator)
    return f"{operator} ({written})" if written else operator


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.launches.report.count:
        return not_applicable(META, measures, thresholds, "runtime calls (CUDA API rows)")
    waits = loop_waits(measures, judged)
    waits = waits.take(~waits.is_device_wide)
    per_step_waits = len(waits.call) / judged.count
    scaler = judged.per_step(scaler_cost_ns(measures, judged))
    aside = (
        f" The gradient scaler's own read of its overflow flag costs {format_ns(scaler)} per step besides; bfloat16 "
        "needs no scaler, and a fused optimizer takes the flag on the device."
        if scaler >= floor_ns(judged.mean_step_ns)
        else ""
    )
    if not len(waits.call):
        message = f"The loop never waits for the device inside a step.{aside}"
        return passed(META, measures, thresholds, message, judged=judged, observed={"scaler_per_step_ns": scaler})
    won, certain = int(waits.won_ns.sum()), waiting_idle_ns(measures, judged, waits)
    per_step = judged.per_step(won)
    listed = [c for c in callers(measures, waits) if c.won_ns > 0][: int(thresholds.listed_places)]
    observed: dict[str, Scalar] = {
        "waits_per_step": round(per_step_waits, 2),
        "waited_per_step_ns": judged.per_step(int((waits.end_ns - waits.start_ns).sum())),
        "idle_inside_waits_per_step_ns": judged.per_step(certain),
        "won_per_step_ns": per_step,
        "scaler_per_step_ns": scaler,
        "steps": judged.count,
    }
    for number, caller in enumerate(listed, start=1):
        observed[f"place_{number}"] = f"{caller.operator} at {caller.where}" if caller.where else caller.operator
        observed[f"place_{number}_waits_per_step"] = round(caller.count / judged.count, 2)
        observed[f"place_{number}_won_per_step_ns"] = judged.per_step(caller.won_ns)
    names = "; ".join(
        f"{c.operator}{f' at {c.where}' if c.where else ''}: {format_count(c.count / judged.count)} per step, "
        f"{format_ns(judged.per_step(c.won_ns))}"
        for c in listed
    )
    evidence, count = wait_evidence(measures, waits)
    fix = [
        f"Do not read the value at {c.where or _in_python(c.operator)} in every step: keep it on the device, read it "
        "every N steps."
        for c in listed[:3]
    ]
    fix.append("Replace nonzero, boolean indexing and .cpu() by operations whose result stays on the device.")
    case = Case(
        saving=bound(judged, likely_ns=won, low_ns=min(certain, won)),
        message=(
            f"The host waits for the device {format_count(per_step_waits)} times per step. Without these waits it "
            f"would run ahead and the device would idle {format_ns(per_step)} less of the "
            f"{format_ns(judged.mean_step_ns)} step ({format_share(per_step, judged.mean_step_ns)}). {names}.{aside}"
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.7,
    )
    quiet = (
        f"The host waits {format_count(per_step_waits)} times per step, but that costs only "
        f"{format_ns(per_step)}.{aside}"
    )
    return decide(META, measures, thresholds, judged, case, quiet)
