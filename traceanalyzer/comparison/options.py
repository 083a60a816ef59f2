"""Floors, gates and budgets: what a user may set, and what holds when nothing is set."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from traceanalyzer.errors import UsageError
from traceanalyzer.units import NS_PER_MS, NS_PER_US


@dataclass(frozen=True, slots=True)
class Metric:
    """A per-step metric that can decide a comparison.

    Attributes:
        name: Name used on the command line and in the document.
        title: What it is, for readers.
        floor_relative: Smallest relative change that counts.
        floor_absolute_ns: Smallest absolute change that counts, ns.
        prior_sd: Run-to-run standard deviation on the log scale.
        adjusted: Whether host speed is taken out.
        decides: Primary metrics decide; advisory ones explain.
    """

    name: str
    title: str
    floor_relative: float
    floor_absolute_ns: float
    prior_sd: float
    adjusted: bool
    decides: bool


# floors and run-to-run spreads: DEFINITIONS (Comparison), measured on 300 real H200 steps
METRICS: tuple[Metric, ...] = (
    Metric("in_step_idle", "idle inside the step", 0.03, 0.5 * NS_PER_MS, 0.03, True, True),
    Metric("boundary_idle", "idle between steps", 0.25, 0.5 * NS_PER_MS, 0.10, False, True),
    Metric("kernel_time", "kernel time", 0.01, 0.1 * NS_PER_MS, 0.002, False, True),
    Metric("exposed_h2d", "H2D copy time not under a kernel", 0.05, 0.05 * NS_PER_MS, 0.02, False, True),
    Metric("step", "step time", 0.03, 0.5 * NS_PER_MS, 0.03, True, False),
)

POSITION_FLOOR_RELATIVE = 0.25
POSITION_FLOOR_NS = 20.0 * NS_PER_US
FAMILY_FLOOR_RELATIVE = 0.03
FAMILY_FLOOR_NS = 5.0 * NS_PER_US
SPIKE_FLOOR_NS = 3.0 * NS_PER_MS
SPIKE_FACTOR = 1.5
HOST_GUARD = 1.25
EQUIVALENCE = 0.05
WANTED_STEPS = 100

_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SIZES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_GATE = re.compile(rf"(?P<name>[a-z0-9_]+)(?::(?P<rel>{_NUMBER})%)?(?::(?P<abs>{_NUMBER})(?P<unit>ns|us|µs|ms|s)?)?$")
_BUDGET = re.compile(rf"(?P<name>[a-z0-9_]+)\s*(?P<op><=|>=|<|>)\s*(?P<value>{_NUMBER})\s*(?P<unit>%|ns|us|µs|ms|s|)$")


@dataclass(frozen=True, slots=True)
class Budget:
    """An absolute limit on the candidate.

    Attributes:
        expression: As written.
        name: Quantity.
        operator: ``<=``, ``>=``, ``<`` or ``>``.
        limit: Value in ns, percent, bytes or a plain count.
        unit: ``%``, ``ns``, ``bytes`` or empty.
    """

    expression: str
    name: str
    operator: str
    limit: float
    unit: str


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Choices of the user.

    Attributes:
        metrics: Metrics with their floors.
        gated: Names that may decide, or None for every deciding family.
        budgets: Absolute limits.
        allow_different: Compare although hardware or configuration differ.
    """

    metrics: tuple[Metric, ...] = METRICS
    gated: frozenset[str] | None = None
    budgets: tuple[Budget, ...] = field(default=())
    allow_different: bool = False


GATE_NAMES = frozenset(
    {m.name for m in METRICS} | {"counters", "idle_causes", "kernel_families", "positions", "spikes"}
)


def parse_gates(expressions: Iterable[str]) -> tuple[tuple[Metric, ...], frozenset[str] | None]:
    """Read ``--gate METRIC[:REL%[:ABS]]`` options.

    Args:
        expressions: For example ``["kernel_time:2%:0.2ms", "counters"]``.

    Returns:
        The metrics with changed floors, and the names that may decide (None when no gate was given).

    Raises:
        UsageError: An expression cannot be read or names an unknown metric.
    """
    metrics = {m.name: m for m in METRICS}
    named: set[str] = set()
    for expression in expressions:
        match = _GATE.match(expression.strip())
        if match is None:
            raise UsageError(f"--gate {expression}: not METRIC[:REL%[:ABS]]; for example kernel_time:2%:0.2ms")
        name = match["name"]
        if name not in GATE_NAMES:
            raise UsageError(f"--gate {expression}: no metric {name!r}; choose from {', '.join(sorted(GATE_NAMES))}")
        named.add(name)
        if match["rel"] is None and match["abs"] is None:
            continue
        if name not in metrics:
            raise UsageError(f"--gate {expression}: {name} has fixed floors; name it without a number")
        old = metrics[name]
        metrics[name] = Metric(
            old.name,
            old.title,
            float(match["rel"]) / 100 if match["rel"] is not None else old.floor_relative,
            float(match["abs"]) * _UNITS[match["unit"] or "ms"] if match["abs"] is not None else old.floor_absolute_ns,
            old.prior_sd,
            old.adjusted,
            True,
        )
    return tuple(metrics.values()), (frozenset(named) if named else None)


def parse_budget(expression: str) -> Budget:
    """Read ``--budget EXPR``, for example ``h2d_overlap>=80%`` or ``step<=60ms``.

    Raises:
        UsageError: The expression cannot be read.
    """
    match = _BUDGET.match(expression.strip())
    if match is None:
        raise UsageError(f"--budget {expression}: not NAME<=VALUE; for example h2d_overlap>=80% or step<=60ms")
    unit = match["unit"]
    scale = (_UNITS | _SIZES).get(unit, 1.0)
    kind = "ns" if unit in _UNITS else "bytes" if unit in _SIZES else unit
    return Budget(expression, match["name"], match["op"], float(match["value"]) * scale, kind)
