"""``schema``: the JSON schema of the analysis document."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON schema of 'analyze --json'."""
    from traceanalyzer.results.json_schema import schema_text

    typer.echo(schema_text(), nl=False)
