"""The annotated trace: what the timeline holds, in a form both trace viewers take."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.sample_analysis import HOSTILE, hostile_analysis, sample_analysis
from traceanalyzer.renderers.perfetto import render_perfetto
from traceanalyzer.results.analysis import Analysis

Event = dict[str, Any]


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return sample_analysis()


@pytest.fixture(scope="module")
def events(analysis: Analysis) -> list[Event]:
    found: list[Event] = json.loads(render_perfetto(analysis))["traceEvents"]
    return found


def rows(events: list[Event]) -> dict[str, list[Event]]:
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


def test_every_slice_counter_value_and_evidence_is_one_event(analysis: Analysis, events: list[Event]) -> None:
    timeline = analysis.ranks[0].timeline
    slices = sum(len(t.slices.start_ns) for t in timeline.tracks if t.slices is not None)
    evidence = sum(len(f.evidence) for f in analysis.findings if f.status == "fail")
    assert sum(e["ph"] == "X" for e in events) == slices + evidence
    assert sum(e["ph"] == "C" for e in events) == sum(len(t.counter_time_ns) for t in timeline.tracks)


def test_times_are_exact_to_the_nanosecond(analysis: Analysis, events: list[Event]) -> None:
    first = analysis.findings[0]
    shown = next(found for name, found in rows(events).items() if name.startswith(first.code))
    assert [(round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in shown] == sorted(
        (place.start_ns, place.end_ns - place.start_ns) for place in first.evidence
    )


def test_idle_pieces_are_named_by_cause_and_say_their_phase(analysis: Analysis, events: list[Event]) -> None:
    idle = next(t for t in analysis.ranks[0].timeline.tracks if t.kind == "idle")
    shown = rows(events)[idle.title]
    waits = [e for e in shown if e["args"]["cause"] == "input_wait"]
    assert {e["name"] for e in waits} == {"waiting for input"}
    # the document's own sum of that cause
    assert round(sum(e["dur"] for e in waits) * 1000) == analysis.ranks[0].devices[0].idle_by_cause_ns["input_wait"]


def test_slices_of_a_row_nest_or_follow_each_other(events: list[Event]) -> None:
    by_row: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            by_row[e["tid"]].append((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)))
    for spans in by_row.values():
        ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)


def test_arrows_lead_from_launches_to_streams(events: list[Event]) -> None:
    begun = {e["id"] for e in events if e["ph"] == "s"}
    ended = {e["id"] for e in events if e["ph"] == "f"}
    assert begun
    assert begun == ended


def test_hostile_names_are_data_and_equal_documents_give_equal_traces() -> None:
    hostile = hostile_analysis()
    text = render_perfetto(hostile)
    assert any(HOSTILE in e["name"] for e in json.loads(text)["traceEvents"])
    assert render_perfetto(Analysis.from_json(hostile.to_json())) == text
