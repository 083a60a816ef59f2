"""Kernels and libraries are loaded in the middle of steady steps.

## Detects
Device idle time in which the host loads a CUDA module, a library or a kernel's code.

## Why it matters
CUDA loads code at first use. In a steady step that means that something new runs: a code path that training did not
take before, or a shape that picks another kernel.

## How it is measured
Idle time of cause `module_load` in steady steps.

## Does not apply when
The recording holds no GPU activity. Recorders that do not trace driver calls may show loading as operator time.

## How to fix
Set `CUDA_MODULE_LOADING=EAGER`, or run every path once before training.

## Limits and false positives
A recording of the first steps shows loading that happens once.

## References
CUDA programming guide, "Lazy loading".
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import judged_idle, judged_steps
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import CAUSE_CODE, Cause, FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import NO_DEVICE, not_applicable
from traceanalyzer.rules.stalls import judge_stall

META = Meta(
    code="TA203",
    slug="lazy-module-loading",
    kind=FindingKind.FAULT,
    category="launch",
    fail_title="Code is loaded onto the device in steady steps",
    pass_title="Steady steps load no code",
    remedy=Remedy(
        settings=("CUDA_MODULE_LOADING",),
        before="""
        import torch
        """,
        after="""
        import os

        os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # before torch is imported

        import torch
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with: only the floor."""


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    mask = judged_idle(measures, judged) & (measures.idle.cause == CAUSE_CODE[Cause.MODULE_LOAD])
    fix = [
        "Set CUDA_MODULE_LOADING=EAGER in the environment of the training process.",
        "Run each code path (validation, every shape) once before training starts.",
    ]
    return judge_stall(META, measures, thresholds, judged, mask, "the host loads kernels or libraries", fix)
