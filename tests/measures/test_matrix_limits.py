"""Matrix work against a device's data sheet."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.measures.matrix_limits import peaks_of, work_of
from traceanalyzer.model.trace import Device
from traceanalyzer.readers import open_recording

HALF = "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x64x64_stage3_tensor16x8x16"


@pytest.mark.parametrize(
    ("operator", "shapes", "work"),
    [
        ("aten::mm", "[[2,3],[3,5]]", (2 * 2 * 3 * 5, 6 + 15 + 10)),
        ("aten::addmm", "[[5],[2,3],[3,5]]", (60, 31)),
        ("aten::bmm", "[[7,2,3],[7,3,5]]", (7 * 60, 7 * 31)),
        # output 2 x 4 x 8 x 8, input 2 x 3 x 8 x 8, 4 filters of 3 x 3 x 3: twice 2 x 512 x 27 operations
        (
            "aten::convolution_backward",
            "[[2,4,8,8],[2,3,8,8],[4,3,3,3],[],[]]",
            (2 * 2 * 512 * 27, 2 * (512 + 384 + 108)),
        ),
        ("aten::cudnn_convolution", "[[2,3,8,8],[4,3,3,3]]", None),
        ("aten::mm", "[[2,3]]", None),
        ("aten::mm", "no json", None),
    ],
)
def test_work_follows_from_the_input_shapes(operator: str, shapes: str, work: tuple[float, float] | None) -> None:
    assert work_of(operator, shapes) == work


def product(size: int, us: float, device: str) -> Measures:
    """One square product in half precision."""
    builder = TraceBuilder(devices=[Device(0, device)])
    builder.operator("aten::mm", 0, 10, shapes=f"[[{size},{size}],[{size},{size}]]")
    builder.kernel(HALF, 20, 20 + us, launch=(5, 8))
    return Measures(builder.build())


def test_a_large_product_is_bound_by_arithmetic_and_a_small_one_by_memory() -> None:
    large = product(8192, 2_000, "NVIDIA H200").matrix_limits
    assert large is not None
    # 2 x 8192^3 operations at 989.4 TFLOPS are 1,111 µs
    assert large.limit_ns == pytest.approx(2 * 8192**3 / 989.4e12 * 1e9, abs=1)
    assert (large.kernel_ns, large.memory_bound_ns) == (2_000_000, 0)
    small = product(256, 10, "NVIDIA H200").matrix_limits
    assert small is not None
    # 3 x 256 x 256 elements of two bytes at 4.8 TB/s
    assert small.limit_ns == round(3 * 256 * 256 * 2 / 4.8e12 * 1e9)
    assert small.memory_bound_ns == 10_000


def test_an_unlisted_device_or_a_recording_without_shapes_is_not_judged() -> None:
    assert product(256, 10, "some other device").matrix_limits is None
    builder = TraceBuilder(devices=[Device(0, "NVIDIA H200")])
    builder.operator("aten::mm", 0, 10)
    builder.kernel(HALF, 20, 30, launch=(5, 8))
    assert Measures(builder.build()).matrix_limits is None


def test_names_of_devices_choose_the_most_telling_entry() -> None:
    assert peaks_of("NVIDIA H100 PCIe") != peaks_of("NVIDIA H100 80GB HBM3")
    assert peaks_of("NVIDIA A100-SXM4-80GB") != peaks_of("NVIDIA A100-SXM4-40GB")
    assert peaks_of("Graphics") is None


@pytest.mark.shared
def test_a_real_recording_takes_longer_than_its_limit() -> None:
    (trace,) = open_recording(shared("traces/h200/stack_mem.pt.trace.json.gz")).traces
    found = Measures(trace).matrix_limits
    assert found is not None
    assert found.operators > 100
    assert 0 < found.limit_ns < found.kernel_ns
