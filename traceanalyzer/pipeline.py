"""read → measure → check → Analysis."""

from __future__ import annotations

from traceanalyzer.results.analysis import Analysis


def analyze(path: str) -> Analysis:
    """Analyse one recording."""
    raise NotImplementedError
