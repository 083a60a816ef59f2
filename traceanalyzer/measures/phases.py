"""What the names of host slices mean: phases of a step, the loader's ``next``, operators that search for plans."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import PHASE_CODE, Phase

# a slice's traits are these bits, with the phase code + 1 in the lowest four
PHASE_BITS = 15
LOADER = 16  # the loader's ``next``
OPERATOR = 32  # a framework or library operator
PLANNED = 64  # an operator that picks a kernel plan by shape
COLLECTION = 128  # garbage collection
OS_CALL = 256  # an operating-system call: never changes the cause
EVALUATION = 512  # the autograd engine evaluating one node
STICKY = 1024  # validate, checkpoint, log: what is inside keeps this phase

TraitArray = npt.NDArray[np.int16]

_BLOCK = 1 << 16  # names looked at at a time

_LOADER = re.compile(r"enumerate\(DataLoader\)#|DataLoaderIter\.__next__")
_LOADER_FRAME = re.compile(r"torch[/\\]utils[/\\]data[/\\]dataloader\.py\(\d+\): __next__")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")
_OPERATOR_NAME = re.compile(r"[A-Za-z_]\w*::\w")
_PLANNED = re.compile(
    r"conv(?:olution|\d|_)|(?:^|::|_)(?:mm|addmm|bmm|baddbmm|addbmm|matmul|linear|addmv|mv)(?:$|_)|attention|flash_attn"
    r"|compiled|inductor|triton|cudnn|miopen",
    re.IGNORECASE,
)
_LIBRARY_DOMAINS = re.compile(
    r"cccl|cub|thrust|nccl|rccl|cu(?:dnn|blas|solver|sparse|fft|rand|tensor)\w*|nvjpeg|tensorrt|dali|nvshmem|npp",
    re.IGNORECASE,
)
_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction|CompiledFxGraph")
_EVALUATION = "autograd::engine::evaluate_function"


@lru_cache(maxsize=65536)
def phase_of(name: str) -> Phase | None:
    """Return the phase a range's name stands for.

    Args:
        name: Range name, with or without ``phase:``.

    Returns:
        The phase, or None for a name that names none.
    """
    bare = name.removeprefix("phase:").strip().lower()
    if bare in PHASE_CODE:
        return Phase(bare)
    if _LOADER.search(name):
        return Phase.DATA
    if _OPTIMIZER.search(name):
        return Phase.OPTIMIZER
    return None


def is_library_domain(domain: str) -> bool:
    """Say whether an NVTX domain belongs to a library (CCCL, NCCL …), whose ranges the user did not write."""
    return _LIBRARY_DOMAINS.fullmatch(domain) is not None


def in_library_domain(trace: Trace) -> npt.NDArray[np.bool_]:
    """Say which slices lie in an NVTX domain of a library; bool, one per row of ``trace.slices``."""
    domain = trace.slices.domain
    library = np.zeros(len(trace.names) + 1, dtype=np.bool_)  # the last entry stands for -1
    for code in np.unique(domain):
        library[code] = code >= 0 and is_library_domain(trace.names[code])
    return library[domain]


def slice_traits(trace: Trace) -> TraitArray:
    """Return the traits of every host slice.

    Args:
        trace: The recording.

    Returns:
        int16 array, one set of bits per row of ``trace.slices``.
    """
    slices = trace.slices
    width = len(trace.names) + 1
    table = np.zeros((len(SliceKind), width), dtype=np.int16)
    used = np.zeros((len(SliceKind), width), dtype=np.bool_)
    used[slices.kind, slices.name] = True
    for kind in SliceKind:
        codes = np.flatnonzero(used[kind])
        # block by block: as Python's numbers, millions of codes would take more than the names themselves
        for block in np.split(codes, range(_BLOCK, len(codes), _BLOCK)):
            found = [_traits(kind, trace.names[code] if code < width - 1 else "") for code in block.tolist()]
            table[kind, block] = np.array(found, dtype=np.int16)
    traits = table[slices.kind, slices.name]
    traits[in_library_domain(trace)] = OPERATOR
    return traits


@lru_cache(maxsize=131072)  # steps and the host timeline ask for the same names
def _traits(kind: SliceKind, name: str) -> int:
    if kind == SliceKind.OS_CALL:
        return OS_CALL
    if kind == SliceKind.GARBAGE_COLLECTION:
        return COLLECTION
    if kind == SliceKind.PYTHON:
        return LOADER if _LOADER_FRAME.search(name) else 0
    loader = _LOADER.search(name) is not None
    # old recordings file the loader's and the optimizer's own ranges under operators
    phase = phase_of(name) if kind == SliceKind.ANNOTATION or loader or _OPTIMIZER.search(name) else None
    bits = 0
    if phase is not None:
        bits |= PHASE_CODE[phase] + 1
        if phase in (Phase.VALIDATE, Phase.CHECKPOINT, Phase.LOG):
            bits |= STICKY
        if phase is Phase.DATA:
            bits |= LOADER
    elif kind == SliceKind.OPERATOR or _OPERATOR_NAME.match(name) or _COMPILED.search(name):
        bits |= OPERATOR
        if _EVALUATION in name:
            bits |= EVALUATION
        elif _PLANNED.search(name):
            bits |= PLANNED
    return bits
