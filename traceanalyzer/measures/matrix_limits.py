"""How near matrix work comes to the device's arithmetic and memory limits, where the recording holds input shapes.

Only operators whose work follows from their inputs are judged: matrix products and the backward pass of convolutions.
A convolution's forward pass depends on stride and padding, which shapes do not tell.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from traceanalyzer.measures.host_nesting import HostNesting
from traceanalyzer.measures.kernel_names import Precision
from traceanalyzer.measures.kernels import PRECISIONS, Kernels
from traceanalyzer.model.trace import Trace

_BYTES = {Precision.FP8: 1, Precision.FP16: 2, Precision.BF16: 2, Precision.TF32: 4, Precision.FP32: 4}


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a device can do at most, by its data sheet, without sparsity.

    Attributes:
        half: 16-bit tensor cores, operations per second.
        tf32: TF32 tensor cores.
        fp32: Plain fp32.
        fp8: 8-bit tensor cores; 0 where it has none.
        bandwidth: Memory, bytes per second.
    """

    half: float
    tf32: float
    fp32: float
    fp8: float
    bandwidth: float

    def operations(self, precision: Precision) -> float:
        """Operations per second in a precision; 0 unknown."""
        if precision in (Precision.FP16, Precision.BF16):
            return self.half
        return {Precision.TF32: self.tf32, Precision.FP32: self.fp32, Precision.FP8: self.fp8}.get(precision, 0.0)


# data sheets of the makers; the first name contained in the device's name decides
PEAKS: tuple[tuple[str, Peaks], ...] = (
    ("B200", Peaks(2250e12, 1125e12, 80e12, 4500e12, 8.0e12)),
    ("H200", Peaks(989.4e12, 494.7e12, 66.9e12, 1978.9e12, 4.8e12)),
    ("H100 PCIe", Peaks(756e12, 378e12, 51e12, 1513e12, 2.0e12)),
    ("H100", Peaks(989.4e12, 494.7e12, 66.9e12, 1978.9e12, 3.35e12)),
    ("A100-SXM4-80GB", Peaks(312e12, 156e12, 19.5e12, 0.0, 2.039e12)),
    ("A100", Peaks(312e12, 156e12, 19.5e12, 0.0, 1.555e12)),
    ("L40S", Peaks(362e12, 183e12, 91.6e12, 733e12, 0.864e12)),
    ("L4", Peaks(121e12, 60e12, 30.3e12, 242.5e12, 0.3e12)),
    ("V100", Peaks(125e12, 0.0, 15.7e12, 0.0, 0.9e12)),
    ("T4", Peaks(65e12, 0.0, 8.1e12, 0.0, 0.32e12)),
    ("MI300X", Peaks(1307.4e12, 653.7e12, 163.4e12, 2614.9e12, 5.3e12)),
    ("MI210", Peaks(181e12, 0.0, 22.6e12, 0.0, 1.6e12)),
)


@dataclass(frozen=True, slots=True)
class MatrixLimits:
    """Matrix work that could be judged.

    Attributes:
        kernel_ns: Kernel time of it.
        limit_ns: Least time the device could need for the same work.
        memory_bound_ns: Part of ``kernel_ns`` whose limit is memory, not arithmetic.
        operators: Operator calls judged.
    """

    kernel_ns: int
    limit_ns: int
    memory_bound_ns: int
    operators: int


def peaks_of(device_name: str) -> Peaks | None:
    """Return a device's data sheet by its name; None for one that is not listed."""
    return next((peaks for name, peaks in PEAKS if name in device_name), None)


def measure_matrix_limits(trace: Trace, kernels: Kernels, nesting: HostNesting) -> MatrixLimits | None:
    """Compare matrix kernels with the least time their operator's work could take.

    Args:
        trace: The recording.
        kernels: Its kernels.
        nesting: Its operators and calls nested.

    Returns:
        The sums; None without shapes, without a device whose data sheet is listed, or without an operator to judge.
    """
    peaks = {d.device_id: peaks_of(d.name) for d in trace.devices}
    if not bool(np.any(trace.slices.shapes >= 0)) or not any(peaks.values()):
        return None
    call = trace.activity_call[kernels.activity]
    rows = np.flatnonzero((kernels.is_matrix == 1) & (call >= 0))
    operator = nesting.call_innermost[call[rows]]
    by_operator: dict[int, list[int]] = defaultdict(list)
    for row, owner in zip(rows.tolist(), operator.tolist(), strict=True):
        if owner >= 0 and trace.slices.shapes[owner] >= 0:
            by_operator[owner].append(row)
    kernel_ns = limit = memory_bound = judged = 0
    for owner, mine in by_operator.items():
        peak = peaks[int(kernels.device[mine[0]])]
        precision = PRECISIONS[int(kernels.precision[mine[0]])]
        work = work_of(trace.names[trace.slices.name[owner]], trace.names[trace.slices.shapes[owner]])
        if peak is None or work is None or not peak.operations(precision) or precision not in _BYTES:
            continue
        operations, elements = work
        arithmetic = operations / peak.operations(precision) * 1e9
        memory = elements * _BYTES[precision] / peak.bandwidth * 1e9
        took = int(kernels.duration_ns[mine].sum())
        kernel_ns += took
        limit += round(max(arithmetic, memory))
        memory_bound += took if memory > arithmetic else 0
        judged += 1
    return MatrixLimits(kernel_ns, limit, memory_bound, judged) if judged else None


@lru_cache(maxsize=4096)  # a training loop asks for the same few operators and shapes in every step
def work_of(operator: str, shapes: str) -> tuple[float, float] | None:
    """Count an operator's arithmetic and the elements it must at least read and write.

    Args:
        operator: Its name.
        shapes: Its input shapes as recorded, a JSON list of lists.

    Returns:
        Operations (a multiplication and an addition are two) and elements; None for an operator not known.
    """
    try:
        dims = json.loads(shapes)
    except ValueError:
        return None
    if operator in ("aten::mm", "aten::bmm"):
        return _product(dims, 0)
    if operator in ("aten::addmm", "aten::baddbmm"):
        return _product(dims, 1)
    if operator == "aten::convolution_backward":
        return _convolution_backward(dims)
    return None


def _product(dims: Sequence[Sequence[int]], first: int) -> tuple[float, float] | None:
    if len(dims) < first + 2 or len(dims[first]) not in (2, 3) or len(dims[first]) != len(dims[first + 1]):
        return None
    left, right = dims[first], dims[first + 1]
    batch = left[0] if len(left) == 3 else 1
    m, k, n = left[-2], left[-1], right[-1]
    return 2.0 * batch * m * k * n, float(batch * (m * k + k * n + m * n))


def _convolution_backward(dims: Sequence[Sequence[int]]) -> tuple[float, float] | None:
    """Gradients of input and weight: twice the forward's arithmetic."""
    if len(dims) < 3 or not 3 <= len(dims[0]) == len(dims[1]) == len(dims[2]):
        return None
    output, data, weight = (math.prod(one) for one in dims[:3])
    per_output = math.prod(dims[2][1:])
    return 4.0 * output * per_output, 2.0 * (output + data + weight)
