"""``compare``: two sets of runs in, one verdict out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceanalyzer.cli.analyze import Language, LanguageOption, Profiler, parse_steps
from traceanalyzer.cli.judging import Request, judge, sides

GateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate", metavar="METRIC[:REL%[:ABS]]", help="Let only these decide, with these floors: kernel_time:2%:0.2ms."
    ),
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="EXPR", help="A limit on the candidate: step<=60ms, h2d_overlap>=80%."),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit with 3 when it cannot be decided.")]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Leave names of users, hosts, folders and containers out of the reports.")
]
AllowOption = Annotated[bool, typer.Option("--allow-different", help="Compare although hardware or settings differ.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", readable=False, help="Write the comparison as one HTML file.")
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", readable=False, help="Write every test with its inputs.")
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option("--markdown", metavar="FILE", readable=False, help="Write a table for a pull-request comment."),
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", readable=False, help="Write JUnit XML, one case per test.")
]
GithubOption = Annotated[
    Path | None,
    typer.Option("--github", metavar="FILE", readable=False, help="Write GitHub annotations; - prints them."),
]
MarkerOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The range that marks a training step, when it is not found.")
]
StepsOption = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="Use only these steps of recordings, by position.")
]
ProfilerOption = Annotated[
    Profiler | None, typer.Option(help="Which recording of a run folder to use, where it holds both.")
]


def compare(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BASE CANDIDATE]", help="Recordings, run folders, analyses or baselines (FILE or FILE@RELEASE)."
        ),
    ] = None,
    base: Annotated[
        list[str] | None, typer.Option("--base", metavar="RUN", help="A base run; repeat for several.")
    ] = None,
    candidate: Annotated[
        list[str] | None, typer.Option("--candidate", metavar="RUN", help="A candidate run; repeat for several.")
    ] = None,
    gate: GateOption = None,
    budget: BudgetOption = None,
    strict: StrictOption = False,
    allow_different: AllowOption = False,
    redact: RedactOption = False,
    html: HtmlOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    github: GithubOption = None,
    step_marker: MarkerOption = None,
    steps: StepsOption = None,
    profiler: ProfilerOption = None,
    lang: LanguageOption = Language.EN,
) -> None:
    """Find out whether kernel gaps got worse, which gap, and how sure that is.

    Exit code 0: no regression found; 1: a regression; 2: the comparison could not be made; 3: undecided, with --strict.
    """
    bases, candidates = sides(inputs or [], base or [], candidate or [])
    finish(
        Request(
            base=bases,
            candidate=candidates,
            gate=gate or [],
            budget=budget or [],
            strict=strict,
            allow_different=allow_different,
            redact=redact,
            html=html,
            json=json,
            markdown=markdown,
            junit=junit,
            github=github,
            step_marker=step_marker,
            steps=parse_steps(steps) if steps is not None else None,
            profiler=profiler.value if profiler else None,
            lang=lang.value,
        )
    )


def finish(request: Request) -> None:
    """Compare, and leave the command with the verdict's exit code.

    Raises:
        typer.Exit: When that is not 0.
    """
    if code := judge(request):
        raise typer.Exit(code)
