"""The scanner and the tolerant parser give the same recording, byte for byte, whatever the input."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parsers import MEMBERS, difference
from tests.robustness.fuzz_ways import both_parsers, way_of
from tests.robustness.recordings import event, kineto_document, kineto_events
from tests.shared_data import shared
from tests.tools import fuzz
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers import kineto, kineto_parsers
from traceanalyzer.readers.files import Stream, read_head
from traceanalyzer.readers.kineto_columns import Columns
from traceanalyzer.readers.kineto_msgspec import MsgspecParser
from traceanalyzer.readers.kineto_scanner import ScannerParser
from traceanalyzer.readers.kineto_text import TraceText

ROOT = Path(__file__).parents[2]
FUZZING_SECONDS = 20


def recordings(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.rglob("*.json*")) if path.is_file()]
    return [path for path in files if kineto.sniff(path, read_head(path))]


def scanned(path: Path) -> tuple[list[Columns], Integrity]:
    integrity = Integrity()
    with Stream(path) as stream:
        text = TraceText(stream, ScannerParser(integrity), integrity)
        return [chunk for chunk in text.chunks() if isinstance(chunk, Columns)], integrity


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["traces", "bad_inputs"])
def test_both_parsers_read_every_recording_at_hand_alike(folder: str) -> None:
    found = recordings(shared(folder))
    assert len(found) > 10
    for path in found:
        assert not difference(path), path


def test_both_parsers_read_every_sample_alike() -> None:
    found = recordings(ROOT / "sample_traces")
    assert found
    for path in found:
        assert not difference(path), path


@pytest.mark.parametrize("number", range(len(MEMBERS)))
def test_both_parsers_take_an_unusual_member_alike(tmp_path: Path, number: int) -> None:
    path = tmp_path / "trace.json"
    texts = [json.dumps(each) for each in kineto_events()]
    for place in range(0, 16):  # an event of every kind
        texts[place] = texts[place][:-1] + ", " + MEMBERS[number] + "}"
    text = '{"traceEvents": [' + ", ".join(texts) + "]}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert not difference(path)


def test_both_parsers_read_inputs_damaged_by_chance_alike() -> None:
    numbers = [number for number in range(1, 10_000) if way_of(number).answer is both_parsers]
    found = fuzz.run(numbers, FUZZING_SECONDS)
    assert not found.failed, f"make one again with: python -m tests.tools.fuzz --inputs 1 --seed {found.failed[0]}"
    assert found.by_answer()["equal"] > 50


@settings(max_examples=60, deadline=None)
@given(
    whole=st.integers(0, 10**16),
    decimals=st.text("0123456789", max_size=12),
    dur=st.decimals(0, 10**6, allow_nan=False, places=4),
)
def test_times_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, whole: int, decimals: str, dur: object
) -> None:
    path = tmp_path_factory.mktemp("t") / "trace.json"
    start = f"{whole}.{decimals}" if decimals else str(whole)
    text = '{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {}, "dur": {}}}'
    path.write_text('{"traceEvents": [' + text.format(start, f"{dur:f}") + "]}")
    digits = (decimals + "0000")[:4]
    expected = whole * 1000 + int(digits[:3]) + (int(digits[3]) >= 5)
    columns = [chunk.slices.start_ns for chunk in scanned(path)[0] if len(chunk.slices)]
    if expected + 10**9 < 2**63 and whole <= (2**63 - 1) // 1000 - 10**6:
        assert columns[0].tolist() == [expected]
    assert not difference(path)


def test_usual_events_never_reach_the_tolerant_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    events = [each for each in kineto_events() if each["cat"] not in ("cuda_sync", "overhead")]
    path.write_text(
        '{"traceEvents": [' + ",\n".join(json.dumps(each, indent=2) for each in [*events, events[0]]) + "]}"
    )

    def refuse(*_: object) -> None:
        raise AssertionError("an event was thought odd")

    monkeypatch.setattr(MsgspecParser, "parse_some", refuse)
    columns, _ = scanned(path)
    assert sum(chunk.count for chunk in columns) == len(events) + 1


def test_more_strings_threads_and_odd_events_than_the_tables_hold_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [event("cpu_op", f"name {i}", i, 1, tid=i % 3000, **{"Input Dims": [[i]]}) for i in range(20_000)]
    path.write_text(json.dumps(kineto_document(events)))
    assert not difference(path)
    columns, _ = scanned(path)
    names = np.concatenate([chunk.slices.name for chunk in columns])
    assert len(np.unique(names)) == 20_000


def test_a_compressed_recording_is_unpacked_ahead_and_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    text = json.dumps(kineto_document(kineto_events(400))).encode()
    path.write_bytes(gzip.compress(text))
    assert not difference(path, 4096)
    path.write_bytes(gzip.compress(text)[:-5000])
    assert not difference(path, 4096)


def test_a_reader_that_gives_up_leaves_no_thread_behind(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(kineto_document(kineto_events(2000))))
    integrity = Integrity()
    before = threading.active_count()
    with Stream(path) as stream:
        chunks = TraceText(stream, ScannerParser(integrity), integrity).chunks()
        next(chunks)
        chunks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_small_recordings_are_not_worth_compiled_code(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(b'{"traceEvents": []}')
    with Stream(path) as stream:
        assert isinstance(kineto_parsers.choose_parser(stream, Integrity()), MsgspecParser)


def test_large_recordings_are_scanned_unless_the_compiler_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(kineto_parsers.SCANNED_FROM_BYTES)
    with Stream(path) as stream:
        assert isinstance(kineto_parsers.choose_parser(stream, Integrity()), ScannerParser)
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        assert isinstance(kineto_parsers.choose_parser(stream, Integrity()), MsgspecParser)
