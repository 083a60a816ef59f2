"""TA404."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.support import empty, healthy, judge
from tests.rules.test_allocation_retries import POOL, with_snapshot
from tests.snapshots import MIB, History, block, segment, snapshot
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import memory_fragmentation as rule


def growing(free: int, grown: int = 40) -> dict[str, Any]:
    """The last of three segments came in the history; all have 60 MiB in use, and some MiB free in the first."""
    made = History()
    made.add(100, "alloc", POOL, 60 * MIB)
    made.add(200, "segment_alloc", POOL + 900 * MIB, grown * MIB)
    made.add(300, "alloc", POOL + 900 * MIB, grown * MIB)
    segments = [
        segment(POOL, [block(60 * MIB), block(free * MIB, "inactive")]),
        segment(POOL + 900 * MIB, [block(grown * MIB)]),
    ]
    return snapshot(segments, made)


def fires() -> Measures:
    """100 MiB in use, 100 MiB free, and yet 40 MiB more were taken."""
    return with_snapshot(healthy(), growing(100))


def quiet() -> Measures:
    """100 MiB in use, 20 MiB free."""
    return with_snapshot(healthy(), growing(20))


def test_fragmentation_is_free_memory_over_reserved_at_the_peak_of_active() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.observed["fragmentation"] == 0.5
    assert finding.observed["final_largest_free_bytes"] == 100 * MIB
    assert "expandable_segments" in finding.fix[0]


def test_free_memory_that_nobody_misses_is_no_fault() -> None:
    finding = judge(rule, with_snapshot(healthy(), growing(100, grown=20)))
    assert finding.status is Status.PASS
    assert "nothing failed" in finding.message


@pytest.mark.parametrize(("free", "status"), [(33, Status.PASS), (34, Status.FAIL)])
def test_it_speaks_from_a_quarter_on(free: int, status: Status) -> None:
    assert judge(rule, with_snapshot(healthy(), growing(free))).status is status


def test_without_a_snapshot_nothing_is_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE
    assert judge(rule, quiet()).status is Status.PASS
