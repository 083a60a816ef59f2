"""What the optimizer's own step launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import among
from traceanalyzer.measures.facts import BoolArray, CodeArray, IntArray, inside
from traceanalyzer.replay.bounds import JudgedSteps

_RANGE = "Optimizer.step#"
_FUSED_NAMES = ("multi_tensor", "FusedAdam", "FusedSgd", "FusedOptimizer", "fused_adam", "fused_sgd")


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """Kernels launched inside ``Optimizer.step`` ranges of the judged windows.

    Attributes:
        name: The optimizer's class, as its ranges name it.
        single_per_step: Kernels per step that belong to no multi-tensor or fused update.
        matrix_per_step: Matrix products per step.
        ranges: Start, end and thread of the ranges.
    """

    name: str
    single_per_step: float
    matrix_per_step: float
    ranges: tuple[IntArray, IntArray, CodeArray]

    def idle_inside(self, measures: Measures) -> BoolArray:
        """Select the idle pieces during which the host was inside the optimizer's step."""
        return inside(measures.idle.start_ns, measures.idle.thread, *self.ranges)


def optimizer_step(measures: Measures, judged: JudgedSteps) -> OptimizerStep | None:
    """Count what the optimizer launches; None where the recording has no ``Optimizer.step`` ranges."""
    facts, launches, kernels = measures.facts, measures.launches, measures.kernels
    rows = facts.slices_named((_RANGE,), prefix=True)
    if not len(rows):
        return None
    ranges = facts.slice_columns(rows)
    mine = inside(launches.call_start_ns, launches.thread, *ranges)
    mine &= among(launches.activity, kernels.activity[judged.holds(kernels.window)])
    launched = launches.activity[mine]
    single = int(np.count_nonzero(~facts.named_with(launched, _FUSED_NAMES)))
    matrix = int(np.count_nonzero(kernels.is_matrix[among(kernels.activity, launched)]))
    name = facts.slice_name(int(rows[0])).removeprefix(_RANGE).removesuffix(".step")
    return OptimizerStep(name, single / judged.count, matrix / judged.count, ranges)
