"""What a batch costs the loader's workers, and what could make it cheaper, by the recorder's own timing of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from traceanalyzer.measures import Measures
from traceanalyzer.measures.worker_stages import Stage, WorkerStages
from traceanalyzer.results.finding import Scalar
from traceanalyzer.rules.settings import setting
from traceanalyzer.units import format_ns, format_share

# reading and decoding a 640-pixel JPEG from memory took 0.4 to 0.6 ms here; a local disk adds well under a millisecond
CPU_READ_NS = 5_000_000
# half to three quarters of the cores as workers is common advice; beyond that workers fight the main process
CORE_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What the timing says.

    Attributes:
        message: Sentences; empty where nobody timed the workers.
        stages: The batch's stages with their shares; empty likewise.
        observed: Values.
        fix: Steps, most useful first.
    """

    message: str = ""
    stages: str = ""
    observed: dict[str, Scalar] = field(default_factory=dict)
    fix: list[str] = field(default_factory=list)


def batch_cost(measures: Measures, rest_ns: float) -> BatchCost:
    """Describe the mean batch, how many workers it needs, which stage is slow and what a cheaper one could win.

    Args:
        measures: One rank.
        rest_ns: The step without waiting for its batch, ns.
    """
    stages = measures.worker_stages
    if stages is None:
        return BatchCost()
    workers, cores = setting(measures, "workers"), setting(measures, "cpu_cores")
    needed = workers_needed(stages.batch_ns, rest_ns)
    by_stage = {stage: stages.stage_ns(stage) for stage in Stage}
    slowest = max(by_stage, key=lambda stage: by_stage[stage])
    reading, waits = _reading(stages)
    observed: dict[str, Scalar] = {
        "worker_batch_ns": round(stages.batch_ns),
        "workers": workers,
        "workers_needed": needed,
        "slowest_stage": slowest.value,
        "waits_for_storage": waits,
    }
    observed |= {f"{stage.value.replace(' ', '_')}_per_batch_ns": round(ns) for stage, ns in by_stage.items() if ns}
    split = ", ".join(
        f"{stage.value} {format_share(ns, stages.batch_ns)}"
        for stage, ns in sorted(by_stage.items(), key=lambda item: -item[1])
        if ns >= 0.01 * stages.batch_ns
    )
    message = f" A worker takes {format_ns(stages.batch_ns)} for a batch ({split}); {needed} would keep up"
    message += f", there are {workers}." if workers is not None else "."
    fix = []
    is_enough = cores is None or needed <= CORE_SHARE * cores
    if is_enough and (workers is None or needed > workers):
        fix.append(f"Use {needed} workers" + (f" (of {cores} cores)." if cores else "."))
    elif not is_enough:
        fix.append(f"{needed} workers would be more than three quarters of the {cores} cores: make batches cheaper.")
    fix += _cheaper(stages, rest_ns, reading, waits)
    return BatchCost(message, split, observed, fix)


def workers_needed(batch_ns: float, rest_ns: float) -> int:
    """Workers that deliver a batch per step: batch cost over the rest of the step, rounded up."""
    return max(1, math.ceil(batch_ns / max(rest_ns, 1.0)))


def _count(batch_ns: float, rest_ns: float) -> str:
    needed = workers_needed(batch_ns, rest_ns)
    return f"{needed} worker{'s' if needed != 1 else ''}"


def _reading(stages: WorkerStages) -> tuple[float, bool]:
    """Time per batch that goes to getting images, ns, and whether it is waiting rather than decoding."""
    slow = [
        part
        for part in stages.parts
        if (part.stage is Stage.READ or part.name == "Mosaic") and part.ns_per_call > CPU_READ_NS
    ]
    reading = stages.stage_ns(Stage.READ) + sum(part.ns for part in slow if part.stage is not Stage.READ)
    return reading, bool(slow)


def _cheaper(stages: WorkerStages, rest_ns: float, reading: float, waits: bool) -> list[str]:
    """What removing a stage would leave: upper limits, from the measured times alone."""
    found = []
    without = max(stages.batch_ns - reading, 0.0)
    if waits:
        found.append(
            f"Storage is the limit: images take {format_ns(reading)} of a batch to arrive, far more than decoding. "
            "Copy the data to a local disk or memory, or pack it into one memory-mapped file (LMDB): at best "
            f"{format_ns(without)} remain per batch, {_count(without, rest_ns)}. Another format (WebP) "
            "or decoding on the GPU does not shorten this wait."
        )
    elif reading >= 0.05 * stages.batch_ns:
        found.append(
            f"Reading and decoding take {format_ns(reading)} of a batch on the CPU. Keeping decoded images (cache=ram, "
            f"a memory-mapped file) or decoding on the GPU leaves at best {format_ns(without)} "
            f"({_count(without, rest_ns)}); a cheaper format (WebP, smaller images) wins part of that, "
            "LMDB alone hardly anything."
        )
    augment = stages.stage_ns(Stage.AUGMENT) - (reading - stages.stage_ns(Stage.READ))
    if augment >= 0.3 * stages.batch_ns:
        left = max(stages.batch_ns - augment, 0.0)
        found.append(
            f"Augmentation takes {format_ns(augment)} of a batch; on the GPU, or dropped, it leaves {format_ns(left)} "
            f"({_count(left, rest_ns)})."
        )
    return found
