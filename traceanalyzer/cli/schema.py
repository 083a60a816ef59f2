"""``schema``: the JSON schemas of the documents."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Document(StrEnum):
    """What this tool writes as JSON."""

    ANALYSIS = "analysis"
    COMPARISON = "comparison"
    BASELINE = "baseline"


def schema(
    document: Annotated[Document, typer.Argument(help="Which document; 'analyze --json' by default.")] = (
        Document.ANALYSIS
    ),
) -> None:
    """Print the JSON schema of a document: an analysis, a comparison or a baseline."""
    from traceanalyzer.results.json_schema import schema_text

    typer.echo(schema_text(document.value), nl=False)
