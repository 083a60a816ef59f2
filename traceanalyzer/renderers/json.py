"""The document itself, as JSON."""

from __future__ import annotations

from traceanalyzer.results.analysis import Analysis


def render_json(analysis: Analysis) -> str:
    """Render the document as one line of JSON ending in a newline; equal documents give equal text."""
    return analysis.to_json().decode() + "\n"
