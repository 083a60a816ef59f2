"""The training device idles around validation.

## Detects
Device idle time inside ranges named as validation, whatever its cause there.

## Why it matters
Validation between epochs runs with its own loader, its own batch size and its own post-processing. Its idle time is
easily longer than that of all training steps around it.

## How it is measured
Idle time of phase `validate` in steady and episodic steps, with its own causes; the cost of one validation and how
often it comes are stated beside the mean.

## Does not apply when
The recording has no validation range. Name one `validate` (record_function or NVTX).

## How to fix
Keep input shapes the same where plans are searched for, validate less often or on fewer images, give the validation
loader workers of its own, keep its batch as large as memory allows, keep metrics on the device.

## Limits and false positives
A short recording around one epoch's end overstates how often validation comes.

## References
Ultralytics settings `val`, `val_period`, `workers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, FindingKind, Phase
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.episodes import judge_episode
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable
from traceanalyzer.units import format_ns

META = Meta(
    code="TA801",
    slug="validation-stall",
    kind=FindingKind.FAULT,
    category="life cycle",
    fail_title="The device idles during validation",
    pass_title="Validation does not stall the device",
    remedy=Remedy(
        settings=("how often it is called", "DataLoader(num_workers=…, batch_size=…)", "Ultralytics: val"),
        before="""
        for epoch in range(epochs):
            train_epoch(model)
            validate(model, DataLoader(validation_set, batch_size=1))
        """,
        after="""
        validation_loader = DataLoader(validation_set, batch_size=32, num_workers=4, persistent_workers=True)
        for epoch in range(epochs):
            train_epoch(model)
            if epoch % 5 == 4:
                validate(model, validation_loader)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures, with_episodes=True)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    idle = measures.idle
    mask = judged_idle(measures, judged, with_episode_phases=True) & (idle.phase == PHASE_CODE[Phase.VALIDATE])
    fix = [
        "Validate less often (Ultralytics: val_period) or on a subset while training runs.",
        "Keep metrics on the device until validation ends, and use the largest batch that fits.",
    ]
    supply = measures.input
    inside = judged.holds(supply.window) & (supply.in_validation == 1)
    waiting = int(idle.duration_ns[mask & (idle.cause == CAUSE_CODE[Cause.INPUT_WAIT])].sum())
    if np.any(supply.in_main_process[inside] == 1) and waiting:
        fix.insert(
            0,
            f"Give the validation loader workers: it runs in the main process and takes {format_ns(waiting)} of this.",
        )
    searching = int(idle.duration_ns[mask & (idle.cause == CAUSE_CODE[Cause.PLAN_SEARCH])].sum())
    if searching > waiting:
        # the larger part first: whoever follows only the first line should win the most
        fix.insert(
            0,
            f"Validate with input shapes that were seen before (Ultralytics: rect=False, drop or pad the last batch): "
            f"operators search for plans for new ones, {format_ns(searching)} of this.",
        )
    return judge_episode(META, measures, thresholds, judged, mask, "validation", fix)
