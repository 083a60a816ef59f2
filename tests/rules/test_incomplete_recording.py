"""TA901."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import empty, healthy, judge
from traceanalyzer.measures import Measures
from traceanalyzer.model.trace import Integrity
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import incomplete_recording as rule


def with_integrity(integrity: Integrity) -> Measures:
    builder = TraceBuilder()
    builder.kernel("gemm", 10, 100, launch=(0, 5))
    return Measures(dataclasses.replace(builder.build(), integrity=integrity))


def fires() -> Measures:
    """Three records were dropped and the file ends early."""
    integrity = Integrity(is_truncated=True)
    integrity.drop("negative duration", "kernel", 3)
    return with_integrity(integrity)


def quiet() -> Measures:
    """Everything is there."""
    return with_integrity(Integrity())


def unlinked(missing: int, kind: str) -> Measures:
    """A hundred linked kernels, and some without launch or launches without kernel."""
    builder = TraceBuilder()
    for k in range(100):
        builder.kernel("gemm", 100 * k + 10, 100 * k + 90, launch=(100 * k, 100 * k + 5))
    for k in range(missing):
        at = 20_000 + 100 * k
        if kind == "kernels":
            builder.kernel("gemm", at, at + 50)
        else:
            builder.call(kind, at, at + 5, correlation=builder.next_correlation())
    return Measures(builder.build())


def test_dropped_records_and_a_cut_are_told_with_their_meaning() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.INFORMATIVE
    assert "3 × negative duration" in finding.message
    assert "the source ends early" in finding.message
    assert finding.observed["dropped_records"] == 3


def test_a_whole_recording_passes() -> None:
    assert judge(rule, quiet()).status is Status.PASS
    assert judge(rule, healthy()).status is Status.PASS


@pytest.mark.parametrize(("missing", "status"), [(1, Status.PASS), (2, Status.INFORMATIVE)])
@pytest.mark.parametrize("kind", ["kernels", "cudaLaunchKernel"])
def test_up_to_one_percent_without_a_counterpart_is_the_edge_of_a_recording(
    missing: int, status: Status, kind: str
) -> None:
    assert judge(rule, unlinked(missing, kind)).status is status


def test_memsets_of_no_bytes_are_not_held_against_the_recording() -> None:
    assert judge(rule, unlinked(50, "cudaMemsetAsync")).status is Status.PASS


def test_an_empty_recording_misses_nothing() -> None:
    assert judge(rule, empty()).status is Status.PASS
