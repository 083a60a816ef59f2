"""Measures computed once, by whichever thread asks first, and ahead of the thread that judges."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, RLock

import pytest

from tests.builders import TraceBuilder
from traceanalyzer import analyze, ranks
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.measures import Measures
from traceanalyzer.measures.ahead import measured_ahead
from traceanalyzer.measures.once import measured_once
from traceanalyzer.measures.timeline import TimelineDraft, build_timeline, draft_timeline

LABELLED = Path(__file__).parents[2] / "sample_traces" / "labelled"


class _Slow:
    """Two quantities, one made of the other; the first takes as long as the test wants."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.computed = Event(), Event(), 0
        self._locks: dict[str, RLock] = {}

    def lock_of(self, name: str) -> RLock:
        return self._locks.setdefault(name, RLock())

    @measured_once
    def first(self) -> list[int]:
        """What the second is made of."""
        self.computed += 1
        self.begun.set()
        self.may_end.wait(10)
        return [self.computed]

    @measured_once
    def second(self) -> list[int]:
        return [*self.first, 2]

    @measured_once
    def broken(self) -> int:
        self.computed += 1
        raise ValueError("no such rows")


def test_a_thread_that_asks_meanwhile_waits_for_the_first_and_gets_the_same_object() -> None:
    slow = _Slow()
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(lambda: slow.first)
        assert slow.begun.wait(10)
        other = threads.submit(lambda: slow.second)
        slow.may_end.set()
        assert one.result(10) is slow.first
        assert other.result(10) == [1, 2]
    assert slow.computed == 1


def test_what_raises_is_not_kept_and_raises_for_each_who_asks() -> None:
    slow = _Slow()
    for _ in range(2):
        with pytest.raises(ValueError, match="no such rows"):
            _ = slow.broken
    assert slow.computed == 2


def test_a_measured_property_shows_its_documentation_on_the_class() -> None:
    assert _Slow.first.__doc__ == "What the second is made of."


def test_the_draft_measured_ahead_finishes_as_the_timeline_built_in_one_go() -> None:
    builder = TraceBuilder()
    for step in range(3):
        builder.kernel("k", step * 100 + 10, step * 100 + 60, launch=(step * 100, step * 100 + 5))
    measures = Measures(builder.build())
    with measured_ahead(measures) as draft:
        ahead = draft.result(60).finish([(120, 140, "here")])
    assert ahead == build_timeline(
        measures.trace, measures.steps, measures.idle, measures.devices, measures.host, [(120, 140, "here")]
    )
    assert ahead.tracks


def test_an_error_met_ahead_reaches_whoever_asks_for_the_quantity(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TraceAnalyzerError("no launches here")

    monkeypatch.setattr("traceanalyzer.measures.measure_launches", refuse)
    measures = Measures(TraceBuilder().build())
    with measured_ahead(measures) as draft:
        draft.exception(60)
        with pytest.raises(TraceAnalyzerError, match="no launches here"):
            _ = measures.launches


@contextmanager
def _in_one_thread(measures: Measures) -> Iterator[Future[TimelineDraft]]:
    draft: Future[TimelineDraft] = Future()
    draft.set_result(draft_timeline(measures.trace, measures.steps, measures.idle, measures.devices, measures.host))
    yield draft


@pytest.mark.parametrize("name", ["good", "empty-cache", "nsys-empty-cache", "slow-storage"])
def test_one_thread_and_two_write_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = analyze(LABELLED / name).to_json()
    monkeypatch.setattr(ranks, "measured_ahead", _in_one_thread)
    assert analyze(LABELLED / name).to_json() == two
