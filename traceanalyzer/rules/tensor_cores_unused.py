"""Matrix products and convolutions run in fp32 without tensor cores, and the step waits for them.

## Detects
Kernels of matrix work in plain fp32 on a device with tensor cores, where the next kernel was waiting for them.

## Why it matters
Tensor cores multiply matrices several times faster: in TF32 without a change of types, in bf16 or fp16 faster still.

## How it is measured
Time of such kernels in the judged steps whose successor had already been launched when they ended. Where the device
waits for the host anyway, a faster kernel wins nothing and is not counted. The likely saving assumes kernels twice as
fast, the upper end eight times.

## Does not apply when
The recording does not describe the device, or the device has no tensor cores.

## How to fix
`torch.set_float32_matmul_precision("high")` and `torch.backends.cudnn.allow_tf32 = True`, or mixed precision with
`channels_last`.

## Limits and false positives
The kind of arithmetic is read from kernel names. In a launch-bound step mixed precision does not help.

## References
PyTorch, "CUDA semantics, TensorFloat-32"; NVIDIA A100 and H100 data sheets, peak rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.facts import BoolArray
from traceanalyzer.measures.kernel_names import Precision
from traceanalyzer.measures.kernels import PRECISIONS
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Evidence, Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.critical import is_waited_for
from traceanalyzer.rules.evidence import longest
from traceanalyzer.rules.outcome import NO_DEVICE, Case, decide, not_applicable, passed
from traceanalyzer.units import format_ns, format_share

META = Meta(
    code="TA601",
    slug="tensor-cores-unused",
    kind=FindingKind.FAULT,
    category="compute",
    fail_title="Matrix work runs without tensor cores",
    pass_title="No time is lost to matrix work without tensor cores",
    remedy=Remedy(
        settings=("torch.autocast", "torch.set_float32_matmul_precision", "Ultralytics: amp"),
        before="""
        loss = criterion(model(images), targets)
        # Ultralytics: model.train(data="data.yaml", amp=False)
        """,
        after="""
        torch.set_float32_matmul_precision("high")  # once: TF32 for what stays in float32
        torch.backends.cudnn.allow_tf32 = True
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), targets)
        # Ultralytics: model.train(data="data.yaml", amp=True)
        """,
        yolo=("--amp",),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # first compute capability with tensor cores (Volta)
    min_compute_capability: int = 7
    # TF32 convolutions and products rarely gain less than this over fp32
    likely_speedup: float = 2.0
    # ratio of the peak rates, TF32 tensor cores over fp32 cores (A100: 156 over 19.5 TFLOPS)
    highest_speedup: float = 8.0


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    judged = judged_steps(measures)
    if judged is None:
        return not_applicable(META, measures, thresholds, NO_DEVICE)
    device = measures.facts.device(judged.device_id)
    if device is None or device.compute_capability is None:
        return not_applicable(META, measures, thresholds, "the device's compute capability")
    if device.compute_capability[0] < thresholds.min_compute_capability:
        return not_applicable(META, measures, thresholds, "a device with tensor cores")
    kernels = measures.kernels
    mine = judged.holds(kernels.window) & (kernels.device == judged.device_id)
    matrix = mine & (kernels.is_matrix == 1)
    plain = matrix & (kernels.uses_tensor_cores == 0) & (kernels.precision == PRECISIONS.index(Precision.FP32))
    time_ns = int(kernels.duration_ns[plain].sum())
    split, observed = _arithmetic(measures, mine)
    if not time_ns:
        message = f"No matrix product or convolution runs in fp32 without tensor cores.{split}"
        return passed(META, measures, thresholds, message, judged=judged, observed=observed)
    critical = plain & is_waited_for(measures, judged.device_id)
    waited = int(kernels.duration_ns[critical].sum())
    likely = waited * (1 - 1 / thresholds.likely_speedup)
    per_step = judged.per_step(likely)
    rows = np.flatnonzero(critical)
    starts = measures.facts.activity_starts(kernels.activity[rows])
    evidence = [
        Evidence(
            start_ns=int(starts[at]),
            end_ns=int(starts[at] + kernels.duration_ns[rows[at]]),
            stream=measures.facts.stream(int(kernels.activity[rows[at]])),
            what=measures.facts.activity_name(int(kernels.activity[rows[at]])),
        )
        for at in longest(kernels.duration_ns[rows])
    ]
    all_ns = int(kernels.duration_ns[mine].sum())
    case = Case(
        saving=bound(judged, likely_ns=likely, high_ns=waited * (1 - 1 / thresholds.highest_speedup)),
        message=(
            f"{format_ns(judged.per_step(time_ns))} of kernel time per step ({format_share(time_ns, all_ns)} of all) "
            f"is matrix work in fp32 without tensor cores; for {format_ns(judged.per_step(waited))} of it the next "
            f"kernel was waiting. Kernels twice as fast would win {format_ns(per_step)} of the "
            f"{format_ns(judged.mean_step_ns)} step ({format_share(per_step, judged.mean_step_ns)}).{split}"
        ),
        observed={
            **observed,
            "fp32_matrix_per_step_ns": judged.per_step(time_ns),
            "waited_for_per_step_ns": judged.per_step(waited),
            "share_of_kernel_time": round(time_ns / all_ns, 4),
            "steps": judged.count,
        },
        evidence=evidence,
        evidence_count=len(rows),
        fix=[
            'Allow TF32: torch.set_float32_matmul_precision("high") and torch.backends.cudnn.allow_tf32 = True.',
            "Or train in mixed precision (Ultralytics: amp=True) with channels_last tensors.",
        ],
        confidence=0.7,
    )
    quiet = (
        f"Matrix work in fp32 takes {format_ns(judged.per_step(time_ns))} per step, but faster kernels would win only "
        f"{format_ns(per_step)}: the device waits for the host anyway."
    )
    return decide(META, measures, thresholds, judged, case, quiet)


def _arithmetic(measures: Measures, mine: BoolArray) -> tuple[str, dict[str, Scalar]]:
    """Share of matrix work, of it on tensor cores, and its precisions, by kernel time."""
    kernels = measures.kernels
    all_ns = int(kernels.duration_ns[mine].sum())
    matrix = mine & (kernels.is_matrix == 1)
    matrix_ns = int(kernels.duration_ns[matrix].sum())
    if not matrix_ns:
        return "", {}
    on_cores = int(kernels.duration_ns[matrix & (kernels.uses_tensor_cores == 1)].sum())
    observed: dict[str, Scalar] = {
        "matrix_share_of_kernel_time": round(matrix_ns / all_ns, 4),
        "tensor_core_share_of_matrix_time": round(on_cores / matrix_ns, 4),
    }
    times = {
        PRECISIONS[code].value: int(kernels.duration_ns[matrix & (kernels.precision == code)].sum())
        for code in np.unique(kernels.precision[matrix]).tolist()
    }
    observed |= {f"matrix_{name}_share": round(time / matrix_ns, 4) for name, time in times.items()}
    named = ", ".join(
        f"{name} {format_share(time, matrix_ns)}" for name, time in sorted(times.items(), key=lambda item: -item[1])[:3]
    )
    text = (
        f" Matrix work is {format_share(matrix_ns, all_ns)} of kernel time, {format_share(on_cores, matrix_ns)} of it "
        f"on tensor cores ({named})."
    )
    limits = measures.matrix_limits
    if limits is not None and limits.kernel_ns:
        observed |= {
            "matrix_time_judged_ns": limits.kernel_ns,
            "matrix_time_at_limit_share": round(limits.limit_ns / limits.kernel_ns, 4),
            "matrix_memory_bound_share": round(limits.memory_bound_ns / limits.kernel_ns, 4),
        }
        text += (
            f" By their shapes, {limits.operators} products and convolutions that took {format_ns(limits.kernel_ns)} "
            f"need at least {format_ns(limits.limit_ns)} on this device "
            f"({format_share(limits.memory_bound_ns, limits.kernel_ns)} of that time is bound by memory)."
        )
    return text, observed
