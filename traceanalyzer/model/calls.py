"""Classification of CUDA, HIP and driver API names: the one list of what each call does to the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from traceanalyzer.model.schema import ByteArray, CallKind, CodeArray, distinct_codes

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds|_v\d+_ptsz)+$")

# first match wins; names are matched without the suffixes nsys adds (_v3020, _v2_ptsz)
_PATTERNS: tuple[tuple[re.Pattern[str], CallKind], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(cuda|hip)LaunchHostFunc|cuLaunchHostFunc", CallKind.OTHER),  # enqueues host work, no activity
        (r"(cudaGraphLaunch|cuGraphLaunch|hipGraphLaunch)$", CallKind.GRAPH_LAUNCH),
        (
            r"(cuda|hip)(Launch|ExtLaunch|ModuleLaunch|ExtModuleLaunch|LaunchCooperative|Drv|HccModuleLaunch)\w*"
            r"|cuLaunch\w*|hipDrvLaunch\w*",
            CallKind.LAUNCH,
        ),
        (r"(cuda|hip)StreamWaitEvent|cuStreamWait(Event|Value)\w*", CallKind.STREAM_WAIT),
        (
            r"(cuda|hip)(Device|Stream|Event|Ctx)Synchronize|cu(Ctx|Stream|Event)Synchronize|cudaThreadSynchronize",
            CallKind.SYNCHRONIZE,
        ),
        (r"(cuda|hip)Memcpy\w*Async|cuMemcpy\w*Async|(cuda|hip)MemcpyBatch\w*", CallKind.COPY),
        (r"(cuda|hip)Memcpy\w*|cuMemcpy\w*", CallKind.BLOCKING_COPY),
        (r"(cuda|hip)Memset\w*|cuMemset\w*", CallKind.MEMSET),
        (
            r"(cuda|hip)(HostAlloc|MallocHost|HostMalloc|HostRegister)|cuMem(HostAlloc|AllocHost|HostRegister)",
            CallKind.HOST_ALLOC,
        ),
        (r"(cuda|hip)(FreeHost|HostFree|HostUnregister)|cuMem(FreeHost|HostUnregister)", CallKind.HOST_FREE),
        (
            r"(cuda|hip)(Malloc|ExtMalloc)\w*|cuMem(Alloc|Create|Map|AddressReserve|SetAccess|AllocAsync|AllocFromPool)\w*"
            r"|hipMem(Create|Map|AddressReserve|SetAccess)",
            CallKind.DEVICE_MALLOC,
        ),
        (
            r"(cuda|hip)Free\w*|cuMem(Free|Unmap|Release|AddressFree)\w*|hipMem(Unmap|Release|AddressFree)",
            CallKind.DEVICE_FREE,
        ),
        (
            r"cu(Module|Library)\w*Load\w*|cu(Module|Library)Get\w*|(cuda|hip)(Module|Library)\w*Load\w*",
            CallKind.MODULE_LOAD,
        ),
    )
)


def strip_version(name: str) -> str:
    """Remove the entry-point suffixes nsys keeps, for example ``cudaLaunchKernel_v7000``."""
    return _SUFFIX.sub("", name)


@lru_cache(maxsize=4096)
def classify(name: str) -> CallKind:
    """Say what a runtime or driver call does to the host.

    Args:
        name: API name, with or without a version suffix.

    Returns:
        The kind; ``CallKind.OTHER`` for calls that neither enqueue, wait, allocate nor load.
    """
    bare = strip_version(name)
    for pattern, kind in _PATTERNS:
        if pattern.match(bare):
            return kind
    return CallKind.OTHER


def classify_column(name_codes: CodeArray, names: Sequence[str]) -> ByteArray:
    """Classify a whole column of name codes.

    Args:
        name_codes: Codes into ``names``.
        names: The string table.

    Returns:
        int8 array of ``CallKind``, one per row.
    """
    table = np.zeros(len(names) + 1, dtype=np.int8)
    for code in distinct_codes(name_codes):
        table[code] = classify(names[code]) if code >= 0 else CallKind.OTHER
    return table[name_codes]
