"""The order of a trial's blocks and how many of them a given time allows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

BASELINE = ""
MIN_ROUNDS = 4
MAX_ROUNDS = 12
SETTLE_STEPS = 1
MAX_SHARE = 0.2  # of the run: beyond this, trials run only when asked for
DEFAULT_SECONDS = 30.0


@dataclass(frozen=True)
class TrialPlan:
    """How trials are run.

    Attributes:
        names: Trials to run; empty for all.
        seconds: Time they may take; None for a share of the run so far.
        steps_per_block: Timed steps of a block (a multiple of the optimizer's accumulation is made of it).
        seed: Seed of the order of blocks and of the resampling.
    """

    names: tuple[str, ...] = ()
    seconds: float | None = None
    steps_per_block: int = 4
    seed: int = 0


def block_order(names: Sequence[str], *, seed: int, index: int) -> list[str]:
    """Return one round of blocks in random order: each name once and the baseline twice.

    Args:
        names: The changes.
        seed: Seed of the order.
        index: Number of the round.
    """
    blocks = [BASELINE, BASELINE, *names]
    random.Random(f"{seed}/{index}").shuffle(blocks)
    return blocks


def estimated_ns(changes: int, rounds: int, steps: int, step_ns: int) -> int:
    """Return the time that many rounds take if every step takes as long as the baseline's.

    Args:
        changes: Number of changes tried.
        rounds: Rounds of blocks.
        steps: Timed steps of a block.
        step_ns: A baseline step.
    """
    return (changes + 2) * rounds * (steps + SETTLE_STEPS) * step_ns


def whole_cycles(steps: int, accumulate: int) -> int:
    """Return at least ``steps``, rounded up to whole optimizer steps."""
    return -(-max(steps, 1) // accumulate) * accumulate
