"""Releases of a baseline on the terminal: a table of levels, and what changed where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from traceanalyzer.renderers.comparison_terminal import STYLES
from traceanalyzer.renderers.text import cause_title, shorten, visible
from traceanalyzer.results.comparison import Comparison
from traceanalyzer.units import format_ns

CAUSES = 3
COUNTERS = ("launches", "synchronisations", "h2d", "d2h", "device_mallocs")
NAMED = 3


class Point(Protocol):
    """One release as the comparison measured it; see ``TrendPoint``."""

    @property
    def release(self) -> str: ...  # noqa: D102
    @property
    def runs(self) -> int: ...  # noqa: D102
    @property
    def step_ns(self) -> float: ...  # noqa: D102
    @property
    def idle_ns(self) -> float: ...  # noqa: D102
    @property
    def kernel_ns(self) -> float: ...  # noqa: D102
    @property
    def idle_by_cause_ns(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def counters(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def against(self) -> str | None: ...  # noqa: D102
    @property
    def comparison(self) -> Comparison | None: ...  # noqa: D102
    @property
    def changed(self) -> bool: ...  # noqa: D102


def print_releases(points: Sequence[Point], console: Console) -> None:
    """Print one line per release: step, idle and kernel time, the largest causes and the counters."""
    largest = {c: max(p.idle_by_cause_ns.get(c, 0.0) for p in points) for p in points for c in p.idle_by_cause_ns}
    causes = sorted(largest, key=lambda c: (-largest[c], c))[:CAUSES]
    counters = [c for c in COUNTERS if any(p.counters.get(c) for p in points)]
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("release")
    for name in ("runs", "step", "idle", "kernels", *(cause_title(c) for c in causes), *counters):
        table.add_column(visible(name.replace("_", " ")), justify="right")
    for point in points:
        table.add_row(
            Text(shorten(visible(point.release), 30)),
            str(point.runs),
            *(format_ns(v) for v in (point.step_ns, point.idle_ns, point.kernel_ns)),
            *(format_ns(point.idle_by_cause_ns.get(c, 0.0)) for c in causes),
            *(f"{point.counters.get(c, 0.0):g}" for c in counters),
        )
    console.print(table)


def print_trend(points: Sequence[Point], console: Console) -> None:
    """Print the releases, then every change point with what changed and against which release."""
    print_releases(points, console)
    console.print()
    changes = [p for p in points if p.changed]
    if not changes:
        console.print("No release changed anything beyond the floors.")
    for point in changes:
        if point.comparison is None:
            continue
        verdict = point.comparison.verdict
        named = [t.detail for t in point.comparison.tests if t.verdict is verdict and t.family.value != "advisory"]
        more = f"; and {len(named) - NAMED} more" if len(named) > NAMED else ""
        head = Text(f"{visible(point.release)}: {verdict.value}", style=STYLES[verdict])
        console.print(head, Text(f" since {visible(point.against or '')}: {visible('; '.join(named[:NAMED]))}{more}"))
