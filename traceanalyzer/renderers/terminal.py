"""The summary a person sees on the terminal: the answer, where the step goes, and the findings."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from traceanalyzer.renderers.job_text import HEAD, job_lines, job_rows, shown_ranks
from traceanalyzer.renderers.messages import say, translated
from traceanalyzer.renderers.text import cause_title, marker_hint, plan_text, saving_text, visible
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.answer import StepMean, answer, firing, mean_step, silence
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.job import JobReport
from traceanalyzer.results.vocabulary import FindingKind, Severity, StepSource
from traceanalyzer.units import format_ns, format_share

MAX_ROWS = 8
_SEVERITY_STYLE = {Severity.HIGH: "bold red", Severity.MEDIUM: "yellow", Severity.LOW: "cyan"}
_BAR_STYLES = ("red", "magenta", "yellow", "cyan", "blue", "bright_red", "bright_magenta", "bright_yellow")


def print_summary(analysis: Analysis, console: Console) -> None:
    """Print the summary; every text from the recording is printed as itself, never as markup or escape codes."""
    console.print(Group(*_parts(analysis, max(20, min(console.width, 100)))))


def render_terminal(analysis: Analysis, *, width: int = 100) -> str:
    """Return the summary as plain text without colours.

    Args:
        analysis: The document.
        width: Columns to fill.
    """
    console = Console(width=width, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        print_summary(analysis, console)
    return captured.get()


def _parts(analysis: Analysis, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [*_headline(analysis)]
    several = len(analysis.ranks) > 1
    if analysis.job is not None:
        parts += [Text(""), *_job(analysis.job)]
    for rank in shown_ranks(analysis):
        mean = mean_step(rank)
        if mean is not None:
            parts += [Text(""), *_step(rank, mean, width, several=several)]
    faults, limiters = firing(analysis, FindingKind.FAULT), firing(analysis, FindingKind.LIMITER)
    if faults:
        parts += [Text(""), _table("Causes to fix, by saving", faults, several=several)]
    if faults and (plan := plan_text(analysis)):
        parts += [Text(visible(plan))]
    if limiters:
        title = "What bounds the step once these are fixed" if faults else "What bounds the step"
        parts += [Text(""), _table(title, limiters, several=several)]
    notes = [(r.rank, note) for r in shown_ranks(analysis) for note in _state(r)]
    parts += [
        Text(f"{f'rank {rank}: ' if several else ''}{translated(visible(note))}", style="dim") for rank, note in notes
    ]
    return parts


def _headline(analysis: Analysis) -> list[RenderableType]:
    first = answer(analysis)
    if not any(rank.devices for rank in analysis.ranks):
        return [Text(say("No GPU activity in this recording: there is no idle time to explain."), style="bold")]
    if first is None:
        quiet = silence(analysis)
        return [
            Text(translated(quiet.title), style="bold green" if quiet.is_healthy else "bold yellow"),
            Text(translated(quiet.sentence)),
        ]
    lines: list[RenderableType] = [
        Text(f"{first.code}  {visible(first.title)}", style="bold"),
        Text(visible(first.message)),
    ]
    if first.fix:
        lines.append(Text(say("Do this first: {}", visible(first.fix[0]))))
    return lines


def _step(rank: RankReport, mean: StepMean, width: int, *, several: bool) -> list[RenderableType]:
    kind = f"{mean.step_class.value} " if mean.step_class else ""
    label = f"Rank {rank.rank}: mean" if several else "Mean"
    head = f"{label} {kind}step {format_ns(mean.window_ns)} ({mean.windows} of {rank.steps.count} steps)"
    if rank.steps.source is StepSource.NONE:
        head = f"{f'Rank {rank.rank}: the' if several else 'The'} whole recording, {format_ns(mean.window_ns)}"
    causes = list(mean.idle_ns.items())
    rows = [("GPU busy", sum(mean.busy_ns.values()), "green", "█")]
    rows += [
        (f"idle: {cause_title(cause)}", ns, _BAR_STYLES[i % len(_BAR_STYLES)], "▒")
        for i, (cause, ns) in enumerate(causes[:MAX_ROWS])
    ]
    rest = sum(ns for _, ns in causes[MAX_ROWS:])
    if rest > 0:
        count = len(causes) - MAX_ROWS
        rows.append((f"idle: {count} smaller cause{'s' if count > 1 else ''}", rest, "dim", "▒"))
    table = Table(box=None, padding=(0, 1), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    bar = max(8, width - 56)
    for name, ns, style, block in rows:
        cells = round(bar * ns / mean.window_ns) if mean.window_ns > 0 else 0
        share = format_share(ns, mean.window_ns)
        table.add_row(Text(translated(visible(name))), format_ns(ns), share, Text(block * cells, style=style))
    hint = marker_hint(rank)
    return [Text(translated(head), style="bold"), table, *([Text(hint, style="dim")] if hint else [])]


def _job(job: JobReport) -> list[RenderableType]:
    table = Table(
        title=say("Ranks, the slowest first"), title_justify="left", title_style="bold", box=None, padding=(0, 1)
    )
    for name in HEAD:
        table.add_column(say(name), justify="left" if name == HEAD[-1] else "right")
    for row in job_rows(job):
        table.add_row(*(Text(translated(cell)) for cell in row))
    return [*(Text(translated(line)) for line in job_lines(job)), table]


def _table(title: str, findings: list[Finding], *, several: bool) -> Table:
    table = Table(title=say(title), title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    if several:
        table.add_column(say("rank"), justify="right", no_wrap=True)
    table.add_column(say("code"), no_wrap=True)
    table.add_column(say("cause"))
    table.add_column(say("severity"), no_wrap=True)
    table.add_column(say("saving per step"), justify="right")
    for finding in findings:
        severity = finding.severity
        grade = Text(say(severity.value), style=_SEVERITY_STYLE[severity]) if severity else Text("")
        cells: list[RenderableType] = [
            finding.code,
            Text(visible(finding.title)),
            grade,
            saving_text(finding) or say("not known"),
        ]
        table.add_row(*([str(finding.rank)] if several else []), *cells)
    return table


def _state(rank: RankReport) -> list[str]:
    state = rank.integrity
    lines = [] if state.verdict == "complete" else [say("the recording is {}", translated(state.verdict))]
    lines += state.notes
    return lines + [say("left out {} records: {}", dropped.count, dropped.reason) for dropped in state.dropped]
