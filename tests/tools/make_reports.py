"""Regenerate ``reports/``: what the tool says about each sample recording.

python -m tests.tools.make_reports
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import traceanalyzer
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.markdown import render_markdown

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = (
    "good",
    "single-process-loader",
    "pageable",
    "empty-cache",
    "validate-every-step",
    "multi-scale",
    "unfused-optimizer",
)
# one is enough to look at; each is larger than its recording
WITH_HTML = "single-process-loader"


def reports() -> Iterator[tuple[str, str]]:
    """Yield file name and content of every report; the working folder must be the checkout."""
    for sample in SAMPLES:
        # relative, because a report names its input as it was given
        analysis = traceanalyzer.analyze(f"sample_traces/labelled/{sample}")
        yield f"{sample}.md", render_markdown(analysis)
        if sample == WITH_HTML:
            yield f"{sample}.html", render_html(analysis)


def main() -> None:
    """Write all reports."""
    os.chdir(ROOT)
    for name, text in reports():
        Path("reports", name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
