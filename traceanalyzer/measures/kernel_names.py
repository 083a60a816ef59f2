"""What a kernel name tells: a readable family shared by its variants, its precision, and what kind of work it is.

Names come as Kineto demangles them (``{lambda(float)#1}``, ``(anonymous namespace)``), as Nsight Systems does
(``[lambda(float) (instance 1)]``, ``<unnamed>``) or mangled; all three are brought to one spelling first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Precision(StrEnum):
    """Arithmetic a kernel works in, as far as its name tells."""

    UNKNOWN = "unknown"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"
    INT8 = "int8"
    FP4 = "fp4"


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """Facts read from a kernel name.

    Attributes:
        family: Readable name shared by the variants of one kernel.
        precision: Arithmetic.
        is_matrix: Matrix product, convolution or attention: the work tensor cores exist for.
        uses_tensor_cores: A tensor-core (or AMD matrix-core) kernel.
        is_communication: NCCL or RCCL collective.
        is_layout_conversion: Converts between tensor layouts (NCHW, NHWC).
    """

    family: str
    precision: Precision
    is_matrix: bool
    uses_tensor_cores: bool
    is_communication: bool
    is_layout_conversion: bool


_COMMUNICATION = re.compile(
    r"^(void )?(nccl|rccl|msccl)\w*|^(ncclDevKernel|ncclKernel)|nvshmem\w*(put|get|barrier|signal)"
    r"|\b(one|two)_shot_all_reduce|cross_device_reduce|multimem_\w*all_?(reduce|gather)",
    re.IGNORECASE,
)
_LAYOUT = re.compile(
    r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|tensortransformgeneric|batched_transpose|kern_(nchw|nhwc)_to"
    r"|nhwctofoldednhwc|foldednhwc|transpose_readwrite|nchwaddpadding",
    re.IGNORECASE,
)
# attention before matrix products: both are matrix work, and the order only matters for reading
_MATRIX = re.compile(
    r"(?<!fb)gemm|matmul|nvjet_|fprop|dgrad|wgrad|winograd|convolve|conv2d|conv3d|implicit_con|scudnn|hcudnn|cijk_|flash_(fwd|bwd)"
    r"|flash::|fmha|attn_(fwd|bwd)|attention_kernel|_mma_|gemv|depthwise|miopensp3asm|^bmm_|triton_(tem_\w*_?)?(mm|addmm|bmm|baddbmm|convolution|conv|flex_attention)(?![a-z])|grouped_conv_",
    re.IGNORECASE,
)
# parts of a matrix product that are not the product itself
_NOT_MATRIX = re.compile(
    r"splitkreduce|reducesplitk|computeoffsets|offsetskernel|init_device_workspace|winogradforward(data|filter|output)"
    r"|winogradwgrad(data|delta|output)|winograd_nonfused|nchwtonhwc|nhwctonchw|generatewinogradtiles",
    re.IGNORECASE,
)
_SIMT = re.compile(r"simt|ffma|_f32f32_f32f32_|volta_sgemm|scudnn|[a-z]_sgemm_\d|dgemm", re.IGNORECASE)
_TENSOR_CORE = re.compile(
    r"tensorop|_tensor\d+x\d+x\d+|hmma|imma|wgmma|gmma|nvjet_|warpgroupsize|tcgen05"
    r"|(?<![a-z])(s|h|i|d)(884|1688|16816|16832|161616|8816)(gemm|fprop|dgrad|wgrad|cudnn|_)?"
    r"|flash_(fwd|bwd)|flash::|fmha|native_sdpa|tf32f32|_f16f16_|_bf16bf16_|_MI\d+x\d+x\d+|e4m3|e5m2|igemm_(fwd|bwd|wrw)_gtcx|xdl|^bmm_",
    re.IGNORECASE,
)
# operand types letter by letter, the input first; with scaled types there are more than three
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])([a-z]{2,5})_", re.IGNORECASE)
_NVJET_INPUT = {
    "h": Precision.FP16,
    "t": Precision.BF16,
    "q": Precision.FP8,
    "s": Precision.TF32,
    "d": Precision.FP64,
    "i": Precision.INT8,
}
_TENSILE = re.compile(r"^Cijk_\w+?_(?:(BBS|BSS|HHS|HSS|HH|SB|S_B|DB|SS|F8\w*|I8\w*|4xi8\w*)_)")
_TENSILE_TYPE = {
    "B": Precision.BF16,
    "H": Precision.FP16,
    "S": Precision.FP32,
    "D": Precision.FP64,
    "F": Precision.FP8,
    "I": Precision.INT8,
    "4": Precision.INT8,
}
# first match wins: a mixed-precision name is called by its narrow operand
_PRECISION: tuple[tuple[re.Pattern[str], Precision], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), precision)
    for pattern, precision in (
        (r"e2m1|fp4|mxf4", Precision.FP4),
        (r"e4m3|e5m2|fp8|float8", Precision.FP8),
        (r"bf16|bfloat16", Precision.BF16),
        (r"tf32", Precision.TF32),
        (
            r"f16|fp16|half|(?<![a-z])h(gemm|884|1688|16816|161616)|hcudnn|(?<![a-z])h?s16816(?!\w*tf32)|s161616",
            Precision.FP16,
        ),
        (r"(?<![a-z])i(8|16832|8816)|int8|imma", Precision.INT8),
        (r"(?<![a-z])s1688", Precision.TF32),
        (r"double|f64|dgemm|fp64", Precision.FP64),
        (r"float|f32|sgemm|fp32|scudnn|ffma", Precision.FP32),
    )
)


@lru_cache(maxsize=65536)
def traits(name: str) -> KernelTraits:
    """Read everything a kernel name tells.

    Args:
        name: Kernel name as the recording holds it.
    """
    is_communication = _COMMUNICATION.search(name) is not None
    is_matrix = not is_communication and _MATRIX.search(name) is not None and _NOT_MATRIX.search(name) is None
    precision = _precision(name)
    # plain cores multiply nothing that narrow
    is_narrow = precision in (Precision.FP8, Precision.FP4)
    is_tensor_core = is_narrow or (_TENSOR_CORE.search(name) is not None and _SIMT.search(name) is None)
    return KernelTraits(
        family=family(name),
        precision=precision,
        is_matrix=is_matrix,
        uses_tensor_cores=is_matrix and is_tensor_core,
        is_communication=is_communication,
        is_layout_conversion=_LAYOUT.search(name) is not None,
    )


def is_communication(name: str) -> bool:
    """Say whether a kernel name is a NCCL or RCCL collective."""
    return _COMMUNICATION.search(name) is not None


def _precision(name: str) -> Precision:
    nvjet = _NVJET.search(name)
    if nvjet is not None:
        return _NVJET_INPUT.get(nvjet.group(1).lower(), Precision.UNKNOWN)
    tensile = _TENSILE.match(name)
    if tensile is not None:
        return _TENSILE_TYPE[tensile.group(1)[0]]
    for pattern, precision in _PRECISION:
        if pattern.search(name):
            return precision
    return Precision.UNKNOWN


# ---------------------------------------------------------------- families

_NSYS_LAMBDA = re.compile(r"\[lambda\((.*?)\) \(instance (\d+)\)\]")
_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|long|short|char|bool|long long)\)(?=-?\d)")
_TYPE_WORDS = {
    "float": "float",
    "double": "double",
    "c10::Half": "half",
    "__half": "half",
    "c10::BFloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "long": "long",
    "int": "int",
    "bool": "bool",
    "short": "short",
    "char": "char",
    "signed char": "char",
    "unsigned char": "uchar",
}
_TYPE = re.compile(rf"(?<![\w:])({'|'.join(sorted(_TYPE_WORDS, key=len, reverse=True))})(?![\w:])")
_LAMBDA_ARGUMENTS = re.compile(r"\{lambda\(([^{}]*?)\)#\d+\}")
_NUMBER = re.compile(r"-?\d+(ul|u|l)?$|true$|false$")
# wrappers whose last meaningful template argument is the real operation
_WRAPPERS = (
    "gpu_kernel_impl_nocast",
    "gpu_kernel_impl",
    "BUnaryFunctor",
    "AUnaryFunctor",
    "BinaryFunctor",
    "func_wrapper_t",
    "ReduceOp",
    "gpu_index_kernel",
    "opmath_gpu_kernel_with_scalars",
)
_ELEMENTWISE = re.compile(r"^(vectorized_|unrolled_|legacy_)*(templated_)?elementwise_kernel(_\w+)?$")
_NOISE_SUFFIX = re.compile(r"(_kernel_cuda|_kernel_impl|_kernel|_cuda|_cuda_out|_impl|Functor|_functor|_out)+$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TILES = re.compile(
    r"(_|^)(tilesize\d+x\d+x\d+|tile\d+x\d+x\d+|\d+x\d+(x\d+)*|stages?\d+|stage\d|warpsize\d+x\d+x\d+|warpgroupsize\d+x\d+x\d+|g\d"
    r"|tensor\d+(x\d+x\d+)?|align\w?\d+|aligna\d|alignc\d|t\dr\ds\d|execute|kernel(?=_kernel|__5x)|cluster\d+x\d+x\d+|execute_segment_k_(on|off)"
    r"|segment_k_(on|off)|ldg\d|sliced\d+x\d+|v\d|bz|k\d+c\d+r\d+s\d+|stride\d+x\d+)(?=_|$)"
)


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """Shorten a kernel name to what its vectorised, unrolled and tiled variants share.

    Args:
        name: Kernel name as the recording holds it.

    Returns:
        For example ``"elementwise silu half"``, ``"reduce sum float"``, ``"nvjet gemm hsh"``.
    """
    text = _one_spelling(name)
    base, arguments = _split(text)
    short = base.rsplit("::", 1)[-1]
    if _ELEMENTWISE.match(short):
        return _with_operation("elementwise", arguments)
    if short.startswith("reduce_kernel"):
        return _with_operation("reduce", arguments)
    if short.startswith("index_elementwise_kernel"):
        # the element type is an opaque size class here, not worth a family of its own
        return _with_operation("elementwise", arguments).removesuffix(" char")
    if short.startswith("elementwise_kernel_with_index"):
        return _with_operation("elementwise with index", arguments)
    if short.startswith("multi_tensor_apply_kernel"):
        return _with_operation("multi_tensor_apply", [a for a in arguments if "TensorListMetadata" not in a])
    return _named(short, base, arguments)


def _one_spelling(name: str) -> str:
    text = (
        name.strip()
        .replace("(anonymous namespace)::", "")
        .replace("<unnamed>::", "")
        .replace("operator ()", "operator()")
    )
    text = _NSYS_LAMBDA.sub(r"{lambda(\1)#\2}", text)
    text = _CAST.sub("", text)
    if text.startswith("std::enable_if<"):
        end = text.find(">::type ")
        text = text[end + len(">::type ") :] if end >= 0 else text
    return text.removeprefix("static ").removeprefix("void ")


def _split(text: str) -> tuple[str, list[str]]:
    """Split ``name<args>(parameters)`` into the name and its top-level template arguments."""
    opening = len(text)
    for position, letter in enumerate(text):
        if letter in "<(" and position > 0:
            opening = position
            break
    base = text[:opening].strip()
    if opening >= len(text) or text[opening] != "<":
        return base, []
    return base, _template_arguments(text, opening)


def _template_arguments(text: str, opening: int) -> list[str]:
    arguments: list[str] = []
    depth, begin = 0, opening + 1
    position = opening
    while position < len(text):
        letter = text[position]
        if letter in "<({[":
            depth += 1
        elif letter in ">)}]" and not (letter == ">" and text[position - 1] == "-"):
            depth -= 1
            if depth == 0:
                arguments.append(text[begin:position].strip())
                return arguments
        elif letter == "," and depth == 1:
            arguments.append(text[begin:position].strip())
            begin = position + 1
        position += 1
    arguments.append(text[begin:].strip())  # a name cut short by the recorder
    return arguments


def _with_operation(kind: str, arguments: list[str]) -> str:
    meaningful = [a for a in arguments if a and not _NUMBER.match(a)]
    operations = [a for a in meaningful if a not in _TYPE_WORDS]
    if not operations:
        return kind
    operation, dtype = _operation(operations[0])
    if not dtype:
        dtype = next((_TYPE_WORDS[a] for a in meaningful if a in _TYPE_WORDS), "")
    return " ".join(part for part in (kind, operation, dtype) if part)


def _operation(argument: str, depth: int = 0) -> tuple[str, str]:
    """Name the operation behind wrappers, and the element type it works on."""
    base, inner = _split(argument)
    short = base.rsplit("::", 1)[-1]
    if depth < 4 and short in _WRAPPERS:
        for candidate in inner:
            if candidate in _TYPE_WORDS or _NUMBER.match(candidate):
                continue
            operation, dtype = _operation(candidate, depth + 1)
            if operation:
                own = next((_TYPE_WORDS[a] for a in inner if a in _TYPE_WORDS), "")
                return operation, dtype or own
    return _clean(short), _element_type(argument, inner)


def _element_type(argument: str, inner: list[str]) -> str:
    lambdas = [m for m in _LAMBDA_ARGUMENTS.findall(argument) if m]
    for text in [*reversed(lambdas), *inner]:
        found = _TYPE.search(text)
        if found:
            return _TYPE_WORDS[found.group(1)]
    return ""


def _clean(short: str) -> str:
    if short in ("", "operator"):
        return short
    text = short.removeprefix("CUDAFunctorOnSelf_").removeprefix("CUDAFunctorOnOther_").removeprefix("CUDAFunctor_")
    stripped = _NOISE_SUFFIX.sub("", text)
    return _CAMEL.sub("_", stripped or text).lower()


def _named(short: str, base: str, arguments: list[str]) -> str:
    nvjet = _NVJET.search(short)
    if nvjet is not None:
        return f"nvjet gemm {''.join(nvjet.groups())}"
    tensile = _TENSILE.match(short)
    if tensile is not None:
        return "_".join([*short.split("_")[:3], tensile.group(1)])
    if short.startswith("triton_"):
        return re.sub(r"_\d+$", "", re.sub(r"^triton__\w*$", "triton", short))
    if base.startswith("_Z"):
        return "mangled " + (_longest_word(short) or short[:40])
    if "cutlass" in base and arguments and re.match(r"Kernel\d*$", short):
        inner, _ = _split(arguments[0])
        return _untiled(inner.rsplit("::", 1)[-1])
    # index types say nothing about the work
    dtype = next((_TYPE_WORDS[a] for a in arguments if _TYPE_WORDS.get(a) in _FLOATING), "")
    plain = _untiled(_AMD_TILES.sub("", short))
    return f"{plain} {dtype}".strip()


def _untiled(text: str) -> str:
    previous = ""
    while previous != text:
        previous, text = text, _TILES.sub("", text)
    return text.strip("_") or previous


_AMD_TILES = re.compile(r"_bx\d_ex\d_bt\d+x.*$")
_DIGITS = re.compile(r"\d+")
_FLOATING = ("float", "double", "half", "bfloat16")
# literals (Li64E) and back references (S4_, S1A_) hold digits that are no length prefixes
_MANGLED_NUMBERS = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_")


def _longest_word(mangled: str) -> str:
    """Longest identifier of a mangled name, read by its length prefixes."""
    best, position = "", 0
    mangled = _MANGLED_NUMBERS.sub("", mangled[2:])
    while position < len(mangled):
        digits = _DIGITS.match(mangled, position)
        if digits is None:
            position += 1
            continue
        begin = digits.end()
        word = mangled[begin : begin + int(digits.group())]
        best = word if len(word) > len(best) and not word.startswith("_GLOBAL__") else best
        position = begin + max(int(digits.group()), 1)
    return best
