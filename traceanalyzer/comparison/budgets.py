"""Absolute limits on the candidate, whatever the base did."""

from __future__ import annotations

import operator

import numpy as np

from traceanalyzer.comparison.metrics import series_of
from traceanalyzer.comparison.options import METRICS, Budget
from traceanalyzer.comparison.samples import Run
from traceanalyzer.errors import UsageError
from traceanalyzer.results.comparison import BudgetCheck
from traceanalyzer.units import format_bytes, format_ns

_OPERATORS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
TIMES = frozenset(m.name for m in METRICS)
SHARES = frozenset({"idle_share", "h2d_overlap"})
MEMORY = "peak_reserved_bytes"
_EXAMPLES = {"ns": "60ms", "%": "80%", "bytes": "20GiB", "": "100"}


def check_budget(budget: Budget, ranks: list[list[Run]]) -> BudgetCheck:
    """Measure a budget's quantity on every rank and hold the worst against the limit.

    Args:
        budget: The limit.
        ranks: Candidate runs of each rank.

    Returns:
        What was measured: ns per step, percent, bytes or counts per step; the mean over runs.

    Raises:
        UsageError: There is no such quantity, or it has another unit.
    """
    unit = _unit(budget, {n for runs in ranks for r in runs for n in r.counters})
    values = [_measure(budget.name, runs) for runs in ranks]
    known = [v for v in values if v is not None]
    # the rank that is furthest on the wrong side decides
    value = (max(known) if budget.operator.startswith("<") else min(known)) if known else None
    return BudgetCheck(
        expression=budget.expression,
        value=value,
        met=None if value is None else bool(_OPERATORS[budget.operator](value, budget.limit)),
        measured=None if value is None else _write(value, unit),
    )


def _unit(budget: Budget, counters: set[str]) -> str:
    if budget.name in TIMES:
        unit, allowed = "ns", {"ns"}
    elif budget.name in SHARES:
        unit, allowed = "%", {"%", ""}
    elif budget.name == MEMORY:
        unit, allowed = "bytes", {"bytes", ""}
    elif budget.name in counters:
        unit, allowed = "", {""}
    else:
        known = sorted(TIMES | SHARES | {MEMORY} | counters)
        raise UsageError(f"--budget {budget.expression}: no quantity {budget.name!r}; choose from {', '.join(known)}")
    if budget.unit not in allowed:
        example = f"{budget.name}{budget.operator}{_EXAMPLES[unit]}"
        raise UsageError(f"--budget {budget.expression}: {budget.name} has another unit; for example {example}")
    return unit


def _measure(name: str, runs: list[Run]) -> float | None:
    if name in TIMES:
        return float(np.mean([series_of(r, name).mean() for r in runs]))
    if name == "idle_share":
        idle = [100 * (r.in_step_idle_ns + r.boundary_idle_ns).sum() / r.step_ns.sum() for r in runs if r.step_ns.any()]
        return float(np.mean(idle)) if idle else None
    if name == "h2d_overlap":
        time = sum(r.h2d_time_ns for r in runs)
        return 100 * sum(r.h2d_overlapped_ns for r in runs) / time if time else None
    if name == MEMORY:
        peaks = [r.peak_reserved_bytes for r in runs if r.peak_reserved_bytes is not None]
        return float(max(peaks)) if peaks else None
    counts = [r.counters[name].mean() for r in runs if name in r.counters]
    return float(np.mean(counts)) if counts else None


def _write(value: float, unit: str) -> str:
    if unit == "ns":
        return format_ns(value)
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:.1f} %" if unit == "%" else f"{value:g}"
