"""Silence is only good news when everything was looked at."""

from __future__ import annotations

import msgspec
import pytest

from tests.sample_analysis import sample_analysis
from traceanalyzer.renderers.markdown import render_markdown
from traceanalyzer.renderers.terminal import render_terminal
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.answer import ANSWERING_RULES, part_of, silence
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind, Status


def quiet(*, codes: frozenset[str] = ANSWERING_RULES, verdict: str = "complete", busy: float = 0.05) -> Analysis:
    """The sample document with nothing firing; busy is the share of every window in which the device works."""
    sample = sample_analysis()
    rank = sample.ranks[0]
    windows = rank.per_step.window_ns
    busy_ns = [round(busy * w) for w in windows]
    series = msgspec.structs.replace(
        rank.per_step,
        busy_by_kind_ns={"compute": busy_ns},
        idle_by_cause_ns={"python": [w - b for w, b in zip(windows, busy_ns, strict=True)]},
    )
    integrity = msgspec.structs.replace(rank.integrity, verdict=verdict)
    return msgspec.structs.replace(
        sample,
        ranks=[msgspec.structs.replace(rank, per_step=series, integrity=integrity)],
        findings=[
            Finding(code=c, slug="s", kind=FindingKind.FAULT, status=Status.PASS, title="t", message="m")
            for c in sorted(codes)
        ],
    )


def test_a_busy_device_judged_by_every_rule_has_nothing_to_fix() -> None:
    assert silence(quiet(busy=0.95)).is_healthy
    assert render_terminal(quiet(busy=0.95)).startswith("Nothing to fix")


@pytest.mark.parametrize(
    ("document", "title"),
    [
        (quiet(verdict="partial", busy=0.95), "No answer: the recording is incomplete"),
        (quiet(codes=ANSWERING_RULES - {"TA202"}, busy=0.95), "No answer: rules were left out"),
        (quiet(busy=0.05), "No single cause to fix"),
    ],
)
def test_silence_for_another_reason_is_not_called_healthy(document: Analysis, title: str) -> None:
    assert not silence(document).is_healthy
    assert title in render_terminal(document)
    assert title in render_markdown(document)
    assert "Nothing to fix" not in render_terminal(document)


@pytest.mark.parametrize(
    ("statuses", "title"),
    [
        ({"TA101": Status.PASS}, "TA101 does not fire"),
        ({"TA101": Status.PASS, "TA102": Status.PASS}, "TA101, TA102 do not fire"),
        ({"TA401": Status.NOT_APPLICABLE}, "TA401 could not be judged on this recording"),
        (
            {"TA101": Status.PASS, "TA401": Status.NOT_APPLICABLE},
            "TA101 does not fire; TA401 could not be judged on this recording",
        ),
        ({"TA902": Status.INFORMATIVE}, "No answer: rules were left out"),
        ({}, "No answer: rules were left out"),
    ],
)
def test_who_asks_for_a_few_rules_is_told_about_these(statuses: dict[str, Status], title: str) -> None:
    document = quiet(codes=frozenset(statuses), busy=0.95)
    findings = [msgspec.structs.replace(f, status=statuses[f.code]) for f in document.findings]
    document = msgspec.structs.replace(document, findings=findings)
    assert silence(document).title == title
    assert not silence(document).is_healthy
    assert render_terminal(document).startswith(title)


def test_a_finding_inside_another_ones_time_says_so_only_where_both_fire() -> None:
    (inner, outer) = (
        Finding(code=code, slug="x", kind=FindingKind.LIMITER, status=Status.FAIL, title="t", message="m")
        for code in ("TA204", "TA201")
    )
    both = msgspec.structs.replace(sample_analysis(), findings=[outer, inner])
    assert part_of(both, inner) == "TA201"
    assert part_of(both, outer) == ""
    assert part_of(msgspec.structs.replace(both, findings=[inner]), inner) == ""
