"""Analyses of sample recordings, made once per test session and kept as files."""

from __future__ import annotations

import tempfile
from functools import cache, lru_cache
from pathlib import Path

import traceanalyzer
from tests.shared_data import shared

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # removed when the process ends


@cache
def sample_document(name: str) -> Path:
    """Return the analysis of a recording in ``sample_traces``."""
    return _analysed(SAMPLES / f"{name}.pt.trace.json.gz", name)


@cache
def shared_document(path: str) -> Path:
    """Return the analysis of a recording that is not part of the repository; skips where it is absent."""
    return _analysed(shared(path), path.replace("/", "_"))


def _analysed(recording: Path, name: str) -> Path:
    kept = Path(_folder().name) / f"{name}.json"
    kept.write_bytes(traceanalyzer.analyze(recording).to_json())
    return kept
