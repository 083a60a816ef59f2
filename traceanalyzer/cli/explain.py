"""``explain``: one rule's documentation page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A rule's code or name: TA301, pageable-h2d-copies.")],
) -> None:
    """Explain a rule: what it detects, how it is measured, how to fix the cause."""
    from traceanalyzer.rules.catalogue import explain as page_of

    page = page_of(code)
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        from traceanalyzer.cli.console import Terminal

        Terminal().print(Markdown(page))
    else:
        typer.echo(page)
