"""Host time of framework operators: calls, own time, and stretches without a launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.host_nesting import HostNesting, nest_host
from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Operators:
    """One row per operator name, by falling own time.

    Attributes:
        name: Operator name.
        count: Calls.
        own_ns: Host time in the operator itself: not in nested operators or calls.
        median_own_ns: Median own time of one call (the lower middle one of an even count).
        max_own_ns: Longest own time of one call.
        max_row: Row of ``Trace.slices`` of the call with the longest own time.
    """

    name: tuple[str, ...]
    count: IntArray
    own_ns: IntArray
    median_own_ns: IntArray
    max_own_ns: IntArray
    max_row: IntArray


def measure_operators(trace: Trace, nesting: HostNesting | None = None) -> Operators:
    """Measure the operators of a trace.

    Args:
        trace: The recording.
        nesting: Its operators and calls nested, where the caller has it already.
    """
    nesting = nesting if nesting is not None else nest_host(trace)
    rows, own = nesting.operator, nesting.own_ns
    if not len(rows):
        empty = np.zeros(0, dtype=np.int64)
        return Operators(name=(), count=empty, own_ns=empty, median_own_ns=empty, max_own_ns=empty, max_row=empty)
    code = trace.slices.name[rows]
    order = np.lexsort((own, code))
    code, own, rows = code[order], own[order], rows[order]
    first = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
    after = np.append(first[1:], len(code))
    total = np.add.reduceat(own, first)
    names = [trace.names[c] if c >= 0 else "" for c in code[first].tolist()]
    ranked = np.array(sorted(range(len(first)), key=lambda i: (-int(total[i]), names[i])), dtype=np.int64)
    return Operators(
        name=tuple(names[i] for i in ranked),
        count=(after - first)[ranked],
        own_ns=total[ranked],
        median_own_ns=own[first + (after - first - 1) // 2][ranked],
        max_own_ns=own[after - 1][ranked],
        max_row=rows[after - 1][ranked],
    )
