"""``rules``: the list of all root causes."""

from __future__ import annotations


def rules() -> None:
    """List the root causes that are looked for."""
    from rich.console import Console
    from rich.table import Table

    from traceanalyzer.rules import RULES

    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for heading in ("code", "rule", "kind", "category", "says"):
        table.add_column(heading, no_wrap=heading != "says")
    for rule in RULES:
        meta = rule.META
        table.add_row(meta.code, meta.slug, meta.kind.value, meta.category, meta.fail_title)
    Console(highlight=False).print(table)
