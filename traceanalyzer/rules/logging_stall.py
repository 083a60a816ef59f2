"""Logging of progress and metrics waits for the device or the disk.

## Detects
Device idle time inside ranges named as logging.

## Why it matters
Formatting a loss reads it from the device; writing it to a file or a service takes as long as that takes.

## How it is measured
Idle time of phase `log` (or of cause `logging`) in steady and episodic steps.

## Does not apply when
The recording has no logging range. Name one `log` (record_function or NVTX).

## How to fix
Log every N steps, keep sums on the device until then, and hand values to a thread that writes.

## Limits and false positives
Logging outside a named range shows as Python time or as waiting for a value (TA501).

## References
PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, FindingKind, Phase
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable
from traceanalyzer.rules.stalls import judge_stall

META = Meta(
    code="TA803",
    slug="logging-stall",
    kind=FindingKind.FAULT,
    category="life cycle",
    fail_title="Logging stalls the device",
    pass_title="Logging does not stall the device",
    remedy=Remedy(
        settings=("how often it is called",),
        before="""
        for number, batch in enumerate(loader):
            loss = train_step(batch)
            writer.add_scalar("loss", loss.item(), number)
        """,
        after="""
        for number, batch in enumerate(loader):
            loss = train_step(batch)
            if number % 50 == 49:
                writer.add_scalar("loss", loss.item(), number)
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
    others = (PHASE_CODE[Phase.VALIDATE], PHASE_CODE[Phase.CHECKPOINT])
    is_logging = (idle.phase == PHASE_CODE[Phase.LOG]) | (
        (idle.cause == CAUSE_CODE[Cause.LOGGING]) & (idle.phase != others[0]) & (idle.phase != others[1])
    )
    mask = judged_idle(measures, judged, with_episode_phases=True) & is_logging
    fix = [
        "Log every N steps instead of in each one.",
        "Keep running sums on the device and read them once per interval; write files and services from a thread.",
    ]
    return judge_stall(META, measures, thresholds, judged, mask, "the loop logs", fix)
