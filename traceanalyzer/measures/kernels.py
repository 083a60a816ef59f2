"""Kernel sums by name and family, and which kernels are collectives or tensor-core kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import sum_by, windows_of
from traceanalyzer.measures.kernel_names import KernelTraits, Precision, is_communication, traits
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ActivityKind, ByteArray, CodeArray, IntArray
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import KernelFamilyTotal, KernelsReport, KernelTotal

__all__ = ["PRECISIONS", "Kernels", "is_communication", "issue_window", "measure_kernels"]

PRECISIONS: tuple[Precision, ...] = tuple(Precision)  # codes of ``Kernels.precision``
MAX_NAMES = 50_000  # reading a name takes some 30 µs; a large training has a few thousand
TOP_KERNELS = 50
TOP_FAMILIES = 40


@dataclass(frozen=True, slots=True)
class Kernels:
    """One row per kernel, in time order.

    Attributes:
        activity: Row of ``Trace.activities``.
        window: Step window that launched it; -1 none.
        device: Device id.
        duration_ns: Kernel duration.
        family: Code into ``families``.
        families: Family names; vectorised and unrolled variants of one kernel share a family.
        precision: Code into ``PRECISIONS``: arithmetic, as far as the name tells.
        is_matrix: 1 for matrix products, convolutions and attention.
        uses_tensor_cores: 1 for tensor-core kernels.
        is_communication: 1 for collectives.
        is_layout_conversion: 1 for kernels converting between tensor layouts.
        grid_blocks: Thread blocks; -1 unknown.
        block_threads: Threads per block; -1 unknown.
        report: The document part.
    """

    activity: IntArray
    window: CodeArray
    device: CodeArray
    duration_ns: IntArray
    family: CodeArray
    families: tuple[str, ...]
    precision: ByteArray
    is_matrix: ByteArray
    uses_tensor_cores: ByteArray
    is_communication: ByteArray
    is_layout_conversion: ByteArray
    grid_blocks: IntArray
    block_threads: CodeArray
    report: KernelsReport


def issue_window(trace: Trace, activity: IntArray, steps: Steps) -> CodeArray:
    """Find the step window that issued activities: by their call's start, by their own start without a call.

    Args:
        trace: The recording.
        activity: Rows of ``Trace.activities``.
        steps: Step windows.

    Returns:
        int32 array of window indices; -1 none.
    """
    call = trace.activity_call[activity]
    issued = trace.activities.start_ns[activity].copy()
    linked = call >= 0
    issued[linked] = trace.calls.start_ns[call[linked]]
    return windows_of(issued, steps)


def measure_kernels(trace: Trace, steps: Steps) -> Kernels:
    """Measure the kernels of a trace."""
    activities = trace.activities
    rows = np.flatnonzero(activities.kind == ActivityKind.KERNEL)
    duration = activities.end_ns[rows] - activities.start_ns[rows]
    codes, position = np.unique(activities.name[rows], return_inverse=True)
    names = [trace.names[code] if code >= 0 else "" for code in codes.tolist()]
    time_sum = sum_by((len(codes),), (position,), duration)
    facts = _traits_of(names, time_sum, trace)
    families = tuple(sorted({fact.family for fact in facts}))
    family_code = {name: code for code, name in enumerate(families)}

    def spread(values: list[int]) -> ByteArray:
        return np.array(values, dtype=np.int8)[position] if len(rows) else np.zeros(0, dtype=np.int8)

    family = np.array([family_code[f.family] for f in facts], dtype=np.int32)
    count = np.bincount(position, minlength=len(codes)) if len(rows) else np.zeros(0, dtype=np.int64)
    order = sorted(range(len(codes)), key=lambda i: (-int(time_sum[i]), names[i]))
    return Kernels(
        activity=rows,
        window=issue_window(trace, rows, steps),
        device=activities.device[rows],
        duration_ns=duration,
        family=family[position] if len(rows) else np.zeros(0, dtype=np.int32),
        families=families,
        precision=spread([PRECISIONS.index(f.precision) for f in facts]),
        is_matrix=spread([f.is_matrix for f in facts]),
        uses_tensor_cores=spread([f.uses_tensor_cores for f in facts]),
        is_communication=spread([f.is_communication for f in facts]),
        is_layout_conversion=spread([f.is_layout_conversion for f in facts]),
        grid_blocks=activities.grid_blocks[rows],
        block_threads=activities.block_threads[rows],
        report=KernelsReport(
            count=len(rows),
            time_sum_ns=int(duration.sum()),
            top=[
                KernelTotal(
                    name=names[i],
                    count=int(count[i]),
                    time_ns=int(time_sum[i]),
                    family=facts[i].family,
                )
                for i in order[:TOP_KERNELS]
            ],
            families=_family_totals(facts, count.tolist(), time_sum.tolist()),
        ),
    )


def _traits_of(names: list[str], time_ns: IntArray, trace: Trace) -> list[KernelTraits]:
    """Read the names, those with most time where there are more than any program has."""
    if len(names) <= MAX_NAMES:
        return [traits(name) for name in names]
    read = set(np.argsort(time_ns, kind="stable")[-MAX_NAMES:].tolist())
    trace.integrity.note(
        f"{len(names):,} different kernel names; those beyond the {MAX_NAMES:,} with most time were not classified"
    )
    unread = traits("")
    return [traits(name) if place in read else unread for place, name in enumerate(names)]


def _family_totals(facts: list[KernelTraits], count: list[int], time_ns: list[int]) -> list[KernelFamilyTotal]:
    """Sum kernel names by family and precision, largest first; small families become one rest per precision."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for fact, names_count, names_ns in zip(facts, count, time_ns, strict=True):
        key = (fact.family, fact.precision.value)
        known = sums.get(key, (0, 0))
        sums[key] = (known[0] + names_count, known[1] + names_ns)
    ordered = sorted(sums, key=lambda key: (-sums[key][1], key))
    rest: dict[tuple[str, str], tuple[int, int]] = {}
    for key in ordered[TOP_FAMILIES:]:
        known = rest.get(("other", key[1]), (0, 0))
        rest["other", key[1]] = (known[0] + sums[key][0], known[1] + sums[key][1])
    return [
        KernelFamilyTotal(family=family, precision=precision, count=totals[0], time_ns=totals[1])
        for (family, precision), totals in [*((key, sums[key]) for key in ordered[:TOP_FAMILIES]), *rest.items()]
    ]
