"""Which operator encloses which call: one sweep over the operators and calls of every thread."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import nest
from traceanalyzer.model.schema import (
    CodeArray,
    IntArray,
    SliceKind,
    among,
    distinct_codes,
)
from traceanalyzer.model.trace import Trace

# ranges that older PyTorch versions write as operators
RANGE_WRITTEN_AS_OPERATOR = re.compile(
    r"^(ProfilerStep\b|enumerate\(DataLoader\)|Optimizer\.(step|zero_grad)|## |phase:)"
)


@dataclass(frozen=True, slots=True)
class HostNesting:
    """Operators and calls in one order: sorted by thread, start, falling end, slices before calls.

    ``rows of operators`` are rows of ``Trace.slices``; -1 stands for "none".

    Attributes:
        operator: Rows of ``Trace.slices`` that are operators.
        own_ns: For each of them, time not in nested operators or calls.
        call_innermost: For each row of ``Trace.calls`` the innermost enclosing operator.
        call_outermost: For each row of ``Trace.calls`` the outermost enclosing operator.
    """

    operator: IntArray
    own_ns: IntArray
    call_innermost: CodeArray
    call_outermost: CodeArray


def nest_host(trace: Trace) -> HostNesting:
    """Nest a trace's operators and calls."""
    slices, calls = trace.slices, trace.calls
    operators = np.flatnonzero(slices.kind == SliceKind.OPERATOR)
    codes = distinct_codes(slices.name[operators])
    ranges = [code for code in codes.tolist() if code >= 0 and RANGE_WRITTEN_AS_OPERATOR.match(trace.names[code])]
    if ranges:
        operators = operators[~among(slices.name[operators], ranges)]
    thread = np.concatenate((slices.thread[operators], calls.thread))
    start = np.concatenate((slices.start_ns[operators], calls.start_ns))
    end = np.concatenate((slices.end_ns[operators], calls.end_ns))
    is_operator = np.zeros(len(start), dtype=np.int8)
    is_operator[: len(operators)] = 1
    # an operator and its only call may share both times: the operator is the outer one
    order = np.lexsort((1 - is_operator, -end, start, thread))
    innermost, outermost = (np.empty(len(start), dtype=np.int32) for _ in range(2))
    nested = np.empty(len(start), dtype=np.int64)
    nest(thread[order], start[order], end[order], is_operator[order], innermost, outermost, nested)
    back = np.empty(len(start), dtype=np.int64)
    back[order] = np.arange(len(start))
    # position in the sweep → row of Trace.slices; the last entry answers -1
    source = np.full(len(start) + 1, -1, dtype=np.int32)
    source[back[: len(operators)]] = operators
    of_operators, of_calls = back[: len(operators)], back[len(operators) :]
    return HostNesting(
        operator=operators,
        own_ns=slices.end_ns[operators] - slices.start_ns[operators] - nested[of_operators],
        call_innermost=source[innermost[of_calls]],
        call_outermost=source[outermost[of_calls]],
    )
