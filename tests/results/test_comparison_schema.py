"""Comparisons and baselines have schemas too: generated, kept, and true of what is written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import traceanalyzer
from tests.comparison.documents import labelled_document
from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.results.json_schema import DOCUMENTS, KEPT_IN, document_schema, schema_text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_kept_schema_is_up_to_date_and_a_schema(document: str) -> None:
    kept = (ROOT / "traceanalyzer" / "results" / KEPT_IN[document]).read_text(encoding="utf-8")
    assert kept == schema_text(document), f"regenerate with: python -m traceanalyzer schema {document}"
    jsonschema.Draft202012Validator.check_schema(document_schema(document))


def test_a_comparison_and_a_baseline_validate(tmp_path: Path) -> None:
    comparison = traceanalyzer.compare(labelled_document("good"), labelled_document("single-process-loader"))
    jsonschema.validate(json.loads(comparison.to_json()), document_schema("comparison"))
    held = tmp_path / "held.json"
    assert cli.main(["baseline", "update", str(held), str(labelled_document("good"))]) == 0
    jsonschema.validate(json.loads(held.read_bytes()), document_schema("baseline"))
