"""Autograd's anomaly detection checks every gradient for NaN and was left on.

## Detects
A NaN check after the nodes of the backward pass: `isnan`, `any` and `item` directly under autograd's
`evaluate_function`, each waiting for the device.

## Why it matters
Anomaly detection is a debugging aid. It stops the host after every backward node until the device has answered, and
captures a Python stack inside every forward operator.

## How it is measured
Idle time inside those check operators in the judged steps. The stack capture of the forward pass is spread over all
operators and cannot be seen as idle time of its own, so the saving has no upper end.

## Does not apply when
The recording holds no operators.

## How to fix
Remove `torch.autograd.set_detect_anomaly(True)` or `detect_anomaly()` from the training loop.

## Limits and false positives
Fires only where checks follow at least a third of the backward nodes, so a single hand-written NaN check is not
mistaken for anomaly mode.

## References
torch.autograd.set_detect_anomaly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray, CodeArray, IntArray, inside
from traceanalyzer.replay.bounds import JudgedSteps, idle_total, judged_idle, judged_steps, open_bound
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA207",
    slug="anomaly-mode-left-on",
    kind=FindingKind.FAULT,
    category="launch",
    fail_title="Autograd anomaly detection is on",
    pass_title="Autograd anomaly detection is off",
    remedy=Remedy(
        settings=("torch.autograd.set_detect_anomaly",),
        before="""
        torch.autograd.set_detect_anomaly(True)
        """,
        after="""
        torch.autograd.set_detect_anomaly(False)  # True only while looking for a NaN
        """,
    ),
)

_NODE = "autograd::engine::evaluate_function"
_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::any", "aten::item")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # anomaly mode checks every output of every node but AccumulateGrad, which is up to half of the nodes
    min_checks_per_node: float = 1 / 3
    # fewer nodes than in a backward pass of two layers prove nothing
    min_checks: int = 4


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    if not measures.facts.has_operators:
        return not_applicable(META, measures, thresholds, "operators (record with torch.profiler, CPU activities)")
    checks, nodes = _checks(measures)
    observed = {"nan_checks": checks, "backward_nodes": nodes, "steps": judged.count}
    if checks < thresholds.min_checks or checks < thresholds.min_checks_per_node * nodes:
        return passed(
            META,
            measures,
            thresholds,
            f"{checks} NaN checks for {nodes} backward nodes: anomaly detection is off.",
            judged=judged,
            observed=observed,
        )
    mask = anomaly_idle(measures, judged)
    lost = idle_total(measures, mask)
    per_step = judged.per_step(lost)
    evidence, count = idle_evidence(measures, mask, lambda _: "device idle during autograd's NaN check")
    case = Case(
        saving=open_bound(judged, likely_ns=lost),
        message=(
            f"Autograd checked {checks} gradients for NaN after {nodes} backward nodes; the device is idle "
            f"{format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) during these checks. Anomaly detection also captures a "
            "Python stack inside every forward operator, which comes on top."
        ),
        observed={**observed, "check_idle_per_step_ns": per_step},
        evidence=evidence,
        evidence_count=count,
        fix=["Remove torch.autograd.set_detect_anomaly(True) (or the detect_anomaly() context) from the loop."],
        confidence=0.95,
    )
    quiet = f"Anomaly detection is on, but its checks leave the device idle only {format_ns(per_step)} per step."
    return decide(META, measures, thresholds, judged, case, quiet)


def is_on(measures: Measures) -> bool:
    """Whether the recording shows anomaly detection, by the default thresholds."""
    checks, nodes = _checks(measures)
    thresholds = Thresholds()
    return checks >= thresholds.min_checks and checks >= thresholds.min_checks_per_node * nodes


def anomaly_idle(measures: Measures, judged: JudgedSteps) -> BoolArray:
    """Idle pieces inside the NaN checks, whatever their cause."""
    idle = measures.idle
    return judged_idle(measures, judged) & in_checks(measures, idle.start_ns, idle.thread)


def in_checks(measures: Measures, time_ns: IntArray, thread: CodeArray) -> BoolArray:
    """Say which moments lie inside autograd's NaN checks."""
    facts = measures.facts
    nodes = facts.slice_columns(facts.slices_named((_NODE,), prefix=True))
    start, end, owner = facts.slice_columns(facts.slices_named(_CHECKS))
    under_node = inside(start, owner, *nodes)
    return inside(time_ns, thread, start[under_node], end[under_node], owner[under_node])


def _checks(measures: Measures) -> tuple[int, int]:
    """Number of NaN checks under backward nodes, and of backward nodes."""
    facts = measures.facts
    nodes = facts.slice_columns(facts.slices_named((_NODE,), prefix=True))
    start, _, thread = facts.slice_columns(facts.slices_named(("aten::isnan",)))
    return int(np.count_nonzero(inside(start, thread, *nodes))), len(nodes[0])
