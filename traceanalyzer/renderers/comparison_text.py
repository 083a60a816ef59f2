"""A comparison as Markdown for a pull request, as JUnit XML and as GitHub annotations."""

from __future__ import annotations

import re

from traceanalyzer.renderers.github import annotation
from traceanalyzer.renderers.messages import say, translated
from traceanalyzer.results.comparison import Comparison, Family, Test, Verdict
from traceanalyzer.units import format_bytes, format_count, format_ns

MOST_PERCENT = 1000  # above that a factor reads better than a percentage
_MET = {True: "met", False: "broken", None: "not measurable"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")
# control, bidirectional-override and line-separator characters change what a reader sees, so they are spelled out
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def format_level(value: float | None, unit: str) -> str:
    """Write a test's level in its own unit."""
    if value is None:
        return "n/a"
    if unit == "bytes":
        return format_bytes(value)
    return format_ns(value) if unit == "ns" else f"{value:g}"


def format_ratio(test: Test) -> str:
    """Write the relative change; "new" where there was nothing before."""
    if test.change is None:
        return "new" if not test.base and test.candidate else "–"
    if test.change > MOST_PERCENT / 100:
        return f"× {format_count(test.change + 1)}"
    return f"{test.change * 100:+.1f} %"


def format_interval(test: Test) -> str:
    """Write the 98 % interval of the relative change; empty where the test has none."""
    if test.low is None or test.high is None:
        return ""
    if test.high > MOST_PERCENT / 100:
        return f"× {format_count(test.low + 1)} to {format_count(test.high + 1)}"
    return f"{test.low * 100:+.1f} to {test.high * 100:+.1f} %"


def format_change(test: Test) -> str:
    """Write the change and, where there is one, its 98 % interval."""
    interval = format_interval(test)
    return f"{format_ratio(test)} ({interval})" if interval else format_ratio(test)


def test_name(test: Test) -> str:
    """Write what a test is of, with the rank where several were compared."""
    return test.name if test.rank is None else f"{test.name} (rank {test.rank})"


def plain(text: str) -> str:
    """Spell out characters that would change how a line is displayed."""
    return _UNPRINTABLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def escape_markdown(text: str) -> str:
    """Make text safe in a Markdown table cell: no markup, no links, no line breaks."""
    return _SPECIAL.sub(r"\\\1", plain(text))


def render_markdown(comparison: Comparison) -> str:
    """Write the comparison for a pull-request comment: the verdict, what changed, and a collapsed table of all tests.

    Args:
        comparison: The document.
    """
    lines = [
        f"### {say('Kernel gaps: {}', _mark(comparison.verdict))}",
        "",
        escape_markdown(translated(comparison.summary)),
        "",
    ]
    if comparison.differences:
        lines += [_head("setting", "base", "candidate"), "| --- | --- | --- |"]
        lines += [
            f"| {escape_markdown(translated(d.setting))} | {escape_markdown(d.base)} | {escape_markdown(d.candidate)} |"
            for d in comparison.differences
        ]
        lines.append("")
    shown = [t for t in comparison.tests if t.family is not Family.ADVISORY and t.verdict in _CHANGED]
    primaries = [t for t in comparison.tests if t.family is Family.PRIMARY and t.verdict not in _CHANGED]
    if shown or primaries:
        lines += [_head("what", "base", "candidate", "change", "verdict"), "| --- | ---: | ---: | ---: | --- |"]
        lines += [_row(t) for t in shown[:12] + primaries]
        if len(shown) > 12:
            lines.append(f"| … {say('and {} more', len(shown) - 12)} | | | | |")
        lines.append("")
    lines += [f"- {escape_markdown(translated(n))}" for n in [comparison.host.note, *comparison.notes]]
    lines += [f"- {say('budget {}: {}', escape_markdown(b.expression), say(_MET[b.met]))}" for b in comparison.budgets]
    rest = [t for t in comparison.tests if t not in shown and t not in primaries]
    if rest:
        lines += ["", f"<details><summary>{say('Every other test')}</summary>", ""]
        lines += [_head("what", "base", "candidate", "change", "verdict"), "| --- | ---: | ---: | ---: | --- |"]
        lines += [_row(t) for t in rest[:60]]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


_CHANGED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)


def _mark(verdict: Verdict) -> str:
    sign = {Verdict.REGRESSION: "❌ ", Verdict.IMPROVEMENT: "✅ "}.get(verdict, "")
    return sign + say(verdict.value)


def _head(*names: str) -> str:
    return f"| {' | '.join(say(name) for name in names)} |"


def _row(test: Test) -> str:
    cells = [
        escape_markdown(translated(f"{test.family.value}: {test_name(test)}")),
        format_level(test.base, test.unit),
        format_level(test.candidate, test.unit),
        translated(format_change(test)),
        _mark(test.verdict) if test.family is not Family.ADVISORY else say("explains"),
    ]
    return f"| {' | '.join(cells)} |"


def render_junit(comparison: Comparison) -> str:
    """Write the deciding tests as JUnit XML: one test case each; a regression is a failure, inconclusive is skipped.

    Args:
        comparison: The document.
    """
    from xml.etree import ElementTree  # here, since most comparisons are not written as XML

    cases = [t for t in comparison.tests if t.family is not Family.ADVISORY]
    failures = sum(t.verdict is Verdict.REGRESSION for t in cases)
    broken = [b for b in comparison.budgets if b.met is False]
    suite = ElementTree.Element(
        "testsuite",
        name="traceanalyzer compare",
        tests=str(len(cases) + len(comparison.budgets)),
        failures=str(failures + len(broken)),
        skipped=str(sum(t.verdict is Verdict.INCONCLUSIVE for t in cases)),
    )
    for test in cases:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"gaps.{test.family.value.replace(' ', '_')}", name=plain(test_name(test))
        )
        if test.verdict is Verdict.REGRESSION:
            ElementTree.SubElement(case, "failure", message=plain(test.detail)).text = plain(test.method)
        elif test.verdict is Verdict.INCONCLUSIVE:
            ElementTree.SubElement(case, "skipped", message=plain(test.detail))
    for budget in comparison.budgets:
        case = ElementTree.SubElement(suite, "testcase", classname="gaps.budget", name=plain(budget.expression))
        if budget.met is False:
            ElementTree.SubElement(case, "failure", message=f"measured {budget.measured}")
        elif budget.met is None:
            ElementTree.SubElement(case, "skipped", message="could not be measured")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def render_github(comparison: Comparison) -> str:
    """Write workflow commands that annotate a GitHub run: an error per regression, a notice otherwise.

    Args:
        comparison: The document.
    """

    def command(level: str, title: str, message: str) -> str:
        return annotation(level, plain(title), plain(message))

    regressions = comparison.regressions
    lines = [command("error", f"{t.family.value}: {test_name(t)}", t.detail) for t in regressions[:10]]
    lines += [
        command("error", "budget", f"{b.expression}: measured {b.measured}")
        for b in comparison.budgets
        if b.met is False and b.value is not None
    ]
    if not lines:
        lines.append(command("notice", "kernel gaps", comparison.summary))
    return "\n".join(lines) + "\n"
