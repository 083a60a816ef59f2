"""TA702."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us
from tests.rules.test_exposed_communication import REDUCE
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import straggler_rank as rule

STEPS = 9


def rank(number: int, compute_us: float, shift_us: float = 0) -> Measures:
    """One rank that computes, then reduces until the step's end."""
    builder = TraceBuilder(rank=number, world_size=2)
    for step in range(STEPS):
        at = step * LENGTH
        builder.step(step, at, at + LENGTH)
        builder.operator("aten::conv2d", at, at + 10)
        builder.kernel("gemm", at + 5, at + compute_us, launch=(at + 1, at + 3))
        end = at + LENGTH - 100
        builder.kernel(REDUCE, at + compute_us + shift_us, end + shift_us, launch=(at + 4, at + 6), stream=20)
    return Measures(builder.build())


def together(*ranks: Measures) -> Measures:
    """Show the ranks to each other; returns the first."""
    for one in ranks:
        one.peers = tuple(other for other in ranks if other is not one)
    return ranks[0]


def fires() -> Measures:
    """This rank computes 3,000 µs longer than the other in every step."""
    return together(rank(1, 9_000), rank(0, 6_000))


def quiet() -> Measures:
    """The other rank is the late one."""
    return together(rank(0, 6_000), rank(1, 9_000))


def test_the_late_rank_is_named_with_what_the_others_wait_and_why() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert likely_us(finding) == 3_000
    assert finding.observed["last_in_collectives"] == STEPS
    assert finding.observed["differs_most_in"] == "device_work"
    assert finding.observed["difference_per_step_ns"] == 3_000_000


def test_the_waiting_rank_is_not_accused() -> None:
    finding = judge(rule, quiet())
    assert finding.status is Status.PASS
    assert finding.observed["own_wait_per_step_ns"] == 3_000_000


def test_equal_ranks_are_quiet() -> None:
    assert judge(rule, together(rank(0, 6_000), rank(1, 6_000))).status is Status.PASS


def test_ranks_whose_clocks_disagree_are_not_judged() -> None:
    finding = judge(rule, together(rank(1, 9_000), rank(0, 6_000, shift_us=5_000)))
    assert finding.status is Status.NOT_APPLICABLE
    assert "clocks agree" in finding.message


def test_a_rank_alone_and_an_empty_recording_are_not_judged() -> None:
    assert judge(rule, rank(0, 6_000)).status is Status.NOT_APPLICABLE
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


@pytest.mark.shared
@pytest.mark.parametrize("name", ["mfu_2gpu_before", "mfu_2gpu_after"])
def test_two_public_ranks_take_turns_in_being_late(name: str) -> None:
    recording = open_recording(shared(f"traces/public/nsys_ai/{name}.sqlite.gz"))
    first, second = (Measures(trace) for trace in recording.traces)
    together(first, second)
    found = [judge(rule, first), judge(rule, second)]
    assert [f.status for f in found] == [Status.PASS, Status.PASS]
    # each collective has one last rank, and the one's wait is what the other costs it
    counts = [f.observed["last_in_collectives"] for f in found]
    assert sum(counts) == found[0].observed["collectives"]  # type: ignore[arg-type]
    assert found[0].observed["own_wait_per_step_ns"] == found[1].observed["others_wait_per_step_ns"]
