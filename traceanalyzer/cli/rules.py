"""``rules``: the list of all root causes."""

from __future__ import annotations

import typer


def rules() -> None:
    """List the root causes that are looked for, one a line."""
    from traceanalyzer.rules import RULES

    rows = [(r.META.code, r.META.slug, r.META.kind.value, r.META.category, r.META.fail_title) for r in RULES]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        typer.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))
