"""Idle time of one cause, judged as it stands: the shape shared by the simplest rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total
from traceanalyzer.results.finding import Episode, Finding, Scalar
from traceanalyzer.rules.base import Meta
from traceanalyzer.rules.evidence import idle_evidence, where
from traceanalyzer.rules.outcome import Case, decide
from traceanalyzer.units import format_ns, format_share

# places looked up to find the most frequent one; looking all of them up costs more than it tells
_SAMPLED = 500


def judge_stall(
    meta: Meta,
    measures: Measures,
    thresholds: Any,
    judged: JudgedSteps,
    mask: BoolArray,
    during: str,
    fix: list[str],
    observed: dict[str, Scalar] | None = None,
) -> Finding:
    """Judge the selected idle time as a stall.

    Args:
        meta: The rule.
        measures: One rank.
        thresholds: Its thresholds.
        judged: The windows.
        mask: Idle pieces of the cause.
        during: What the host does meanwhile, as in "while …".
        fix: Steps, most useful first.
        observed: Further values to state.
    """
    idle = measures.idle
    lost = idle_total(measures, mask)
    per_step = judged.per_step(lost)
    windows = len(np.unique(idle.window[mask]))
    each = round(lost / windows) if windows else 0
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(-idle.duration_ns[rows], kind="stable")][:_SAMPLED]
    places: Counter[str] = Counter()
    for row in rows.tolist():
        place = where(measures, int(idle.thread[row]), int(idle.start_ns[row]))
        if place:
            places[place] += int(idle.end_ns[row] - idle.start_ns[row])
    place = next((name for name, _ in places.most_common(1)), None)
    evidence, count = idle_evidence(measures, mask)
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"The device is idle {format_ns(per_step)} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(per_step, judged.mean_step_ns)}) while {during}, in {windows} of {judged.count} steps"
            f"{f', mostly at {place}' if place else ''}."
        ),
        observed={
            "idle_per_step_ns": per_step,
            "affected_steps": windows,
            "steps": judged.count,
            **({"where": place} if place else {}),
            **(observed or {}),
        },
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        episode=Episode(ns=each, per_1000_steps=round(1000 * windows / judged.count, 3))
        if windows < judged.count
        else Episode(),
    )
    quiet = f"The device is idle only {format_ns(per_step)} per step while {during}."
    return decide(meta, measures, thresholds, judged, case, quiet)
