"""Which steps are measured bare, which are recorded, and in what order.

A profiler slows the host down, so a recording alone cannot say how long a step really takes. The schedule therefore
measures unprofiled steps on both sides of the recorded ones: before, when no profiler has touched the process yet, and
after, so that drift of the machine shows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property
from typing import Any


class Stage(Enum):
    """What a step is for."""

    SKIP = "skip"
    WARM_UP = "warm_up"
    UNPROFILED = "unprofiled"
    PROFILER_WARM_UP = "profiler_warm_up"
    RECORDED = "recorded"
    SETTLE = "settle"
    UNPROFILED_AFTER = "unprofiled_after"
    DONE = "done"

    @property
    def timed(self) -> bool:
        """Whether the step's times are kept."""
        return self in (Stage.UNPROFILED, Stage.RECORDED, Stage.UNPROFILED_AFTER)

    @property
    def unprofiled(self) -> bool:
        """Whether the step stands for the program without a profiler."""
        return self in (Stage.UNPROFILED, Stage.UNPROFILED_AFTER)


@dataclass(frozen=True)
class Schedule:
    """Number of steps of each stage, in the order they are run.

    Attributes:
        skip: Steps before anything happens (for example past a learning-rate warm-up).
        warm_up: Steps in which caches, plans and the loader's queue fill.
        unprofiled: Steps measured with cheap timers only.
        profiler_warm_up: Steps with the profiler attached whose events are thrown away. Attaching takes a second or
            two in which loader workers run ahead; these steps must be enough to drain that head start.
        recorded: Steps in the recording; 0 records nothing.
        settle: Steps after the recording before measuring again, for the same reason.
        unprofiled_after: Steps measured again with cheap timers only.
    """

    skip: int = 0
    warm_up: int = 5
    unprofiled: int = 20
    profiler_warm_up: int = 3
    recorded: int = 20
    settle: int = 2
    unprofiled_after: int = 20

    def __post_init__(self) -> None:
        for name, count in asdict(self).items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, got {count}")
        if self.recorded and not self.profiler_warm_up:
            raise ValueError("profiler_warm_up must be at least 1 where steps are recorded")

    @cached_property
    def stages(self) -> tuple[tuple[Stage, int], ...]:
        """Stages with their number of steps, in order."""
        recording = self.recorded > 0
        return (
            (Stage.SKIP, self.skip),
            (Stage.WARM_UP, self.warm_up),
            (Stage.UNPROFILED, self.unprofiled),
            (Stage.PROFILER_WARM_UP, self.profiler_warm_up if recording else 0),
            (Stage.RECORDED, self.recorded),
            (Stage.SETTLE, self.settle if recording else 0),
            (Stage.UNPROFILED_AFTER, self.unprofiled_after if recording else 0),
        )

    @property
    def total(self) -> int:
        """Number of steps until the schedule is done."""
        return sum(count for _, count in self.stages)

    def stage_of(self, step: int) -> Stage:
        """Return the stage of a step, counted from 0."""
        for stage, count in self.stages:
            if step < count:
                return stage
            step -= count
        return Stage.DONE

    def first(self, wanted: Stage) -> int:
        """Return the number of the first step of a stage (where it would be, if it is empty)."""
        before = 0
        for stage, count in self.stages:
            if stage is wanted:
                return before
            before += count
        return before

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as ``run.json`` holds them."""
        return asdict(self)
