"""Damage of every kind: whole events on both sides survive, and what is missing is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.test_kineto_spellings import OPERATOR, read, span
from tests.shared_data import shared
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import kineto_chunks, open_recording

UNREADABLE = "unreadable text among the events"


def kernels(count: int) -> list[dict[str, Any]]:
    return [span("kernel", f"kernel {i}", 1000 + 10 * i, 5, 0, 7, correlation=i + 1) for i in range(count)]


def read_text(tmp_path: Path, text: str | bytes) -> Trace:
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_recording(path).traces[0]


def event_text(name: str, ts: int = 100, cat: str = "python_function") -> str:
    return f'{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": 1, "tid": 1, "ts": {ts}, "dur": 5, "args": {{}}}}'


def test_windows_paths_with_lone_backslashes_keep_their_names(tmp_path: Path) -> None:
    paths = [r"torch\cuda\__init__.py(1): f", r"C:\Users\new\tool.py(2): g"]
    trace = read_text(tmp_path, '{"traceEvents": [' + ", ".join(map(event_text, paths)) + "]}")
    assert set(paths) <= set(trace.names)
    assert trace.integrity.notes[0] == "2 events held unescaped backslashes and were repaired"


def test_escapes_that_parse_are_left_alone(tmp_path: Path) -> None:
    trace = read_text(tmp_path, '{"traceEvents": [' + event_text(r"a\tb\u00e9") + "]}")
    assert "a\tbé" in trace.names
    assert not any("repaired" in note for note in trace.integrity.notes)


def test_raw_control_characters_in_a_name_keep_the_event(tmp_path: Path) -> None:
    trace = read_text(tmp_path, '{"traceEvents": [' + event_text("a\x01b") + ", " + event_text("c\nd", 200) + "]}")
    assert {"a\x01b", "c\nd"} <= set(trace.names)
    assert trace.integrity.notes[0] == "2 events held raw control characters and were repaired"


def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    text = ('{"traceEvents": [' + event_text("aten::XY") + "]}").encode().replace(b"XY", b"\xff\xfe")
    assert "aten::\ufffd\ufffd" in read_text(tmp_path, text).names


def test_half_a_surrogate_pair_does_not_reach_a_name(tmp_path: Path) -> None:
    trace = read_text(tmp_path, '{"traceEvents": [' + event_text(r"bad \ud800 name") + "]}")
    assert "bad \ufffd name" in trace.names


def test_events_on_both_sides_of_damage_survive(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": kernels(1000)})
    start = text.index('"name": "kernel 500"')
    trace = read_text(tmp_path, text[:start] + "\x00###garbage###" + text[start + 200 :])
    survivors = {trace.names[code] for code in trace.activities.name}
    missing = {f"kernel {i}" for i in range(1000)} - survivors
    assert missing <= {"kernel 500", "kernel 501", "kernel 502"}
    assert len(missing) >= 1
    assert UNREADABLE in trace.integrity.dropped
    assert not trace.integrity.is_truncated
    # the spot is marked as incomplete: kernel 499 starts at 499 * 10 us after the first
    assert trace.integrity.cut_ns
    assert trace.integrity.cut_ns[0][0] == 4_990_000
    assert trace.integrity.cut_ns[-1][1] <= 5_040_000


def test_damage_costs_no_neighbour_at_a_block_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_chunks, "BLOCK_BYTES", 700)
    text = json.dumps({"traceEvents": kernels(200), "deviceProperties": [{"id": 0, "name": "G"}, {"id": 1}]})
    damaged = text.replace('"name": "kernel 77"', '"name": kernel 77"')
    trace = read_text(tmp_path, damaged)
    assert len(trace.activities) == 199
    assert len(trace.devices) == 2
    assert trace.integrity.dropped[UNREADABLE].count == 1


@settings(max_examples=60, deadline=None)
@given(block=st.integers(60, 3000), nested=st.booleans(), indent=st.sampled_from([None, 1]))
def test_any_block_size_gives_the_same_columns(
    tmp_path_factory: pytest.TempPathFactory, block: int, nested: bool, indent: int | None
) -> None:
    events = kernels(40)
    if nested:  # looks like a border between events, twice, inside one
        events[20]["args"]["list"] = [{"name": "a", "x": 1}, {"ph": "X", "name": "b"}, {"name": "c"}]
        events[21]["name"] = 'x}, {"ph": "X"'
    path = tmp_path_factory.mktemp("t") / "trace.json"
    path.write_text(json.dumps({"a": 1, "traceEvents": events, "z": {"name": [{"id": 1}, {"id": 2}]}}, indent=indent))
    original = kineto_chunks.BLOCK_BYTES
    kineto_chunks.BLOCK_BYTES = block
    try:
        trace = open_recording(path).traces[0]
    finally:
        kineto_chunks.BLOCK_BYTES = original
    assert trace.activities.start_ns.tolist() == [10_000 * i for i in range(40)]
    assert not trace.integrity.dropped
    assert not trace.integrity.notes
    assert not trace.integrity.cut_ns


@settings(max_examples=80, deadline=None)
@given(cut=st.integers(40, 6_000))
def test_a_cut_anywhere_keeps_exactly_the_whole_events(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    text = json.dumps({"traceEvents": kernels(40)})
    cut = min(cut, len(text) - 3)
    whole = sum(_end(text, i) <= cut for i in range(40))
    path = tmp_path_factory.mktemp("t") / "trace.json"
    path.write_text(text[:cut])
    if whole == 0:
        return
    trace = open_recording(path).traces[0]
    assert len(trace.activities) == whole
    assert trace.integrity.is_truncated
    assert f"truncated after {whole} events" in trace.integrity.notes
    assert trace.integrity.truncated_at_ns == 10_000 * (whole - 1)


def _end(text: str, i: int) -> int:
    mark = f'"correlation": {i + 1}}}}}'
    return text.index(mark) + len(mark)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_done_to_a_few_bytes_most_events_survive(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = bytearray(
        json.dumps({"schemaVersion": 1, "traceEvents": kernels(60), "deviceProperties": [{"id": 0}]}).encode()
    )
    first = text.index(b"[") + 1
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(first, len(text) - 1))
        gone = data.draw(st.integers(0, 40))
        text[place : place + gone] = data.draw(
            st.binary(max_size=12) | st.sampled_from([b"[", b"]}", b'{"ph"', b'"', b"\\"])
        )
    path = tmp_path_factory.mktemp("t") / "trace.json"
    path.write_bytes(bytes(text))
    trace = open_recording(path).traces[0]
    # each of three spots touches at most two events; an opened list or string may take its neighbour too
    assert len(trace.activities) + sum(entry.count for entry in trace.integrity.dropped.values()) >= 40


def test_a_missing_closing_bracket_is_a_truncation_that_lost_nothing_known(tmp_path: Path) -> None:
    trace = read_text(tmp_path, json.dumps({"traceEvents": kernels(5)})[:-2])
    assert len(trace.activities) == 5
    assert trace.integrity.is_truncated
    assert not trace.integrity.dropped


def test_metadata_cut_off_behind_the_events_is_said(tmp_path: Path) -> None:
    trace = read_text(tmp_path, json.dumps({"traceEvents": kernels(5), "traceName": "abcdef"})[:-6])
    assert len(trace.activities) == 5
    assert trace.integrity.is_truncated
    assert trace.integrity.notes == ["the metadata behind the events could not be read whole"]
    assert not trace.integrity.cut_ns


def test_unescaped_paths_in_the_metadata_do_not_hide_the_rest(tmp_path: Path) -> None:
    text = '{"log": ["C:\\Users\\x"], "distributedInfo": {"rank": 2}, "traceEvents": [' + event_text("f") + "]}"
    assert read_text(tmp_path, text).rank == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ts": None}, "event without a start"),
        ({"dur": None}, "event without a duration"),
        ({"ts": "soon"}, "event whose time is not a number"),
        ({"ts": [1]}, "event whose time is not a number"),
        ({"dur": -5}, "event with a negative duration"),
        ({"dur": "Infinity"}, "event whose time is not finite or beyond 64 bits"),
        ({"dur": 9.2e15}, "event whose time is not finite or beyond 64 bits"),
        ({"dur": 9.2e12}, "event longer than the capture"),
        ({"ts": 0}, "event starting at 0 among absolute times"),
        ({"ts": 5}, "event starting far outside the capture"),
    ],
)
def test_an_impossible_time_is_dropped_and_counted(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    epoch = 1_700_000_000_000_000
    events = [span("kernel", f"k{i}", epoch + 10 * i, 5, 0, 7, correlation=i + 1) for i in range(3)]
    bad = {**span("kernel", "bad", epoch + 50, 5, 0, 7, correlation=9), **change}
    trace = read(tmp_path, [*events, {key: value for key, value in bad.items() if value is not None}])
    assert len(trace.activities) == 3
    assert {r: d.count for r, d in trace.integrity.dropped.items()} == {reason: 1}
    assert "bad" in trace.integrity.dropped[reason].example


def test_a_kernel_that_outlasts_everything_before_it_is_kept(tmp_path: Path) -> None:
    events = [OPERATOR, span("kernel", "long", 150, 5_000_000, 0, 7)]
    assert len(read(tmp_path, events).activities) == 1


def test_a_record_written_twice_counts_once(tmp_path: Path) -> None:
    events = [span("cuda_runtime", "cudaLaunchKernel", 5 * i, 2, correlation=i + 1) for i in range(3)] + kernels(3)
    trace = read(tmp_path, events + events)
    assert len(trace.activities) == len(trace.calls) == 3
    assert {r: d.count for r, d in trace.integrity.dropped.items()} == {
        "GPU activity written twice": 3,
        "call written twice": 3,
    }
    assert (trace.activity_call >= 0).all()


def test_equal_kernels_of_one_graph_launch_are_not_a_repetition(tmp_path: Path) -> None:
    events = [span("kernel", name, 10, 1, 0, 7, correlation=4) for name in ("a", "a", "b")]
    assert len(read(tmp_path, events).activities) == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"name": 17},
        {"args": None},
        {"args": [1, 2]},
        {"cat": "kernel", "args": {"grid": "x", "stream": "0x0", "correlation": 2**70, "device": {}}},
        {"pid": [1], "tid": {"a": 2}},
        {"args": {"Comms Id": 10159970886766084423}},
        {"args": {"deep": [[[[[[{"a": [{}]}]]]]]]}},
    ],
)
def test_a_member_of_the_wrong_type_never_costs_the_event(tmp_path: Path, odd: dict[str, Any]) -> None:
    trace = read(tmp_path, [OPERATOR, {**span("cpu_op", "x", 3, 1), **odd}, OPERATOR])
    assert len(trace.slices) + len(trace.activities) == 3
    assert not trace.integrity.dropped


@pytest.mark.parametrize(("odd", "lost"), [("[" * 100_000 + "]" * 100_000, 1), ("1" * 5_000, 0)])
def test_absurd_nesting_costs_one_event_and_an_absurd_number_none(tmp_path: Path, odd: str, lost: int) -> None:
    good = event_text("f")
    trace = read_text(tmp_path, f'{{"traceEvents": [{good}, {good[:-2]}"x": {odd}}}}}, {good}]}}')
    assert len(trace.slices) == 3 - lost
    assert sum(entry.count for entry in trace.integrity.dropped.values()) == lost


@pytest.mark.shared
def test_sixty_per_cent_of_a_real_trace_is_salvaged(tmp_path: Path) -> None:
    text = gzip.decompress(shared("traces/public/hta/ns_resolution_rank-0.pt.trace.json.gz").read_bytes())
    cut = text[: len(text) * 6 // 10]
    trace = read_text(tmp_path, cut)
    last_brace = cut.rindex(b"\n  {")
    reference = json.loads(cut[:last_brace].rstrip().rstrip(b",") + b"]}")["traceEvents"]
    spans = [event.get("cat") for event in reference if event["ph"] == "X"]
    assert abs(len(trace.activities) - sum(c in ("kernel", "gpu_memcpy", "gpu_memset") for c in spans)) <= 1
    assert abs(len(trace.calls) - spans.count("cuda_runtime")) <= 1
    assert abs(len(trace.slices) - spans.count("cpu_op") - spans.count("user_annotation")) <= 1
    assert trace.integrity.is_truncated
    # device rows stop where the file stops; host rows, written first, go on: the rest of the time is incomplete
    (cut_span,) = trace.integrity.cut_ns
    assert cut_span[0] == min(trace.activities.start_ns.max(), trace.calls.start_ns.max())
    assert cut_span[1] >= trace.slices.end_ns.max()


@pytest.mark.shared
def test_a_gzip_cut_by_a_hundred_bytes_loses_only_its_end(tmp_path: Path) -> None:
    path = shared("traces/public/tracelens/h100_vit.json.gz")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(path.read_bytes()[:-100])
    trace, sound = open_recording(cut).traces[0], open_recording(path).traces[0]
    assert trace.integrity.is_truncated
    assert "the gzip data is cut off; read as far as it goes" in trace.integrity.notes
    assert len(trace.slices) >= len(sound.slices) - 10
    assert np.array_equal(trace.activities.start_ns, sound.activities.start_ns[: len(trace.activities)])


@pytest.mark.shared
def test_a_flipped_bit_in_the_gzip_checksum_loses_nothing(tmp_path: Path) -> None:
    path = shared("traces/public/tracelens/h100_vit.json.gz")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    damaged = tmp_path / "trace.json.gz"
    damaged.write_bytes(data)
    trace, sound = open_recording(damaged).traces[0], open_recording(path).traces[0]
    assert len(trace.activities) == len(sound.activities)
    assert len(trace.slices) == len(sound.slices)
    assert any("gzip data is damaged" in note for note in trace.integrity.notes)
