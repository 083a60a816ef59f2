"""TA701."""

from __future__ import annotations

import pytest

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, loop
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording
from traceanalyzer.results.vocabulary import Severity, Status
from traceanalyzer.rules import exposed_communication as rule

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def reducing(exposed_us: float, hidden_us: float = 500, *, twice: bool = False) -> Measures:
    """Compute up to a moment of every step, and a collective on another stream that outlasts it."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        end = at + LENGTH - exposed_us
        b.operator("aten::conv2d", at, at + 10)
        b.kernel("gemm", at + 5, end, launch=(at + 1, at + 3))
        for stream in (20, 21) if twice else (20,):
            launch = at + 4 + (stream - 20) * 2
            b.kernel(REDUCE, end - hidden_us, end + exposed_us, launch=(launch, launch + 1), stream=stream)

    return loop(step)


def fires() -> Measures:
    """2,000 µs of every step only communicate."""
    return reducing(2_000)


def quiet() -> Measures:
    """All but 50 µs is hidden behind compute."""
    return reducing(50, hidden_us=3_000)


def test_only_what_compute_does_not_hide_is_counted() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    assert finding.saving_per_step_ns.high == 2_000_000
    assert finding.observed["communication_per_step_ns"] == 2_500_000
    assert finding.severity is Severity.HIGH


def test_two_collectives_at_once_expose_their_time_once() -> None:
    assert judge(rule, reducing(2_000, twice=True)).saving_per_step_ns.high == 2_000_000


def test_hidden_communication_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_without_collectives_it_is_not_judged() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


@pytest.mark.shared
def test_on_two_public_ranks_the_exchanges_are_exposed_in_full() -> None:
    recording = open_recording(shared("traces/public/nsys_ai/mfu_2gpu_before.sqlite.gz"))
    found = [judge(rule, Measures(trace)) for trace in recording.traces]
    assert [f.status for f in found] == [Status.FAIL, Status.FAIL]
    # SendRecv kernels of the export's two devices sum to 17.17 and 8.23 ms over the whole span; 26 of 33 lie in steps
    assert [f.observed["exposed_per_step_ns"] for f in found] == [1_121_729, 540_567]
