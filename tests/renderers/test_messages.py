"""Findings in Chinese: every sentence of every rule is in the catalogue, and English stays as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sample_analysis import sample_analysis
from tests.shared_data import ROOT
from traceanalyzer.pipeline import analyze
from traceanalyzer.renderers.messages import catalogue, in_language, speaking, translated
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import RULES

RECORDINGS = sorted(path for path in (ROOT / "sample_traces" / "labelled").iterdir() if path.is_dir())
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.META.code)
def test_titles_of_every_rule_have_a_translation(rule: object) -> None:
    known = catalogue("zh").sentences
    assert rule.META.fail_title in known  # type: ignore[attr-defined]
    assert rule.META.pass_title in known  # type: ignore[attr-defined]


def test_english_is_left_alone() -> None:
    analysis = sample_analysis()
    assert in_language(analysis) is analysis


def test_values_stay_whole_and_move_to_where_chinese_puts_them() -> None:
    with speaking("zh"):
        text = translated("Operators choosing a plan leave the device idle only 2.26 s per step.")
    assert text == "算子选择执行方案每步只使设备空闲 2.26 s。"


def test_what_the_catalogue_does_not_know_stays_english() -> None:
    with speaking("zh"):
        assert translated("A sentence nobody wrote.") == "A sentence nobody wrote."


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_what_fired_in_a_labelled_recording_is_said_in_chinese(recording: Path) -> None:
    with speaking("zh"):
        findings = [finding for finding in in_language(analyze([recording])).findings if finding.status is Status.FAIL]
    assert findings or "healthy" in recording.name
    said = [text for finding in findings for text in (finding.title, finding.message, *finding.fix)]
    assert [text for text in said if not CHINESE.search(text)] == []
