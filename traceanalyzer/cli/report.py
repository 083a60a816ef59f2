"""``report``: an analysis kept as JSON, rendered again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceanalyzer.cli.analyze import (
    DEFAULT_REPORT,
    GithubOption,
    HtmlOption,
    Language,
    LanguageOption,
    MarkdownOption,
    PerfettoOption,
    RedactOption,
    SarifOption,
)


def report(
    analysis: Annotated[Path, typer.Argument(metavar="ANALYSIS.json", help="What 'analyze --json' wrote.")],
    html: HtmlOption = None,
    markdown: MarkdownOption = None,
    redact: RedactOption = False,
    perfetto: PerfettoOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    lang: LanguageOption = Language.EN,
) -> None:
    """Render an analysis again, without its recording.

    Without an output option, report.html is written and a summary printed.
    """
    from traceanalyzer.cli.output import show, write_reports
    from traceanalyzer.results.document import load_analysis

    document = load_analysis(analysis)
    if redact:
        from traceanalyzer.results.redaction import redact_analysis

        document = redact_analysis(document)
    if all(path is None for path in (html, markdown, perfetto, sarif, github)):
        html = DEFAULT_REPORT
    from traceanalyzer.renderers.messages import in_language, speaking

    with speaking(lang.value):
        document = in_language(document)
        written = write_reports(document, html=html, markdown=markdown, perfetto=perfetto, sarif=sarif, github=github)
        show(document, written)
