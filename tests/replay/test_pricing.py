"""Findings that fire are priced by replay, and fixes are planned together."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceanalyzer
from tests.shared_data import shared
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import Basis, Status

MS = 1_000_000


def finding(analysis: Analysis, code: str) -> Finding:
    (found,) = [f for f in analysis.findings if f.code == code]
    return found


@pytest.mark.shared
def test_a_loader_in_the_main_process_is_replayed_and_planned() -> None:
    analysis = traceanalyzer.analyze(shared("traces/h200/workers0.pt.trace.json.gz"))
    found = finding(analysis, "TA101")
    saving = found.saving_per_step_ns
    assert found.status is Status.FAIL
    assert saving.basis is Basis.REPLAY
    assert saving.low is not None
    assert saving.likely is not None
    assert saving.high is not None
    assert saving.low <= saving.likely <= saving.high
    assert "What stays: taking a ready batch from the queue" in found.message
    before, after = analysis.plan
    assert before.fixes == []
    assert after.fixes == ["TA101"]
    # one fix alone wins in the plan what it wins by itself
    assert before.step_ns - after.step_ns == pytest.approx(saving.likely, abs=2)


@pytest.mark.shared
def test_more_workers_are_predicted_for_the_resnet_pair_within_its_interval() -> None:
    slow = traceanalyzer.analyze(shared("traces/public/kineto/resnet50_num_workers_0.pt.trace.json.gz"))
    saving = finding(slow, "TA101").saving_per_step_ns
    step = slow.plan[0].step_ns
    assert saving.low is not None
    assert saving.high is not None
    # the same training with four workers took 126.6 ms (median)
    assert step - saving.high <= 126.6 * MS <= step - saving.low


def test_a_cause_whose_cost_leaves_no_event_keeps_its_saving_open_upwards() -> None:
    analysis = traceanalyzer.analyze(Path(__file__).parents[2] / "sample_traces" / "labelled" / "anomaly-mode")
    saving = finding(analysis, "TA207").saving_per_step_ns
    assert saving.basis is Basis.REPLAY
    assert saving.high is None
    assert (saving.likely or 0) > 0
