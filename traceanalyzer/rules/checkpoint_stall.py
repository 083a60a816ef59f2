"""Saving a checkpoint blocks the loop.

## Detects
Device idle time inside ranges named as checkpoint or save.

## Why it matters
Copying every parameter to the host and writing a file on the training thread leaves the device without work for as
long as both take.

## How it is measured
Idle time of phase `checkpoint` (or of that cause) in steady and episodic steps; the cost of one checkpoint and how
often it comes are stated beside the mean.

## Does not apply when
The recording has no checkpoint range. Name one `checkpoint` (record_function or NVTX).

## How to fix
Copy the state to the host, then write it on another thread or process (`torch.distributed.checkpoint.async_save`);
save less often; save to a local disk.

## Limits and false positives
A short recording around one epoch's end overstates how often a checkpoint comes.

## References
torch.distributed.checkpoint; Ultralytics setting `save_period`.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, PHASE_CODE, Cause, FindingKind, Phase
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.episodes import judge_episode
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable

META = Meta(
    code="TA802",
    slug="checkpoint-stall",
    kind=FindingKind.FAULT,
    category="life cycle",
    fail_title="Saving a checkpoint blocks the loop",
    pass_title="Checkpoints do not stall the device",
    remedy=Remedy(
        settings=("torch.save on another thread", "Ultralytics: save_period"),
        before="""
        torch.save(model.state_dict(), "last.pt")
        """,
        after="""
        state = {name: value.cpu() for name, value in model.state_dict().items()}
        threading.Thread(target=torch.save, args=(state, "last.pt")).start()
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
    is_saving = (idle.phase == PHASE_CODE[Phase.CHECKPOINT]) | (
        (idle.cause == CAUSE_CODE[Cause.CHECKPOINT]) & (idle.phase != PHASE_CODE[Phase.VALIDATE])
    )
    mask = judged_idle(measures, judged, with_episode_phases=True) & is_saving
    fix = [
        "Write the file on another thread or process: copy the state to the host first, then save asynchronously.",
        "Save less often (Ultralytics: save_period) and to a local disk.",
    ]
    return judge_episode(META, measures, thresholds, judged, mask, "checkpointing", fix)
