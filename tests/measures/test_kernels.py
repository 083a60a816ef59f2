"""Kernel sums by name and family."""

from __future__ import annotations

from tests.builders import TraceBuilder
from tests.measures.handmade import steps_of
from traceanalyzer.measures.kernels import PRECISIONS, is_communication, measure_kernels

_VECTOR = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)"
)
_UNROLLED = (
    "void at::native::unrolled_elementwise_kernel<at::native::AddFunctor<float>, std::array<char*, 3ul>, 4>(int)"
)


def test_sums_are_by_name_and_rank_by_time() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 5)
    builder.kernel("b", 5, 25)
    builder.kernel("a", 25, 30)
    report = measure_kernels(builder.build(), steps_of()).report
    assert (report.count, report.time_sum_ns) == (3, 30_000)
    assert [(t.name, t.count, t.time_ns) for t in report.top] == [("b", 1, 20_000), ("a", 2, 10_000)]


def test_concurrent_kernels_add_up() -> None:
    builder = TraceBuilder()
    builder.kernel("a", 0, 100)
    builder.kernel("a", 80, 150)
    assert measure_kernels(builder.build(), steps_of()).report.time_sum_ns == 170_000


def test_vectorised_and_unrolled_variants_share_a_family() -> None:
    builder = TraceBuilder()
    builder.kernel(_VECTOR, 0, 5)
    builder.kernel(_UNROLLED, 5, 9)
    builder.kernel("other_thing", 9, 10)
    kernels = measure_kernels(builder.build(), steps_of())
    assert [kernels.families[code] for code in kernels.family] == ["elementwise add float"] * 2 + ["other_thing"]
    assert len(kernels.report.top) == 3


def test_kernels_belong_to_the_window_that_launched_them() -> None:
    builder = TraceBuilder()
    builder.kernel("late", 15, 20, launch=(5, 6))
    builder.kernel("unlinked", 25, 26)
    builder.kernel("outside", 60, 61, launch=(55, 56))
    assert measure_kernels(builder.build(), steps_of((0, 10), (10, 50))).window.tolist() == [0, 1, -1]


def test_copies_and_memsets_are_no_kernels() -> None:
    builder = TraceBuilder()
    builder.copy(0, 5)
    builder.memset(6, 7)
    kernels = measure_kernels(builder.build(), steps_of())
    assert kernels.report.count == 0
    assert kernels.families == ()


def test_traits_are_spread_over_the_rows() -> None:
    builder = TraceBuilder()
    builder.kernel("nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_splitK_NTT", 0, 5, grid_blocks=12, block_threads=256)
    builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 5, 6)
    builder.kernel("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float>(int)", 6, 7)
    kernels = measure_kernels(builder.build(), steps_of())
    assert kernels.uses_tensor_cores.tolist() == [1, 0, 0]
    assert kernels.is_matrix.tolist() == [1, 0, 0]
    assert kernels.is_communication.tolist() == [0, 1, 0]
    assert kernels.is_layout_conversion.tolist() == [0, 0, 1]
    assert PRECISIONS[kernels.precision[0]] == "fp16"
    assert kernels.grid_blocks.tolist() == [12, -1, -1]
    assert kernels.block_threads.tolist() == [256, -1, -1]


def test_collectives_are_known_by_name() -> None:
    assert is_communication("ncclKernel_AllReduce_RING_LL_Sum_float")
    assert is_communication("void ncclDevKernel_Generic(ncclDevComm*)")
    assert not is_communication("elementwise_kernel")


def test_families_are_split_by_precision_and_sum_to_the_kernel_time() -> None:
    builder = TraceBuilder()
    builder.kernel(_VECTOR, 0, 5)
    builder.kernel(_UNROLLED, 5, 9)
    builder.kernel("nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_splitK_NTT", 9, 29)
    for i in range(60):
        builder.kernel(f"small_{chr(97 + i % 26)}{chr(97 + i // 26)}", 30 + i, 31 + i)
    report = measure_kernels(builder.build(), steps_of()).report
    assert [(f.family, f.precision, f.count, f.time_ns) for f in report.families[:2]] == [
        ("nvjet gemm hsh", "fp16", 1, 20_000),
        ("elementwise add float", "fp32", 2, 9_000),
    ]
    # 62 families, of which 40 are named
    assert [(f.family, f.count) for f in report.families[40:]] == [("other", 22)]
    assert sum(f.time_ns for f in report.families) == report.time_sum_ns
