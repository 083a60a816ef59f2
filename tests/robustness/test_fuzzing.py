"""Recordings damaged by chance: some answer, soon, and never one that contradicts itself."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traceanalyzer
from tests.robustness import fuzz_ways
from tests.robustness.answers import analyse, analyse_events, write_text
from tests.robustness.fuzz_inputs import Made
from tests.robustness.fuzz_ways import WAYS, Way, both_parsers, made_in, way_of
from tests.robustness.invariants import assert_plausible
from tests.robustness.mutation import HOSTILE_VALUES
from tests.robustness.recordings import PROCESS, Event, event, kineto_events, nsys_export
from tests.tools import fuzz
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.readers import kineto
from traceanalyzer.readers.files import read_head
from traceanalyzer.renderers.html import render_html

T = 1_000_000
SECONDS = 25


def test_inputs_damaged_by_chance_are_answered() -> None:
    fuzz.warm_up()
    numbers = [number for number in range(1, 2000) if way_of(number).answer is not both_parsers]
    found = fuzz.run(numbers, SECONDS)
    assert not found.failed, f"make one again with: python -m tests.tools.fuzz --inputs 1 --seed {found.failed[0]}"
    answers = found.by_answer()
    assert min(answers["complete"], answers["partial"], answers["read"], answers["refused"]) > 0


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.name} {way.answer.__name__}")
def test_an_input_can_be_made_again_from_its_number(tmp_path: Path, way: Way) -> None:
    number = next(number for number in range(100) if way_of(number) is way)
    contents = []
    for _ in range(2):
        with made_in(tmp_path / "made", number) as made:
            contents.append([(file.name, file.is_file() and file.read_bytes()) for file in made.files])
    assert contents[0] == contents[1]


def test_every_hundred_numbers_hold_every_kind_in_its_share() -> None:
    counts = Counter(way_of(number).name + way_of(number).through for number in range(700, 800))
    assert counts == {way.name + way.through: way.share for way in WAYS}


def test_what_fails_is_kept_under_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(made: Made, number: int) -> str:
        raise AssertionError(f"wrong about {number}, of {len(made.files)} files")

    monkeypatch.setattr(fuzz_ways, "answer", fail)
    *_, (_, found) = fuzz.answer_all([7], tmp_path / "kept")
    assert (found.failed, found.done) == ([7], 1)
    assert "wrong about 7" in (tmp_path / "kept/7/traceback.txt").read_text()
    assert len(list((tmp_path / "kept/7").iterdir())) > 1


CORPUS = Path(__file__).parent / "corpus"
# file that was once answered wrongly → what it is answered
PAST: dict[str, str] = json.loads((CORPUS / "answers.json").read_text())


@pytest.mark.parametrize("name", PAST)
def test_what_was_once_answered_wrongly_is_answered(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copy(CORPUS / name, path)
    made = Made((path,), (path,), path.stat().st_size)
    assert fuzz_ways.command(made, 0) == PAST[name]
    if kineto.sniff(path, read_head(path)):
        assert fuzz_ways.both_parsers(made, 0) == "equal"


def test_every_kept_file_has_its_answer() -> None:
    assert {path.name for path in CORPUS.iterdir()} == PAST.keys() | {"answers.json"}


times = st.one_of(st.integers(T, T + 3000), st.floats(T, T + 3000), st.sampled_from(HOSTILE_VALUES))
lengths = st.one_of(st.integers(0, 800), st.floats(0, 800), st.sampled_from(HOSTILE_VALUES))
ids = st.one_of(st.integers(-1, 6), st.sampled_from(HOSTILE_VALUES))
names = st.sampled_from(
    [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaStreamSynchronize",
        "cudaGraphLaunch",
        "cudaMalloc",
        "aten::mm",
        "k",
        "Memcpy HtoD (Pageable -> Device)",
        "ProfilerStep#1",
        "ProfilerStep#2",
        "train.py(3): f",
        "ncclDevKernel_AllReduce",
    ]
)
categories = st.sampled_from(
    [
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_runtime",
        "cuda_driver",
        "cpu_op",
        "user_annotation",
        "python_function",
        "cuda_sync",
        "overhead",
    ]
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Draw an event whose every member is likely and sometimes absurd."""
    category = draw(categories)
    on_device = category in {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}
    return {
        "ph": "X",
        "cat": category,
        "name": draw(names),
        "pid": draw(ids) if draw(st.booleans()) else (0 if on_device else PROCESS),
        "tid": draw(ids),
        "ts": draw(times),
        "dur": draw(lengths),
        "args": {"correlation": draw(ids), "device": draw(ids), "stream": draw(ids), "bytes": draw(ids)},
    }


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(events(), max_size=25), st.booleans())
def test_any_structure_is_answered(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], steps: bool) -> None:
    sound = kineto_events(2) if steps else []
    path = write_text(tmp_path_factory.getbasetemp(), json.dumps({"traceEvents": [*sound, *drawn]}), "drawn.json")
    try:
        analysis = traceanalyzer.analyze(path)
    except TraceAnalyzerError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is as good an answer
        return
    assert_plausible(analysis)


# what fuzzing has found


def test_synchronisations_without_any_copy_are_analysed(tmp_path: Path) -> None:
    rank = analyse_events(tmp_path, [e for e in kineto_events() if "emcpy" not in e["name"]])
    assert rank.copies.h2d.count == 0
    assert rank.devices[0].busy_ns == 4 * 285_000


def test_a_cut_recording_of_allocator_events_alone_is_answered(tmp_path: Path) -> None:
    memory = [e for e in kineto_events() if e["name"] == "[memory]"]
    rank = analyse(write_text(tmp_path, json.dumps({"traceEvents": memory})[:-2]))
    assert rank.devices == []
    assert rank.integrity.verdict in {"partial", "unusable"}


def test_text_that_is_a_blob_and_no_utf8_is_read_with_replacements(tmp_path: Path) -> None:
    path = nsys_export().sqlite(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE StringIds SET value = x'ff00fe'")
    connection.commit()
    connection.close()
    assert analyse(path).devices[0].busy_ns == 4 * 290_000


def test_steps_without_a_device_show_no_busy_or_idle_time(tmp_path: Path) -> None:
    document = {"traceEvents": [event("user_annotation", f"ProfilerStep#{i}", T + 100 * i, 90) for i in range(3)]}
    analysis = traceanalyzer.analyze(write_text(tmp_path, json.dumps(document)))
    steps = analysis.steps()
    assert steps["window_ns"].tolist() == [100_000, 100_000, 90_000]
    assert "idle_ns" not in steps.columns
    assert "100 %" not in render_html(analysis)


@pytest.mark.parametrize("time", [None, 2**62, -(2**62)])
@pytest.mark.parametrize(
    "table",
    ["CUDA_GPU_MEMORY_USAGE_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"],
)
def test_a_row_without_a_time_in_the_capture_is_left_out(tmp_path: Path, table: str, time: int | None) -> None:
    export = nsys_export()
    row = dict(export.tables[table][0])
    row["start"] = time
    if "end" in row and time is not None:
        row["end"] = time + 10
    export.tables[table].append(row)
    rank = analyse(export.sqlite(tmp_path / "a.sqlite"))
    assert rank.devices[0].span_ns < 4_000_000
    assert sum(entry.count for entry in rank.integrity.dropped) == 1


def test_a_number_written_as_an_absurd_power_is_no_time(tmp_path: Path) -> None:
    events = kineto_events()
    events[3]["ts"] = "1e99999999999"
    assert analyse_events(tmp_path, events).integrity.dropped[0].count == 1


def test_a_truth_value_for_a_thread_is_a_number(tmp_path: Path) -> None:
    events = [{**e, "tid": True} if e["pid"] == PROCESS else e for e in kineto_events()]
    analysis = traceanalyzer.analyze(write_text(tmp_path, json.dumps({"traceEvents": events})))
    assert_plausible(analysis)


def test_a_damaged_schema_of_a_database_is_one_line(tmp_path: Path) -> None:
    path = nsys_export().sqlite(tmp_path / "a.sqlite")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE T\xe3\xff\xffE"))
    with pytest.raises(TraceAnalyzerError, match="not a readable SQLite database"):
        traceanalyzer.analyze(path)
