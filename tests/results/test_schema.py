"""The JSON schema is generated from the types, kept in the repository, and accepts what the tool writes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import traceanalyzer
from tests.sample_analysis import cpu_only_analysis, hostile_analysis, sample_analysis
from tests.shared_data import ROOT
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.json_schema import analysis_schema, schema_text

VALIDATOR = jsonschema.Draft202012Validator(analysis_schema())


def document(analysis: Analysis) -> Any:
    return json.loads(analysis.to_json())


def test_kept_schema_is_up_to_date() -> None:
    kept = (ROOT / "traceanalyzer" / "results" / "schema.json").read_text(encoding="utf-8")
    assert kept == schema_text(), "regenerate with: python -m traceanalyzer schema > traceanalyzer/results/schema.json"


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(analysis_schema())


@pytest.mark.parametrize("make", [sample_analysis, hostile_analysis, cpu_only_analysis])
def test_hand_made_documents_validate(make: Any) -> None:
    VALIDATOR.validate(document(make()))


def test_document_of_a_recording_validates() -> None:
    VALIDATOR.validate(document(traceanalyzer.analyze(ROOT / "sample_traces" / "labelled" / "good")))


def test_every_key_is_always_present_even_where_nothing_was_measured() -> None:
    full, empty = document(sample_analysis()), document(cpu_only_analysis())
    assert set(full) == set(empty)
    rank, bare = full["ranks"][0], empty["ranks"][0]
    assert set(rank) == set(bare)
    for part in ("integrity", "steps", "per_step", "launches", "allocator", "kernels", "observer", "series"):
        assert set(rank[part]) == set(bare[part])


@pytest.mark.parametrize("path", [("ranks",), ("tool",), ("findings",), ("ranks", 0, "steps", "class"), ("schema",)])
def test_document_lacking_a_key_is_refused(path: tuple[Any, ...]) -> None:
    broken = document(sample_analysis())
    inner = broken
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)


def test_other_schema_version_is_refused() -> None:
    broken = document(sample_analysis()) | {"schema": "traceanalyzer.analysis/2"}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)


def test_floating_point_times_are_refused() -> None:
    broken = document(sample_analysis())
    broken["ranks"][0]["devices"][0]["busy_ns"] = 1.5
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(broken)
