"""Stalls of the training device around work that does not come every step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray
from traceanalyzer.replay.bounds import JudgedSteps, bound, idle_total
from traceanalyzer.results.finding import Episode, Finding, Scalar
from traceanalyzer.results.vocabulary import CAUSES
from traceanalyzer.rules.base import Meta
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import Case, decide, passed
from traceanalyzer.units import format_ns, format_share


def judge_episode(
    meta: Meta, measures: Measures, thresholds: Any, judged: JudgedSteps, mask: BoolArray, what: str, fix: list[str]
) -> Finding:
    """Judge the idle time of one kind of episode.

    Args:
        meta: The rule.
        measures: One rank.
        thresholds: Its thresholds.
        judged: Steady and episodic windows.
        mask: Idle pieces that belong to the episodes.
        what: Name of one episode, as in "during validation".
        fix: Steps, most useful first.
    """
    lost = idle_total(measures, mask)
    if not lost:
        return passed(meta, measures, thresholds, f"The device never idled during {what}.", judged=judged)
    idle = measures.idle
    times = len(np.unique(idle.window[mask]))
    per_step, each = judged.per_step(lost), round(lost / times)
    causes: Counter[str] = Counter()
    for code in np.unique(idle.cause[mask]).tolist():
        causes[CAUSES[code].value] = int(idle.duration_ns[mask & (idle.cause == code)].sum())
    observed: dict[str, Scalar] = {
        "idle_per_step_ns": per_step,
        "idle_each_time_ns": each,
        "times": times,
        "steps": judged.count,
    }
    observed |= {f"idle_{cause}_ns": time for cause, time in causes.most_common()}
    named = ", ".join(f"{cause.replace('_', ' ')} {format_ns(time)}" for cause, time in causes.most_common(3))
    evidence, count = idle_evidence(measures, mask)
    case = Case(
        saving=bound(judged, likely_ns=lost),
        message=(
            f"The device idles {format_ns(each)} each time during {what}, {times} time{'s' if times > 1 else ''} in "
            f"{judged.count} steps: {format_ns(per_step)} per step on average "
            f"({format_share(per_step, judged.mean_step_ns)}). Its own causes: {named}. How much that weighs in a "
            "whole run depends on how many steps an epoch has."
        ),
        observed=observed,
        evidence=evidence,
        evidence_count=count,
        fix=fix,
        confidence=0.9,
        episode=Episode(ns=each, per_1000_steps=round(1000 * times / judged.count, 3)),
    )
    quiet = f"Idle time during {what} is {format_ns(per_step)} per step."
    return decide(meta, measures, thresholds, judged, case, quiet)
