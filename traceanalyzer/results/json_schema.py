"""The JSON schema of the documents, generated from their types; ``schema.json`` beside this file is a copy of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from traceanalyzer.results.analysis import SCHEMA, Analysis


def analysis_schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an Analysis. Every key of a written document is required by it."""
    schema: dict[str, Any] = msgspec.json.schema(Analysis)
    for definition in schema["$defs"].values():
        # the types accept documents without the keys that have defaults; this tool writes all of them, always
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    schema["$defs"]["Analysis"]["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def schema_text() -> str:
    """Return the schema as the repository keeps it."""
    return json.dumps(analysis_schema(), indent=1, ensure_ascii=False) + "\n"
