"""Augmentation takes so much of the workers' time that the device waits for batches.

## Detects
Device idle time waiting for worker processes whose time goes mostly to augmentation, and to far more of it than usual.

## Why it matters
Mosaic, MixUp and a full warp cost several times what reading the images does. Where cores are scarce, the choice of
augmentation and not the number of workers decides how fast batches come.

## How it is measured
The recorder times each transform inside the workers. Their share of a batch and their time per image are compared with
the thresholds. The saving is the part of the wait that vanishes when augmentation costs no more than usual.

## Does not apply when
The recorder did not time the loader's workers, or they are not waited for.

## How to fix
Drop or rarify the most expensive transform (`mixup=0`, `close_mosaic` earlier, smaller `degrees` and `perspective`),
augment smaller images, or augment on the GPU (Kornia, torchvision v2 on device tensors).

## Limits and false positives
A mosaic that takes long by itself is waiting for its images: its time then counts as reading. More workers would help
as well while cores are free. Augmentation changes what is learnt: judge accuracy too.

## References
Ultralytics, "Augmentation settings"; mosaic: Bochkovskiy et al., "YOLOv4", 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.worker_stages import Part, Stage, WorkerStages
from traceanalyzer.replay.bounds import bound, idle_total, judged_steps
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.evidence import idle_evidence
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.rules.settings import setting
from traceanalyzer.rules.supply import epoch_starts, loader_wait
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA105",
    slug="augmentation-heavy",
    kind=FindingKind.FAULT,
    category="input",
    fail_title="Augmentation keeps the loader's workers from keeping up",
    pass_title="Augmentation does not hold the device up",
    remedy=Remedy(
        settings=("Ultralytics: mosaic, mixup, degrees, shear, perspective",),
        before="""
        # the most expensive transforms, on every image
        model.train(data="data.yaml", mosaic=1.0, mixup=0.5, degrees=10.0, perspective=0.0005)
        """,
        after="""
        model.train(data="data.yaml", mosaic=1.0, mixup=0.0, degrees=0.0, perspective=0.0)
        """,
        yolo=("--set=mixup=0", "--set=degrees=0", "--set=shear=0", "--set=perspective=0"),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # below half, something else is the larger part of a batch
    min_share_of_batch: float = 0.5
    # Ultralytics' default mosaic, warp and HSV took 7.0 to 8.8 ms an image of 640 pixels; a second mosaic with MixUp 19
    usual_ns_per_image: int = 9_000_000
    # heavy is well above what was seen as usual
    min_times_usual: float = 1.5
    # placing four images takes 1.2 to 1.6 ms; a mosaic that takes more by itself waits for them
    longest_placing_ns: int = 10_000_000


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    stages, batch = measures.worker_stages, setting(measures, "batch")
    if stages is None or not batch:
        return not_applicable(
            META, measures, thresholds, "the workers' time per transform (`traceanalyzer record` times them)"
        )
    transforms = heavy_transforms(stages, thresholds.longest_placing_ns)
    augment_ns = sum(part.ns for part in transforms)
    side = (setting(measures, "imgsz") or 640) / 640
    usual_ns = thresholds.usual_ns_per_image * side * side * batch
    observed: dict[str, Scalar] = {
        "augmentation_share_of_batch": round(augment_ns / stages.batch_ns, 4),
        "augmentation_per_image_ns": round(augment_ns / batch),
        "worker_batch_ns": round(stages.batch_ns),
        "workers": setting(measures, "workers"),
    }
    observed |= {f"{part.name}_per_batch_ns": round(part.ns) for part in transforms[:4]}
    share = augment_ns / stages.batch_ns
    if share < thresholds.min_share_of_batch or augment_ns < thresholds.min_times_usual * usual_ns:
        message = (
            f"Augmentation takes {format_ns(augment_ns / batch)} per image, {share:.0%} of a worker's time for a batch."
        )
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    first = epoch_starts(measures)
    mask = loader_wait(measures, judged).workers
    if np.any(judged.is_judged & ~first):
        mask = mask & ~first[np.maximum(measures.idle.window, 0)]
    lost = idle_total(measures, mask)
    # a wait of w per step is a shortage of w times the workers per batch; what is saved beyond it wins nothing
    shortage = judged.per_step(lost) * max(setting(measures, "workers") or 1, 1)
    won = lost * min(1.0, (augment_ns - usual_ns) / shortage) if shortage else 0.0
    first_part = transforms[0]
    named = ", ".join(f"{part.name} {format_ns(part.ns)}" for part in transforms[:4])
    rest_ns = max(judged.mean_step_ns - lost / judged.count, 1.0)
    evidence, count = idle_evidence(measures, mask, lambda _: "device idle while workers augment the next batch")
    case = Case(
        saving=bound(judged, likely_ns=won, high_ns=lost),
        message=(
            f"A worker takes {format_ns(stages.batch_ns)} for a batch, {format_share(augment_ns, stages.batch_ns)} of "
            f"it in transforms: {named}. That is {format_ns(augment_ns / batch)} per image, "
            f"{augment_ns / usual_ns:.1f} times the usual. Meanwhile the device waits "
            f"{format_ns(judged.per_step(lost))} of the {format_ns(judged.mean_step_ns)} step "
            f"({format_share(judged.per_step(lost), judged.mean_step_ns)})."
        ),
        observed=observed | {"input_wait_per_step_ns": judged.per_step(lost), "steps": judged.count},
        evidence=evidence,
        evidence_count=count,
        fix=[
            f"Use {first_part.name} less, or not at all: it alone takes {format_ns(first_part.ns)} of a batch "
            f"(Ultralytics: mixup, mosaic and close_mosaic, degrees, shear, perspective, hsv_h).",
            "Augment smaller images, or on the GPU (Kornia, torchvision v2 transforms on device tensors).",
            f"With free cores, {math.ceil(stages.batch_ns / rest_ns)} workers would keep up as it is.",
        ],
        confidence=0.85,
    )
    quiet = f"Workers augment heavily, but the device waits only {format_ns(judged.per_step(lost))} per step for them."
    return decide(META, measures, thresholds, judged, case, quiet)


def heavy_transforms(stages: WorkerStages, longest_placing_ns: int) -> list[Part]:
    """Transforms that compute, longest first; a mosaic that takes long by itself reads and is left out."""
    return [
        part
        for part in stages.parts
        if part.stage is Stage.AUGMENT and not (part.name == "Mosaic" and part.ns_per_call > longest_placing_ns)
    ]
