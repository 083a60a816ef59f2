"""``baseline``: runs of earlier releases, kept in a small file that a repository can hold and a person can review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceanalyzer.cli import compare as options
from traceanalyzer.cli.analyze import parse_steps
from traceanalyzer.cli.judging import Request

app = typer.Typer(help="Keep runs of earlier releases in one file, and compare with them.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The baseline, a JSON file.")]
RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Recordings, run folders or analyses of one release.")
]


@app.command("update")
def update(
    file: FileArgument,
    runs: RunsArgument,
    release: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the release; one of that name is replaced. A number by default."),
    ] = None,
    redact: options.RedactOption = False,
    step_marker: options.MarkerOption = None,
    steps: options.StepsOption = None,
    profiler: options.ProfilerOption = None,
) -> None:
    """Put the runs of a release into the baseline, which is made where it does not exist."""
    from traceanalyzer.cli.output import ReadProgress, write_report
    from traceanalyzer.comparison.baseline import update_baseline
    from traceanalyzer.comparison.ranks import first_rank
    from traceanalyzer.gate import LoadOptions, load_baseline, load_runs
    from traceanalyzer.renderers.text import visible
    from traceanalyzer.results.baseline import Baseline

    baseline = load_baseline(file) if file.exists() else Baseline(releases=[])
    selection = parse_steps(steps) if steps is not None else None
    with ReadProgress() as progress:
        load = LoadOptions(step_marker, selection, profiler.value if profiler else None, progress.update)
        held = [run for name in runs for run in load_runs(name, load)]
    updated, name = update_baseline(baseline, held, release)
    if redact:
        from traceanalyzer.results.redaction import redact_baseline

        updated = redact_baseline(updated)
    write_report(file, updated.to_json().decode())
    recordings = len(first_rank(held))
    count = f"{recordings} run{'s' if recordings != 1 else ''}"
    typer.echo(f"{visible(str(file))}: release {visible(name)} holds {count}; {len(updated.releases)} in all")


@app.command("show")
def show(file: FileArgument) -> None:
    """List the releases of a baseline."""
    from traceanalyzer.cli.console import Terminal
    from traceanalyzer.comparison.trend import measure_trend
    from traceanalyzer.gate import baseline_releases
    from traceanalyzer.renderers.trend_terminal import print_releases

    print_releases(measure_trend(baseline_releases([file])), Terminal(highlight=False))


@app.command("check")
def check(
    file: FileArgument,
    runs: RunsArgument,
    release: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare with this release; the latest by default.")
    ] = None,
    gate: options.GateOption = None,
    budget: options.BudgetOption = None,
    strict: options.StrictOption = False,
    allow_different: options.AllowOption = False,
    redact: options.RedactOption = False,
    html: options.HtmlOption = None,
    json: options.JsonOption = None,
    markdown: options.MarkdownOption = None,
    junit: options.JunitOption = None,
    github: options.GithubOption = None,
    step_marker: options.MarkerOption = None,
    steps: options.StepsOption = None,
    profiler: options.ProfilerOption = None,
) -> None:
    """Compare runs with a release of the baseline; options and exit codes are those of 'compare'."""
    from traceanalyzer.gate import load_baseline, pick_release

    pick_release(load_baseline(file), release, str(file))  # a wrong name is said before a recording is read
    options.finish(
        Request(
            base=[str(file) if release is None else f"{file}@{release}"],
            candidate=runs,
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
        )
    )
