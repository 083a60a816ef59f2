"""``compare``: two sets of runs in, one verdict out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traceanalyzer.cli.analyze import Profiler, parse_steps
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from traceanalyzer.gate import LoadOptions
    from traceanalyzer.results.comparison import Comparison

REGRESSED = 1
UNDECIDED = 3

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
    html: HtmlOption = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    github: GithubOption = None,
    step_marker: MarkerOption = None,
    steps: StepsOption = None,
    profiler: ProfilerOption = None,
) -> None:
    """Find out whether kernel gaps got worse, which gap, and how sure that is.

    Exit code 0: no regression found; 1: a regression; 2: the comparison could not be made; 3: undecided, with --strict.
    """
    bases, candidates = sides(inputs or [], base or [], candidate or [])
    judge(
        bases,
        candidates,
        gate=gate,
        budget=budget,
        strict=strict,
        allow_different=allow_different,
        html=html,
        json=json,
        markdown=markdown,
        junit=junit,
        github=github,
        step_marker=step_marker,
        steps=steps,
        profiler=profiler,
    )


def sides(inputs: list[str], base: list[str], candidate: list[str]) -> tuple[list[str], list[str]]:
    """Sort what was named into the two sides.

    Raises:
        UsageError: A side is empty, or it is unclear which side an input is on.
    """
    if inputs and (base or candidate):
        raise UsageError("compare: name BASE CANDIDATE, or use --base and --candidate, not both")
    if base or candidate:
        if not base or not candidate:
            raise UsageError("compare: needs at least one --base and one --candidate")
        return base, candidate
    if len(inputs) != 2:
        raise UsageError(
            f"compare: needs BASE and CANDIDATE, {len(inputs)} named; repeat --base and --candidate for several runs"
        )
    return inputs[:1], inputs[1:]


def judge(
    base: list[str],
    candidate: list[str],
    *,
    gate: list[str] | None,
    budget: list[str] | None,
    strict: bool,
    allow_different: bool,
    html: Path | None,
    json: Path | None,
    markdown: Path | None,
    junit: Path | None,
    github: Path | None,
    step_marker: str | None,
    steps: str | None,
    profiler: Profiler | None,
) -> None:
    """Compare, print, write what was asked for and exit by the verdict.

    Raises:
        typer.Exit: With the verdict's exit code, when it is not 0.
    """
    from traceanalyzer.cli.output import STDOUT, ReadProgress, check_names, write_report
    from traceanalyzer.gate import LoadOptions
    from traceanalyzer.gate import compare as run
    from traceanalyzer.results.comparison import Verdict

    wanted = [path for path in (html, json, markdown, junit, github) if path is not None]
    check_names(wanted)
    selection = parse_steps(steps) if steps is not None else None
    with ReadProgress() as progress:
        load = LoadOptions(step_marker, selection, profiler.value if profiler else None, progress.update)
        comparison = run(
            base, candidate, gates=gate or [], budgets=budget or [], allow_different=allow_different, load=load
        )
    if json is not None:
        write_report(json, comparison.to_json().decode() + "\n")
    if markdown is not None or junit is not None or github is not None:
        from traceanalyzer.renderers import comparison_text as text

        for path, render in (
            (markdown, text.render_markdown),
            (junit, text.render_junit),
            (github, text.render_github),
        ):
            if path is not None:
                write_report(path, render(comparison))
    if html is not None:
        write_report(html, _html(comparison, base, candidate, load))
    if STDOUT not in wanted:
        _show(comparison, wanted)
    if comparison.verdict is Verdict.REGRESSION:
        raise typer.Exit(REGRESSED)
    if comparison.verdict is Verdict.INCONCLUSIVE and strict:
        raise typer.Exit(UNDECIDED)


def _show(comparison: Comparison, written: list[Path]) -> None:
    from rich.text import Text

    from traceanalyzer.cli.console import Terminal
    from traceanalyzer.renderers.comparison_terminal import print_comparison
    from traceanalyzer.renderers.text import visible

    console = Terminal(highlight=False)
    print_comparison(comparison, console)
    if written:
        console.print(Text("\nReports: " + ", ".join(visible(str(path)) for path in written)), soft_wrap=True)


def _html(comparison: Comparison, base: list[str], candidate: list[str], load: LoadOptions) -> str:
    from traceanalyzer.gate import load_timeline
    from traceanalyzer.renderers.comparison_html import render_comparison_html

    return render_comparison_html(comparison, load_timeline(base[0], load), load_timeline(candidate[0], load))
