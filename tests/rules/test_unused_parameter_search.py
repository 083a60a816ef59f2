"""TA704."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import unused_parameter_search as rule

SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def searching(us: float) -> Measures:
    """In every step the graph is walked after the forward pass."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation("DistributedDataParallel.forward", at, at + 1_200 + us)
        work(b, at, at + 5, at + 1_000)
        b.operator(SEARCH, at + 1_000, at + 1_000 + us)
        work(b, at + 1_000 + us, at + 1_005 + us, at + LENGTH)

    return loop(step)


def fires() -> Measures:
    """The search takes 2,000 µs of every step."""
    return searching(2_000)


def quiet() -> Measures:
    """It takes 50 µs."""
    return searching(50)


def test_idle_time_inside_the_search_is_won() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 2_000


def test_a_short_search_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_without_the_wrapper_it_is_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


@pytest.mark.shared
def test_a_public_distributed_run_without_the_search_passes() -> None:
    recording = open_recording(shared("traces/public/hta/ns_resolution_rank-0.pt.trace.json.gz"))
    assert judge(rule, Measures(recording.traces[0])).status is Status.PASS
