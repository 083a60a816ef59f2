"""The JSON schemas of the documents, generated from their types; the ``*.json`` beside this file are copies of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from traceanalyzer.results import analysis, baseline, comparison

DOCUMENTS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "analysis": (analysis.Analysis, analysis.SCHEMA),
    "comparison": (comparison.Comparison, comparison.SCHEMA),
    "baseline": (baseline.Baseline, baseline.SCHEMA),
}
KEPT_IN = {"analysis": "schema.json", "comparison": "comparison_schema.json", "baseline": "baseline_schema.json"}


def analysis_schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an Analysis. Every key of a written document is required by it."""
    return document_schema("analysis")


def document_schema(document: str) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a document; every key of a written document is required by it.

    Args:
        document: A key of ``DOCUMENTS``.
    """
    kind, title = DOCUMENTS[document]
    schema: dict[str, Any] = msgspec.json.schema(kind)
    for definition in schema["$defs"].values():
        # the types accept documents without the keys that have defaults; this tool writes all of them, always
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    schema["$defs"][kind.__name__]["properties"]["schema"] = {"const": title}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def schema_text(document: str = "analysis") -> str:
    """Return the schema of a document as the repository keeps it."""
    return json.dumps(document_schema(document), indent=1, ensure_ascii=False) + "\n"
