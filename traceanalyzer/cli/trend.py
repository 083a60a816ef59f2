"""``trend``: many releases in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceanalyzer.errors import UsageError


def trend(
    files: Annotated[list[Path], typer.Argument(metavar="BASELINE...", help="Baselines, oldest first.")],
) -> None:
    """Show step time, idle time by cause and counters over the releases, and where they changed."""
    from traceanalyzer.cli.console import Terminal
    from traceanalyzer.comparison.trend import measure_trend
    from traceanalyzer.gate import baseline_releases
    from traceanalyzer.renderers.trend_terminal import print_trend

    releases = baseline_releases(files)
    if len(releases) < 2:
        raise UsageError("trend: needs at least two releases; add them with 'traceanalyzer baseline update'")
    print_trend(measure_trend(releases), Terminal(highlight=False))
