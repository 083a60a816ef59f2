"""An operator spends far longer than usual choosing how to run, because it meets a shape for the first time.

## Detects
Device idle time in which a convolution, matrix product, attention or compiled operator is busy on the host for at
least 1 ms and ten times its usual time before it launches anything.

## Why it matters
cuDNN heuristics and benchmarks, cuBLAS and compilers work once per input shape. A model that meets new shapes all the
time pays again and again, and the device waits each time.

## How it is measured
Idle time of cause `plan_search`, mean over steady and episodic steps together, with the cost of one occurrence beside
it. A step whose input copies are smaller than the others' is recognised as a smaller batch.

## Does not apply when
The recording holds no operators. Plan search inside validation belongs to TA801.

## How to fix
Keep shapes fixed: `multi_scale=False` or a few fixed sizes (bucketing), `drop_last=True` or padding for the epoch's
last batch, dynamic=True or marked dimensions for compiled code; `torch.backends.cudnn.benchmark=False` where shapes
must vary. Run every shape once before training.

## Limits and false positives
The first step of any recording may still be warming up. The same stretch can hold a lazy library load; the
recording does not always tell.

## References
PyTorch, `torch.backends.cudnn.benchmark`; cuDNN developer guide, heuristics modes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray, CopyDirection
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total, judged_idle, judged_steps
from traceanalyzer.results.finding import Episode, Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA202",
    slug="plan-search",
    kind=FindingKind.FAULT,
    category="launch",
    fail_title="Operators search for a plan for new shapes while the device waits",
    pass_title="No operator searches for plans in the loop",
    remedy=Remedy(
        settings=("torch.backends.cudnn.benchmark", "DataLoader(drop_last=True)", "Ultralytics: multi_scale, rect"),
        before="""
        torch.backends.cudnn.benchmark = True  # searches again for every new shape
        loader = DataLoader(dataset, batch_size=16)  # the last batch of an epoch is smaller
        # Ultralytics: model.train(data="data.yaml", multi_scale=0.5)
        """,
        after="""
        torch.backends.cudnn.benchmark = True
        loader = DataLoader(dataset, batch_size=16, drop_last=True)  # one shape only
        # Ultralytics: model.train(data="data.yaml", multi_scale=0.0)
        # where shapes must vary: torch.backends.cudnn.benchmark = False
        """,
        yolo=("--set=multi_scale=0",),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # a batch of 32 after batches of 48 copies two thirds; label sizes alone vary by a few percent
    smaller_batch_share: float = 0.9
    # operators listed by name in the finding
    listed_operators: int = 5


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures, with_episodes=True)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.facts.has_operators:
        return not_applicable(META, measures, thresholds, "operators (record with torch.profiler, CPU activities)")
    idle = measures.idle
    mask = judged_idle(measures, judged) & (idle.cause == CAUSE_CODE[Cause.PLAN_SEARCH])
    lost = idle_total(measures, mask)
    if not lost:
        return passed(META, measures, thresholds, "No operator stalled the device choosing a plan.", judged=judged)
    windows = np.unique(idle.window[mask])
    by_operator, shapes = _operators(measures, mask)
    smaller = _smaller_batches(measures, judged, thresholds.smaller_batch_share)
    only_smaller = bool(smaller) and set(windows.tolist()) <= smaller
    per_step, per_time = judged.per_step(lost), round(lost / len(windows))
    listed = by_operator.most_common(int(thresholds.listed_operators))
    observed: dict[str, Scalar] = {
        "plan_search_per_step_ns": per_step,
        "steps_with_plan_search": len(windows),
        "steps": judged.count,
        "only_in_smaller_batches": only_smaller,
    }
    observed |= {f"{name}_ns": time for name, time in listed}
    own = dict(zip(measures.operators.name, measures.operators.own_ns.tolist(), strict=True))
    observed |= {f"{name}_own_host_ns": own[name] for name, _ in listed[:2] if name in own}
    all_idle = idle_total(measures, judged_idle(measures, judged, with_episode_phases=True))
    observed["idle_ns"] = all_idle
    observed |= {f"{name}_shapes": shapes[name] for name, _ in listed if shapes.get(name)}
    names = ", ".join(
        f"{name} {format_ns(time)}" + (f" (own host time {format_ns(own[name])})" if at < 2 and name in own else "")
        for at, (name, time) in enumerate(listed)
    )
    evidence, count = idle_evidence(
        measures, mask, lambda row: f"{measures.facts.slice_name(int(idle.slice_row[row]))} searches for a plan"
    )
    why = ""
    if only_smaller:
        why = " It happens only in steps with a smaller batch, such as the last one of an epoch."
        fix = [
            "Drop the epoch's last, smaller batch (drop_last=True) or pad it to the full size: its shape is new.",
            "Or choose a batch size that divides the number of images.",
        ]
    else:
        fix = [
            "Keep input shapes fixed (Ultralytics: multi_scale=0, rect=False), or bucket them into a few sizes.",
            "Drop or pad the epoch's last batch (drop_last=True), so that it brings no new shape.",
            "Run each shape once before training; with shapes that must vary set cudnn.benchmark=False.",
        ]
    if not measures.facts.has_shapes:
        fix.append("Record with record_shapes=True to see which shapes are new.")
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"In {len(windows)} of {judged.count} steps operators spend {format_ns(per_time)} each time choosing how "
            f"to run while the device is idle: {format_ns(per_step)} per step on average "
            f"({format_share(per_step, judged.mean_step_ns)}). Most of it, of {format_ns(all_idle)} idle over all "
            f"{judged.count} steps: {names}.{why}"
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.9,
        episode=Episode(ns=per_time, per_1000_steps=round(1000 * len(windows) / judged.count, 3)),
    )
    quiet = f"Operators choosing a plan leave the device idle only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def _operators(measures: Measures, mask: BoolArray) -> tuple[Counter[str], dict[str, str]]:
    """Plan-search idle by operator, ns, and the shapes of each operator's longest search."""
    idle, facts = measures.idle, measures.facts
    times: Counter[str] = Counter()
    shapes: dict[str, str] = {}
    rows = np.flatnonzero(mask)
    for row in rows[np.argsort(-idle.duration_ns[rows], kind="stable")].tolist():
        name = facts.slice_name(int(idle.slice_row[row])) or "unknown operator"
        times[name] += int(idle.end_ns[row] - idle.start_ns[row])
        shapes.setdefault(name, facts.slice_shapes(int(idle.slice_row[row])))
    return times, shapes


def _smaller_batches(measures: Measures, judged: JudgedSteps, share: float) -> set[int]:
    """Judged windows that copied clearly less input to the device than the median window did."""
    copies = measures.copies
    rows = judged.holds(copies.window) & (copies.direction == CopyDirection.H2D) & (copies.size_bytes > 0)
    total = np.zeros(len(judged.is_judged), dtype=np.int64)
    np.add.at(total, copies.window[rows], copies.size_bytes[rows])
    seen = np.flatnonzero(judged.is_judged & (total > 0))
    if len(seen) < 2:
        return set()
    usual = float(np.median(total[seen]))
    return {int(w) for w in seen if total[w] < share * usual}
