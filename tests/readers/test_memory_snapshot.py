"""Memory snapshots: every layout, and pickles that mean harm."""

from __future__ import annotations

import gzip
import lzma
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

import traceanalyzer
from tests.shared_data import shared
from tests.snapshots import EPOCH_US, MIB, History, block, frame, segment, snapshot, write
from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.measures.memory_snapshot import segment_contradictions
from traceanalyzer.model.memory_snapshot import BlockState, MemoryAction
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.readers.memory_snapshot import read, read_snapshot


def simple() -> dict[str, Any]:
    history = History()
    history.add(5, "segment_alloc", 1000 * MIB, 20 * MIB)
    history.add(10, "alloc", 1000 * MIB, 2 * MIB, "keep")
    return snapshot([segment(1000 * MIB, [block(2 * MIB, function="keep"), block(18 * MIB, "inactive")])], history)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_gives_the_same_tables(tmp_path: Path, protocol: int) -> None:
    read_one = read_snapshot(write(tmp_path / "s.pickle", simple(), protocol))
    assert read_one.segments.total_bytes.tolist() == [20 * MIB]
    assert read_one.blocks.state.tolist() == [BlockState.ALLOCATED, BlockState.FREE]
    assert read_one.events.action.tolist() == [MemoryAction.SEGMENT_ALLOC, MemoryAction.ALLOC]
    assert read_one.events.time_ns.tolist() == [(EPOCH_US + 5) * 1000, (EPOCH_US + 10) * 1000]
    assert read_one.stacks[read_one.blocks.stack[0]][0].function == "keep"
    assert segment_contradictions(read_one) == []


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_snapshots_are_read(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "s.pickle.z"
    path.write_bytes(pack(pickle.dumps(simple())))
    assert len(read_snapshot(path).segments) == 1


def test_the_oldest_layout_is_a_list_of_segments_without_addresses_of_blocks(tmp_path: Path) -> None:
    old = {
        "device": 0, "address": 4096, "total_size": 2 * MIB, "allocated_size": 512, "active_size": 1024,
        "segment_type": "small",
        "blocks": [
            {"size": 512, "state": "active_allocated", "history": [{"real_size": 8, "frames": [frame("f")]}]},
            {"size": 512, "state": "active_pending_free"},
            {"size": 2 * MIB - 1024, "state": "inactive"},
        ],
    }  # fmt: skip
    found = read_snapshot(write(tmp_path / "s.pickle", [old], 2))
    assert found.blocks.address.tolist() == [4096, 4608, 5120]
    assert found.blocks.requested_bytes.tolist() == [8, -1, -1]
    assert found.stacks[found.blocks.stack[0]][0].function == "f"
    assert segment_contradictions(found) == []
    assert any("state only" in note for note in found.integrity.notes)


def test_entries_without_times_keep_their_order(tmp_path: Path) -> None:
    history = History()
    history.add(0, "alloc", 4096, 512)
    history.add(0, "oom", 0, 99, device_free=7)
    for entry in history.entries:
        del entry["time_us"]
    del history.entries[1]["addr"]
    found = read_snapshot(write(tmp_path / "s.pickle", snapshot([segment(4096, [block(512)])], history)))
    assert found.events.time_ns.tolist() == [-1, -1]
    assert found.events.device_free_bytes.tolist() == [-1, 7]
    document = traceanalyzer.analyze(tmp_path / "s.pickle")
    assert document.ranks[0].memory is not None
    assert document.ranks[0].memory.devices[0].ooms == 1
    assert document.ranks[0].memory.first_ns is None


def test_devices_pools_expandable_segments_and_pinned_memory_are_told_apart(tmp_path: Path) -> None:
    segments = [
        segment(1 * MIB, [block(MIB)]),
        segment(9 * MIB, [block(MIB)], device=3, is_expandable=True),
        segment(20 * MIB, [block(MIB, "inactive")], segment_pool_id=(0, 5)),
        segment(30 * MIB, [block(MIB)], segment_type="host"),
    ]
    report = traceanalyzer.analyze(write(tmp_path / "s.pickle", snapshot(segments))).ranks[0].memory
    assert report is not None
    kinds = {(d.device_id, g.kind, g.state) for d in report.devices for g in d.groups}
    assert kinds == {
        (0, "large", "in use"),
        (3, "expandable large", "in use"),
        (0, "private pool", "free"),
        (-1, "pinned host", "in use"),
    }


def test_a_ring_that_begins_in_its_middle_is_put_in_order(tmp_path: Path) -> None:
    history = History()
    history.add(20, "alloc", 8192, 512)
    history.add(10, "alloc", 4096, 512)
    found = read_snapshot(write(tmp_path / "s.pickle", snapshot([segment(4096, [block(512)])], history)))
    assert found.events.address.tolist() == [4096, 8192]


def test_rows_that_are_not_well_formed_are_dropped_and_counted(tmp_path: Path) -> None:
    history = History()
    history.add(1, "dance", 1, 1)
    history.entries.append("x")  # type: ignore[arg-type]
    sound = segment(4096, [block(512)])
    sound["blocks"] += [{"size": -1, "state": "inactive"}, 7]
    bad: list[Any] = [sound, {"total_size": "big"}, None]
    found = read_snapshot(write(tmp_path / "s.pickle", snapshot(bad, history)))
    assert sorted(d.count for d in found.integrity.dropped.values()) == [2, 2, 2]
    assert len(found.blocks) == 1


def test_a_time_beyond_64_bits_counts_as_none(tmp_path: Path) -> None:
    history = History()
    history.add(7, "alloc", 4096, 512)
    history.add(8, "alloc", 8192, 512)
    history.entries[0]["time_us"], history.entries[1]["time_us"] = 2**55, 7
    found = read_snapshot(write(tmp_path / "s.pickle", snapshot([segment(4096, [block(512)])], history)))
    assert found.events.time_ns.tolist() == [-1, 7000]


def test_half_a_character_in_a_name_leaves_a_document_that_can_be_written(tmp_path: Path) -> None:
    history = History()
    history.add(1, "alloc", 4096, 512, "for\ud800ward")
    document = traceanalyzer.analyze(write(tmp_path / "s.pickle", snapshot([segment(4096, [block(512)])], history)))
    assert "for?ward" in document.to_json().decode()


def test_sums_that_do_not_hold_are_named(tmp_path: Path) -> None:
    wrong = [
        segment(4096, [block(512)], total_size=1024),
        segment(16384, [block(512)], allocated_size=0),
        segment(16384 + 256, [block(512)]),
    ]
    found = segment_contradictions(read_snapshot(write(tmp_path / "s.pickle", snapshot(wrong))))
    assert len(found) == 3
    assert "1 of 3 segments" in found[0]
    assert "its size" in found[0]
    assert "calls allocated" in found[1]
    assert "overlap" in found[2]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "s.pickle", {"segments": [Evil()]}, protocol)
    with pytest.raises(TraceFormatError, match="would run code"):
        read_snapshot(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04]" + b"r" + struct.pack("<I", 2**31) + b".", "places it does not have"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.", "cut off"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**64 - 1) + b"x.", "cut off"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "no memory snapshot does"),
        (b"\x80\x04\x8b" + struct.pack("<I", 64) + b"\xff" * 64 + b".", "a number"),
        (b"\x80\x04(lp0\n.", "no memory snapshot does"),
        (b"\x80\x02e.", "damaged"),
        (b"\x80\x02].", "no segment and no event"),
        (b"\x80\x02}.", "no snapshot of the CUDA allocator"),
        (b"\x80\x02]h\x05.", "damaged"),
        (b"\x80\x04" + b"]" * 100_000, "cut off"),
        (b"\x80\x02}]Ns.", "damaged"),
        (b"\x80\x02cos\nsystem\n.", "would run code"),
        (b"\x80\x02Ppersistent\n.", "would run code"),
        (pickle.dumps(simple())[:-20], "cut off"),
    ],
)
def test_a_hostile_or_damaged_pickle_is_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(data)
    with pytest.raises(TraceFormatError, match=message) as caught:
        read_snapshot(path)
    assert "\n" not in str(caught.value)


def test_deep_nesting_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")
    with pytest.raises(TraceFormatError, match="no segment"):
        read_snapshot(path)


def test_lists_that_hold_each_other_over_and_over_do_no_harm(tmp_path: Path) -> None:
    laughs: Any = ["ha"]
    for _ in range(60):  # 2 to the 60th words when written out
        laughs = [laughs, laughs]
    document = [laughs, {"total_size": 1, "segment_type": laughs, "blocks": laughs}, {"total_size": laughs}]
    history = [
        [{"action": laughs}, {"action": "alloc", "size": 1, "addr": laughs, "frames": [laughs, {"name": laughs}]}]
    ]
    settings = {"a": laughs, "b": 1}
    made = {"segments": document, "device_traces": history, "allocator_settings": settings, "device_counters": laughs}
    found = read_snapshot(write(tmp_path / "s.pickle", made))
    assert (len(found.segments), len(found.events)) == (1, 1)
    assert found.settings == {"b": "1"}


def test_a_snapshot_alone_is_a_report_about_memory(tmp_path: Path) -> None:
    document = traceanalyzer.analyze(write(tmp_path / "s.pickle", simple()))
    rank = document.ranks[0]
    assert rank.devices == []
    assert rank.integrity.verdict == "complete"
    assert any("memory snapshot alone" in note for note in rank.integrity.notes)
    assert rank.memory is not None
    assert rank.memory.has_history
    assert rank.allocator.peak_reserved_bytes == 20 * MIB
    assert document.inputs[0].format == "memory_snapshot"


def test_more_snapshots_than_recordings_are_refused(tmp_path: Path) -> None:
    trace = Path(__file__).parents[2] / "sample_traces" / "labelled" / "good" / "rank0.pt.trace.json.gz"
    first, second = write(tmp_path / "a.pickle", simple()), write(tmp_path / "b.pickle", [segment(1, [block(3)])])
    with pytest.raises(UsageError, match="more memory snapshots"):
        open_inputs([str(trace), str(first), str(second)])
    opened = open_inputs([str(first), str(trace)])
    assert len(opened) == 1
    assert opened[0].recording.traces[0].snapshot is not None
    assert [source.format for source in opened[0].beside] == ["memory_snapshot"]


@pytest.mark.shared
def test_the_capped_run_s_snapshot_adds_up_and_lies_on_the_recording_s_clock() -> None:
    trace, pickled = shared("traces/h200/frag.pt.trace.json.gz"), shared("traces/h200/frag.memory_snapshot.pickle.gz")
    document = traceanalyzer.analyze([trace, pickled])
    memory = document.ranks[0].memory
    assert memory is not None
    assert memory.clock_matched
    assert memory.contradictions == []
    device = memory.devices[0]
    assert (device.segments, device.events) == (79, 40_000)
    # an independent witness: the profiler's own allocator events say 13,049,701,888 and 18,987,614,208 bytes
    assert document.ranks[0].allocator.peak_allocated_bytes is not None
    assert device.peak_active_bytes == pytest.approx(document.ranks[0].allocator.peak_allocated_bytes, rel=0.01)
    assert device.peak_reserved_bytes == document.ranks[0].allocator.peak_reserved_bytes
    # 13 % of the device was the cap
    assert device.device_bytes is not None
    assert 0.12 < device.peak_reserved_bytes / device.device_bytes < 0.13
    fired = [f.code for f in document.findings if f.status.value == "fail" and f.kind.value == "fault"]
    assert fired == ["TA202", "TA404"]


@pytest.mark.shared
def test_reading_it_alone_gives_a_trace_without_activity() -> None:
    recording = read(shared("traces/h200/frag.memory_snapshot.pickle.gz"))
    assert len(recording.traces[0].activities) == 0
