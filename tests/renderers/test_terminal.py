"""The terminal summary: the answer first, bars that add up, and nothing from a recording acting on the terminal."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.sample_analysis import cpu_only_analysis, hostile_analysis, sample_analysis
from traceanalyzer.renderers.terminal import render_terminal
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.vocabulary import Status, StepSource


def without_faults(analysis: Analysis) -> Analysis:
    quiet = [msgspec.structs.replace(f, status=Status.PASS, severity=None) for f in analysis.findings]
    return msgspec.structs.replace(analysis, findings=quiet)


def test_first_fault_is_the_first_line() -> None:
    sample = sample_analysis()
    assert render_terminal(sample).splitlines()[0] == f"{sample.findings[0].code}  {sample.findings[0].title}"


def test_busy_and_idle_shares_of_the_step_add_up_to_the_whole_step() -> None:
    shares = re.findall(r"^(?:GPU busy|idle: .*?)\s+[\d.]+ .?s\s+([\d.]+) %", render_terminal(sample_analysis()), re.M)
    assert len(shares) > 4
    # each share is rounded to 0.1
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.05 * len(shares))


def test_bars_have_lengths_in_proportion_to_their_shares() -> None:
    rows = re.findall(r"([\d.]+) %  ([█▒]+)", render_terminal(sample_analysis(), width=200))
    per_cell = [float(share) / len(bar) for share, bar in rows if len(bar) > 5]
    assert len(per_cell) > 2
    assert max(per_cell) == pytest.approx(min(per_cell), rel=0.1)


def test_recording_without_gpu_activity_says_so_instead_of_all_idle() -> None:
    text = render_terminal(cpu_only_analysis())
    assert text.startswith("No GPU activity")
    assert "idle:" not in text


@pytest.mark.parametrize(
    "name",
    ["\x1b]0;owned\x07", "\x1b[2J\x1b[H", "a\u202egpj.exe", "x\u2066y\u2069", "zero\u200bwidth", "\x9b31m", "\r\n\x00"],
)
def test_control_and_bidirectional_characters_never_reach_the_terminal(name: str) -> None:
    text = render_terminal(hostile_named(name))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)


def test_rich_markup_in_a_name_is_shown_as_it_is() -> None:
    assert "[red]kernel[/red]" in render_terminal(hostile_named("[red]kernel[/red]"))


def test_hostile_names_are_shown_as_text() -> None:
    assert "</script>" in render_terminal(hostile_analysis(), width=400)


def hostile_named(name: str) -> Analysis:
    sample = sample_analysis()
    first, *rest = sample.findings
    marked = msgspec.structs.replace(first, title=f"title {name}", message=f"message {name}", fix=[f"fix {name}"])
    rank = sample.ranks[0]
    integrity = msgspec.structs.replace(rank.integrity, notes=[f"note {name}"])
    return msgspec.structs.replace(
        sample,
        inputs=[msgspec.structs.replace(sample.inputs[0], path=name)],
        findings=[marked, *rest],
        ranks=[msgspec.structs.replace(rank, integrity=integrity)],
    )


def test_steps_that_were_only_guessed_come_with_a_hint_of_the_marker_option() -> None:
    analysis = sample_analysis()
    (rank, *_) = analysis.ranks
    for source, said in (
        (StepSource.INFERRED, "a period found in the launches"),
        (StepSource.NONE, "all times are of the whole recording"),
    ):
        steps = msgspec.structs.replace(rank.steps, source=source)
        text = render_terminal(
            msgspec.structs.replace(analysis, ranks=[msgspec.structs.replace(rank, steps=steps)]), width=400
        )
        assert said in text
        assert "--step-marker NAME" in text
    assert "--step-marker" not in render_terminal(analysis)
