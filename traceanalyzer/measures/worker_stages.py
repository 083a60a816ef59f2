"""What loader workers spend a batch's time on, where the recorder timed it inside the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from traceanalyzer.measures.observer_effect import recorded_pass

# stretches of one run in which the recorder timed the workers
_BLOCKS = ("unprofiled", "recorded", "unprofiled_after")


class Stage(StrEnum):
    """Kind of work on a batch."""

    READ = "read and decode"
    AUGMENT = "augment"
    FORMAT = "format"
    COLLATE = "collate"
    PIN = "pin"
    OTHER = "other"


# how parts are called by the recorder, which names them after the callable it timed
_STAGES: dict[str, Stage] = {
    "load_image": Stage.READ,
    "read": Stage.READ,
    "decode": Stage.READ,
    "Format": Stage.FORMAT,
    "collate": Stage.COLLATE,
    "pin": Stage.PIN,
}


@dataclass(frozen=True, slots=True)
class Part:
    """One timed callable.

    Attributes:
        name: As the recorder calls it.
        stage: Kind of work.
        ns: Own time per batch; parts called from inside it are not in it.
        calls: Calls per batch.
    """

    name: str
    stage: Stage
    ns: float
    calls: float

    @property
    def ns_per_call(self) -> float:
        """Own time of one call, ns."""
        return self.ns / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class WorkerStages:
    """The mean batch as the workers saw it.

    Attributes:
        batches: Batches it is the mean of.
        batch_ns: Time one worker takes for one batch.
        parts: What that time went to, longest first; they add up to ``batch_ns``.
    """

    batches: int
    batch_ns: float
    parts: tuple[Part, ...]

    def stage_ns(self, *stages: Stage) -> float:
        """Time per batch in some kinds of work, ns."""
        return sum(part.ns for part in self.parts if part.stage in stages)


def measure_worker_stages(recorder: dict[str, object]) -> WorkerStages | None:
    """Read the recorder's worker times.

    Workers finish batches and parts at different moments, so a short stretch counts parts of batches it does not count.
    All stretches of the pass are taken together, and the parts' shares are scaled to the mean batch.

    Args:
        recorder: One pass of ``run.json``, or the whole of it, with ``{"loader": {stretch: {"batches": n, "worker_ns":
            ns, "parts": {name: {"ns": ns, "calls": n}}}}}``.

    Returns:
        The mean batch; None where no batch was timed.
    """
    loader = recorded_pass(recorder).get("loader")
    if not isinstance(loader, Mapping):
        return None
    batches = worker_ns = 0
    part_ns: Counter[str] = Counter()
    part_calls: Counter[str] = Counter()
    for name in _BLOCKS:
        block = loader.get(name)
        if not isinstance(block, Mapping):
            continue
        batches += count_of(block.get("batches"))
        worker_ns += count_of(block.get("worker_ns"))
        parts = block.get("parts")
        for part, value in parts.items() if isinstance(parts, Mapping) else ():
            if isinstance(value, Mapping):
                part_ns[str(part)] += count_of(value.get("ns"))
                part_calls[str(part)] += count_of(value.get("calls"))
    if not batches or not worker_ns:
        return None
    batch_ns = worker_ns / batches
    scale = batch_ns / max(part_ns.total(), 1)
    return WorkerStages(
        batches=batches,
        batch_ns=batch_ns,
        parts=tuple(
            Part(name, stage_of(name), ns * scale, part_calls[name] * scale) for name, ns in part_ns.most_common() if ns
        ),
    )


def stage_of(part: str) -> Stage:
    """Say what kind of work a part is: a callable with a capital is a transform, as classes of transforms are."""
    known = _STAGES.get(part)
    if known is not None:
        return known
    return Stage.AUGMENT if part[:1].isupper() else Stage.OTHER


def count_of(value: object) -> int:
    """Return a whole number above 0 of a document; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
