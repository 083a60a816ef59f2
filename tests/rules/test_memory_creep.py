"""TA406."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, busy_step, empty, healthy, judge
from tests.rules.test_allocation_retries import POOL, with_snapshot
from tests.snapshots import MIB, History, block, segment, snapshot
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import memory_creep as rule


def levels(values: Sequence[float]) -> Measures:
    """Steps that start with these many MiB allocated."""
    builder = TraceBuilder()
    for number, value in enumerate(values):
        at = number * LENGTH
        builder.memory(max(at - 1, 0), MIB, allocated=round(value * MIB), reserved=900 * MIB)
        builder.step(number, at, at + LENGTH)
        busy_step(builder, number, at)
    return Measures(builder.build())


def fires() -> Measures:
    """Each step keeps 10 MiB."""
    return levels([100, 110, 120, 130, 140, 150])


def quiet() -> Measures:
    """Two levels take turns."""
    return levels([100, 150, 100, 150, 100, 150])


def test_the_growth_per_step_is_told() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.observed["growth_per_step_bytes"] == 10 * MIB
    assert finding.evidence_count == 5
    assert finding.saving_per_step_ns.likely is None


def test_a_rise_hidden_by_levels_taking_turns_is_found_two_steps_apart() -> None:
    finding = judge(rule, levels([100, 150, 120, 170, 140, 190]))
    assert finding.status is Status.FAIL
    assert finding.observed["compared_steps_apart"] == 2
    assert finding.observed["growth_per_step_bytes"] == 10 * MIB


@pytest.mark.parametrize(
    "values", [[100, 180, 90, 150, 170, 110, 160, 120], [100, 100.5, 101, 101.5, 102], [100, 100, 160, 160, 160, 160]]
)
def test_noise_small_growth_and_a_single_jump_are_quiet(values: list[float]) -> None:
    assert judge(rule, levels(values)).status is Status.PASS


def test_a_snapshot_names_the_place_whose_blocks_outlive_their_step() -> None:
    made = History()
    size = 20 * MIB
    for number in range(5):
        at = number * LENGTH
        made.add(at + 10, "alloc", POOL + number * size, size, "keeps")
        made.add(at + 20, "alloc", POOL + 100 * size, size, "batch")
        made.free(at + 5_000, POOL + 100 * size, size)
    held = [block(size, function="keeps") for _ in range(5)]
    document = snapshot([segment(POOL, held), segment(POOL + 100 * size, [block(size, "inactive")])], made)
    finding = judge(rule, with_snapshot(healthy(), document))
    assert finding.status is Status.FAIL
    assert finding.observed["growth_per_step_bytes"] == size
    # of steps 1 to 5 those before the last two borders: three kept blocks
    assert "60.0 MiB from keeps at train.py:1" in finding.message
    assert "batch" not in finding.message


def test_few_steps_and_no_events_are_not_judged() -> None:
    assert "4 steady steps (here: 3)" in judge(rule, levels([1, 20, 40])).message
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
