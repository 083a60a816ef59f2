"""Analyses of sample recordings, made once per test session and kept as files."""

from __future__ import annotations

import tempfile
from functools import cache, lru_cache
from pathlib import Path

import traceanalyzer
from tests.shared_data import shared

SAMPLES = Path(__file__).parents[2] / "sample_traces" / "labelled"


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # removed when the process ends


@cache
def labelled_document(name: str) -> Path:
    """Return the analysis of a recording in ``sample_traces``, without what its run folder says about it."""
    return _analysed(SAMPLES / name / "rank0.pt.trace.json.gz", name)


@cache
def sample_document(name: str) -> Path:
    """Return the analysis of one of the first H200 recordings; skips where they are absent."""
    return shared_document(f"traces/h200/{name}.pt.trace.json.gz")


@cache
def shared_document(path: str) -> Path:
    """Return the analysis of a recording that is not part of the repository; skips where it is absent."""
    return _analysed(shared(path), path.replace("/", "_"))


def _analysed(recording: Path, name: str) -> Path:
    kept = Path(_folder().name) / f"{name}.json"
    kept.write_bytes(traceanalyzer.analyze(recording).to_json())
    return kept
