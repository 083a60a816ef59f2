"""What kernel names tell; the names are as recorders wrote them."""

from __future__ import annotations

import json
from gzip import decompress

import pytest

from tests.shared_data import shared, shared_files
from traceanalyzer.measures.kernel_names import Precision, family, is_communication, traits

_SILU_KINETO = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::silu_kernel("
    "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#5}::operator()() const::"
    "{lambda(c10::Half)#1}, std::array<char*, 2ul> >(int, float)"
)
_SILU_NSYS = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel(at::TensorIteratorBase "
    "&)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 5)]::operator ()() const::"
    "[lambda(c10::Half) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
_MUL = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, "
    "float, float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&, at::native::Binary"
    "Functor<float, float, float, at::native::binary_internal::MulFunctor<float> > const&)::{lambda(int)#1}>(int, f)"
)
_SUM = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
    "unsigned int, float, 4> >(at::native::ReduceOp<float>)"
)
_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, "
    "std::plus<float>, float>(int)"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (_SILU_KINETO, "elementwise silu half"),
        (_SILU_NSYS, "elementwise silu half"),
        (_MUL, "elementwise mul float"),
        (_SUM, "reduce sum float"),
        (_ADAM, "multi_tensor_apply binary_op_list_alpha float"),
        ("nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_splitK_NTT", "nvjet gemm hsh"),
        ("nvjet_sm90_hsh_128x128_64x6_2x4_h_bz_TNT", "nvjet gemm hsh"),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "nvjet gemm tst"),
        (
            "sm90_xmma_wgrad_indexed_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1"
            "_g1_execute_segment_k_on_kernel__5x_cudnn",
            "sm90_xmma_wgrad_indexed_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc__5x_cudnn",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4>(int)",
            "cutlass_80_tensorop_s1688gemm_nt",
        ),
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("triton__0d1d2d3d4d", "triton"),
        ("volta_sgemm_64x64_nt", "volta_sgemm_nt"),
        ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN", "Cijk_Ailk_Bjlk_SB"),
        (
            "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half, float, __half, 512, 16, 5>(cudnn::Params<__half>)",
            "batchnorm_fwtr_nhwc_semiPersist half",
        ),
        ("my_own_kernel", "my_own_kernel"),
        ("", ""),
    ],
)
def test_families_are_readable_and_shared_by_variants(name: str, expected: str) -> None:
    assert family(name) == expected


@pytest.mark.parametrize(
    ("name", "precision", "tensor_cores"),
    [
        ("nvjet_sm90_hsh_64x32_64x16_1x2_h_bz_splitK_NTT", Precision.FP16, True),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", Precision.BF16, True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", Precision.BF16, True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_tensor16x8x8", Precision.TF32, True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_aligna4", Precision.FP32, False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(int)", Precision.FP32, False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4>(int)", Precision.TF32, True),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(int)",
            Precision.BF16,
            True,
        ),
        (
            "void cutlass::Kernel2<cutlass_75_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_nt>(int)",
            Precision.FP16,
            True,
        ),
        ("volta_sgemm_64x64_nt", Precision.FP32, False),
        ("ampere_sgemm_128x64_tn", Precision.FP32, False),
        ("volta_scudnn_128x64_relu_interior_nn_v1", Precision.FP32, False),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>>(x)",
            Precision.BF16,
            True,
        ),
        ("nvjet_sm100_tst_128x256_64x4_2x1_2cta_h_bz_TNT", Precision.BF16, True),
        ("nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT", Precision.FP8, True),
        ("sm100_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cga1x1x1_kernel", Precision.BF16, True),
        ("cutlass3x_sm100_tensorop_s128x256x16gemm_f16_f16_f32_f16_f16_128x256x64_0_tnn", Precision.FP16, True),
        ("cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f16_128x128x64_2x1x1", Precision.FP16, True),
        (
            "cutlass3x_sm100_bstensorop_s128x256x64gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16_bf16_128x256x256",
            Precision.FP4,
            True,
        ),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512u2_s7_et128x8_m128x8x64", Precision.FP4, True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x64", Precision.FP16, True),
        ("cudnn_generated_fort_native_sdpa_sm100_flash_fprop_f16_knob_31_128x128x128", Precision.FP16, True),
        ("fmhaSm100aKernel_QkvBfloat16OBfloat16H128PagedKv", Precision.BF16, True),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl", Precision.FP8, True),
        ("triton_tem_fused_mm_3", Precision.UNKNOWN, False),
        ("triton_tem_fused_addmm_relu_7", Precision.UNKNOWN, False),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256_MI16x16x1_SN", Precision.BF16, True),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", Precision.FP32, False),
    ],
)
def test_matrix_kernels_tell_precision_and_tensor_cores(name: str, precision: Precision, tensor_cores: bool) -> None:
    found = traits(name)
    assert found.is_matrix
    assert found.precision is precision
    assert found.uses_tensor_cores is tensor_cores


@pytest.mark.parametrize(
    "name",
    [
        _SILU_KINETO,
        "triton_poi_fused_add_mul_3",
        "triton_red_fused_convolution_backward_2",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half>(x)",
        "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
    ],
)
def test_helpers_and_elementwise_kernels_are_no_matrix_work(name: str) -> None:
    assert not traits(name).is_matrix
    assert not traits(name).uses_tensor_cores


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
        "void ncclDevKernel_Generic<>(x)",
        "rcclGenericKernel",
    ],
)
def test_nccl_and_rccl_kernels_are_communication(name: str) -> None:
    assert is_communication(name)
    assert traits(name).is_communication
    assert not traits(name).is_matrix


@pytest.mark.parametrize(
    "name",
    [
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>(x)",
        "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false>(x)",
        "void tensorTransformGeneric<__half, __half, float, true, false, false>(x)",
        "batched_transpose_16x32_half",
    ],
)
def test_layout_conversions_are_recognised(name: str) -> None:
    assert traits(name).is_layout_conversion


def test_a_mangled_name_is_called_by_its_longest_word() -> None:
    name = "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_3fooILi64ELi64EEEEEEEvi"
    assert family(name) == "mangled ImplicitGemmConvolution"


def test_a_name_cut_short_by_the_recorder_still_has_a_family() -> None:
    assert family(_SILU_KINETO[:90]) != ""


@pytest.mark.shared
def test_no_real_kernel_name_is_without_a_family() -> None:
    shared("traces/public")
    files = [f for f in shared_files("traces/public/tracelens/*.json.gz") if f.stat().st_size < 3_000_000]
    names = set()
    for file in files:
        events = json.loads(decompress(file.read_bytes()))["traceEvents"]
        names |= {e["name"] for e in events if e.get("cat") == "kernel"}
    assert len(names) > 100
    assert all(family(name).strip() for name in names)
    # families exist to merge: clearly fewer of them than names
    assert len({family(name) for name in names}) < 0.8 * len(names)
