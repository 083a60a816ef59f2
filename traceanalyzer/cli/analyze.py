"""``analyze``: recordings in, answer and reports out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from traceanalyzer.errors import UsageError
from traceanalyzer.results.vocabulary import Severity


class Profiler(StrEnum):
    """Who made a recording of a run folder."""

    TORCH = "torch"
    NSYS = "nsys"


class Language(StrEnum):
    """Language of what reports say about findings."""

    EN = "en"
    ZH = "zh"


LanguageOption = Annotated[Language, typer.Option("--lang", help="Language of the report: en or zh (Chinese).")]
DEFAULT_REPORT = Path("report.html")

HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", readable=False, help="Write the report as one HTML file.")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", readable=False, help="Write the analysis as JSON.")
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", readable=False, help="Write a report for a pull-request comment."),
]
PerfettoOption = Annotated[
    Path | None,
    typer.Option("--perfetto", metavar="FILE", readable=False, help="Write an annotated trace for ui.perfetto.dev."),
]
SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="FILE", readable=False, help="Write findings on lines of code as SARIF 2.1.0."),
]
GithubOption = Annotated[
    Path | None,
    typer.Option("--github", metavar="FILE", readable=False, help="Write GitHub annotations; - prints them."),
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Leave names of users, hosts, folders and containers out of the reports.")
]
TensorBoardOption = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="LOGDIR", readable=False, help="Write scalars and plots for TensorBoard."),
]


def analyze(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="A recording, run folder or URL; several: one per rank."),
    ],
    html: HtmlOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    perfetto: PerfettoOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    tensorboard: TensorBoardOption = None,
    step_marker: Annotated[
        str | None, typer.Option(metavar="NAME", help="The range that marks a training step, when it is not found.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="A:B", help="Analyse only these steps, by position: 3:10, 5: or :-1.")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="Check only these rules: TA301,TA4 or a slug.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODES", help="Leave these rules out.")] = None,
    profiler: Annotated[
        Profiler | None, typer.Option(help="Which recording of a run folder to analyse, where it holds both.")
    ] = None,
    nsys: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The nsys program that exports a .nsys-rep report.")
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Analyse every rank apart: in processes (of this machine) or on dask://HOST:PORT."
        ),
    ] = None,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 when a finding is at least this severe.")
    ] = None,
    redact: RedactOption = False,
    lang: LanguageOption = Language.EN,
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep the recording as columns, so that the next command starts sooner.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also say how long each stage took.")] = False,
) -> None:
    """Find out why the GPU was idle.

    Without an output option, report.html is written and a summary printed. Existing reports are replaced. Exit code 0:
    analysed; 1: --fail-on fired; 2: no usable input.
    """
    selection = parse_steps(steps) if steps is not None else None
    if tensorboard is not None:
        from traceanalyzer.renderers.tensorboard import require_tensorboard

        require_tensorboard()  # before the recording is read, which can take long

    from traceanalyzer.cli.output import ReadProgress, check_names, show, write_reports
    from traceanalyzer.pipeline import analyze as run
    from traceanalyzer.ranks import executor_for
    from traceanalyzer.results.answer import reaches

    timings: dict[str, float] = {}
    with ReadProgress() as progress, executor_for(executor) as pool:
        analysis = run(
            list(inputs),
            nsys=nsys,
            in_parallel=True if executor is not None else None,
            executor=pool,
            step_marker=step_marker,
            steps=selection,
            select=_codes(select),
            ignore=_codes(ignore),
            profiler=profiler.value if profiler is not None else None,
            cache=cache,
            progress=progress.update,
            timings=timings,
        )
    if redact:
        from traceanalyzer.results.redaction import redact_analysis

        analysis = redact_analysis(analysis)
    if all(path is None for path in (html, json, markdown, perfetto, sarif, github, tensorboard)):
        html = DEFAULT_REPORT
    from traceanalyzer.renderers.messages import in_language, speaking

    check_names([path for path in (html, json, markdown, perfetto, sarif, github) if path is not None])
    # the JSON document stays the same in every language
    written = write_reports(analysis, json=json) if json is not None else []
    with speaking(lang.value):
        shown = in_language(analysis)
        written += write_reports(
            shown,
            html=html,
            markdown=markdown,
            perfetto=perfetto,
            sarif=sarif,
            github=github,
            tensorboard=tensorboard,
            timings=timings,
        )
        show(shown, written, timings if verbose else None)
    if fail_on is not None and reaches(analysis, fail_on):
        raise typer.Exit(1)


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """Read ``A:B`` as Python slices are read: either end may be missing, negative ends count from the last.

    Raises:
        UsageError: It is not of that form.
    """
    first, colon, end = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return int(first) if first.strip() else None, int(end) if end.strip() else None
    except ValueError:
        raise UsageError(f"--steps {text!r} is not of the form A:B, for example 3:10 or 5:") from None


def _codes(values: list[str] | None) -> list[str]:
    return [code.strip() for value in values or [] for code in value.split(",") if code.strip()]
