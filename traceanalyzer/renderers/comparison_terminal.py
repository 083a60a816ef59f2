"""A comparison on the terminal: the verdict, what changed, and what the primaries did."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from traceanalyzer.renderers.comparison_text import format_interval, format_level, format_ratio, test_name
from traceanalyzer.renderers.messages import say, translated
from traceanalyzer.renderers.text import shorten, visible
from traceanalyzer.results.comparison import Comparison, Family, Test, Verdict

MAX_ROWS = 12
MAX_ADVISORY = 8
NAME_WIDTH = 60
STYLES = {
    Verdict.REGRESSION: "bold red",
    Verdict.IMPROVEMENT: "green",
    Verdict.NO_CHANGE: "dim",
    Verdict.INCONCLUSIVE: "yellow",
}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the comparison; every name from a recording is printed as itself, never as markup or escape codes."""
    console.print(Group(*_parts(comparison)))


def render_comparison_terminal(comparison: Comparison, *, width: int = 100) -> str:
    """Return the comparison as plain text without colours.

    Args:
        comparison: The document.
        width: Columns to fill.
    """
    console = Console(width=width, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        print_comparison(comparison, console)
    return captured.get()


def _parts(comparison: Comparison) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(translated(visible(comparison.summary)), style=STYLES[comparison.verdict])]
    if comparison.differences:
        table = _table("Not recorded alike")
        table.add_column(say("setting"))
        table.add_column(say("base"))
        table.add_column(say("candidate"))
        for difference in comparison.differences:
            table.add_row(
                *(Text(translated(visible(t))) for t in (difference.setting, difference.base, difference.candidate))
            )
        parts += [Text(""), table]
    deciding = [t for t in comparison.tests if t.family is not Family.ADVISORY]
    changed = [t for t in deciding if t.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)]
    primaries = [t for t in deciding if t.family is Family.PRIMARY and t not in changed]
    if changed or primaries:
        parts += [Text(""), _tests("Per step", changed[:MAX_ROWS] + primaries)]
    if len(changed) > MAX_ROWS:
        parts.append(Text(say("and {} more; --json holds every test", len(changed) - MAX_ROWS), style="dim"))
    advisory = [t for t in comparison.tests if t.family is Family.ADVISORY and t.base != t.candidate]
    times = [t for t in advisory if t.unit == "ns"]
    times.sort(key=lambda t: -abs((t.candidate or 0.0) - (t.base or 0.0)))
    explaining = times[:MAX_ADVISORY] + [t for t in advisory if t.unit == "bytes"]
    if explaining:
        parts += [Text(""), _tests("What explains it (does not decide)", explaining)]
    for budget in comparison.budgets:
        state = say({True: "met", False: "BROKEN", None: "not measurable"}[budget.met])
        value = "" if budget.measured is None else say(" (measured {})", budget.measured)
        parts.append(Text(say("budget {}: {}{}", visible(budget.expression), state, value)))
    parts += [Text(""), Text(translated(comparison.host.note))]
    parts += [Text(translated(visible(note)), style="dim") for note in comparison.notes]
    return parts


def _table(title: str) -> Table:
    return Table(title=say(title), title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)


def _tests(title: str, tests: list[Test]) -> Table:
    table = _table(title)
    table.add_column(say("what"), overflow="fold")
    table.add_column(say("base"), justify="right", no_wrap=True)
    table.add_column(say("candidate"), justify="right", no_wrap=True)
    table.add_column(say("change"), justify="right", no_wrap=True)
    table.add_column(say("98 % interval"), justify="right", no_wrap=True)
    table.add_column(say("verdict"), no_wrap=True)
    for test in tests:
        explains = test.family is Family.ADVISORY
        name = test_name(test) if explains else f"{test.family.value}: {test_name(test)}"
        table.add_row(
            Text(shorten(translated(visible(name)), NAME_WIDTH)),
            format_level(test.base, test.unit),
            format_level(test.candidate, test.unit),
            translated(format_ratio(test)),
            translated(format_interval(test)),
            Text("" if explains else say(test.verdict.value), style=STYLES[test.verdict]),
        )
    return table
