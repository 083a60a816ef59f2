"""What ``compare``, ``baseline check`` and ``record --compare`` share: compare, print, write, exit code.

Nothing here needs the option parser. Starting that takes longer than comparing two documents, so plain ``compare``
lines are read here; whatever else, and every mistake, is left to the parser, which explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from traceanalyzer.gate import LoadOptions
    from traceanalyzer.results.comparison import Comparison

REGRESSED = 1
UNDECIDED = 3


@dataclass(slots=True)
class Request:
    """One comparison as a user asks for it; every field but the sides is an option of ``compare``.

    Attributes:
        base: Base runs.
        candidate: Candidate runs.
        gate: Metrics that may decide, and their floors.
        budget: Limits on the candidate.
        strict: Whether "undecided" has an exit code of its own.
        allow_different: Compare although hardware or settings differ.
        redact: Leave names of users, hosts and folders out of every report.
        html: Reports to write, ``-`` for standard output.
        json: Likewise.
        markdown: Likewise.
        junit: Likewise.
        github: Likewise.
        step_marker: The range that marks a step of a recording.
        steps: Half-open selection of steps of recordings.
        profiler: Which recording of a run folder.
        lang: Language of what people read; JSON, JUnit and annotations stay the same.
    """

    base: list[str] = field(default_factory=list)
    candidate: list[str] = field(default_factory=list)
    gate: list[str] = field(default_factory=list)
    budget: list[str] = field(default_factory=list)
    strict: bool = False
    allow_different: bool = False
    redact: bool = False
    html: Path | None = None
    json: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    github: Path | None = None
    step_marker: str | None = None
    steps: tuple[int | None, int | None] | None = None
    profiler: str | None = None
    lang: str = "en"


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


# options that only recordings need are left to the parser: reading a recording takes longer than starting it
_LEFT_OUT = {"step_marker", "steps", "profiler"}
_DEFAULTS = Request()
QUICK_OPTIONS = {
    "--" + entry.name.replace("_", "-"): entry.name for entry in fields(Request) if entry.name not in _LEFT_OUT
}


def read_words(words: list[str]) -> Request | None:
    """Read the arguments of a plain ``compare``.

    Args:
        words: What follows ``compare`` on the command line.

    Returns:
        What is asked for; None where it takes the option parser to tell, or to say what is wrong.

    Raises:
        UsageError: A side is empty, or it is unclear which side an input is on.
    """
    given: dict[str, Any] = {}
    inputs: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            inputs.append(word)
            continue
        option, equals, value = word.partition("=")
        name = QUICK_OPTIONS.get(option)
        if name is None:
            return None
        default = getattr(_DEFAULTS, name)
        if isinstance(default, bool):
            if equals:
                return None
            given[name] = True
            continue
        if not equals:
            value = next(rest, "")
        if not value or (value.startswith("-") and value != "-"):
            return None
        if isinstance(default, list):
            given.setdefault(name, []).append(value)
        else:
            given[name] = Path(value)
    if not words:
        return None
    given["base"], given["candidate"] = sides(inputs, given.get("base", []), given.get("candidate", []))
    return Request(**given)


def judge(request: Request) -> int:
    """Compare, print and write what was asked for.

    Args:
        request: What to compare and how.

    Returns:
        The verdict's exit code.

    Raises:
        TraceAnalyzerError: The comparison could not be made, or a report not be written.
    """
    from traceanalyzer.cli.output import STDOUT, ReadProgress, check_names, write_report
    from traceanalyzer.gate import LoadOptions, compare
    from traceanalyzer.renderers.messages import speaking
    from traceanalyzer.results.comparison import Verdict

    wanted = [
        path
        for path in (request.html, request.json, request.markdown, request.junit, request.github)
        if path is not None
    ]
    check_names(wanted)
    with ReadProgress() as progress:
        load = LoadOptions(request.step_marker, request.steps, request.profiler, progress.update)
        comparison = compare(
            request.base,
            request.candidate,
            gates=request.gate,
            budgets=request.budget,
            allow_different=request.allow_different,
            load=load,
        )
    with speaking(request.lang):
        page = _html(comparison, request, load) if request.html is not None else None
        if request.redact:
            from traceanalyzer.results.redaction import redact_comparison

            comparison = redact_comparison(comparison)
        if request.json is not None:
            write_report(request.json, comparison.to_json().decode() + "\n")
        if request.markdown is not None or request.junit is not None or request.github is not None:
            from traceanalyzer.renderers import comparison_text as text

            for path, render in (
                (request.markdown, text.render_markdown),
                (request.junit, text.render_junit),
                (request.github, text.render_github),
            ):
                if path is not None:
                    write_report(path, render(comparison))
        if request.html is not None and page is not None:
            write_report(request.html, page)
        if STDOUT not in wanted:
            _show(comparison, wanted)
    if comparison.verdict is Verdict.REGRESSION:
        return REGRESSED
    return UNDECIDED if comparison.verdict is Verdict.INCONCLUSIVE and request.strict else 0


def _show(comparison: Comparison, written: list[Path]) -> None:
    from rich.text import Text

    from traceanalyzer.cli.console import Terminal
    from traceanalyzer.renderers.comparison_terminal import print_comparison
    from traceanalyzer.renderers.messages import say
    from traceanalyzer.renderers.text import visible

    console = Terminal(highlight=False)
    print_comparison(comparison, console)
    if written:
        console.print(Text(say("\nReports: ") + ", ".join(visible(str(path)) for path in written)), soft_wrap=True)


def _html(comparison: Comparison, request: Request, load: LoadOptions) -> str:
    from traceanalyzer.gate import load_timeline
    from traceanalyzer.renderers.comparison_html import render_comparison_html

    before, after = load_timeline(request.base[0], load), load_timeline(request.candidate[0], load)
    if request.redact:
        from traceanalyzer.results.redaction import redact_analysis, redact_comparison

        comparison = redact_comparison(comparison)
        before, after = (None if a is None else redact_analysis(a) for a in (before, after))
    return render_comparison_html(comparison, before, after)
