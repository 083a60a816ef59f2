"""Twenty ways to break one tiny trace: each is read as far as it goes and says what was wrong, or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.shared_data import shared, shared_files
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import open_recording

pytestmark = pytest.mark.shared


def read(name: str) -> Trace:
    return open_recording(shared(f"bad_inputs/{name}")).traces[0]


def sizes(trace: Trace) -> tuple[int, int, int]:
    return len(trace.activities), len(trace.calls), len(trace.slices)


def reasons(trace: Trace) -> dict[str, int]:
    return {reason: entry.count for reason, entry in trace.integrity.dropped.items()}


def test_the_sound_trace_is_read_whole_and_without_remarks() -> None:
    trace = read("00_ok.json")
    assert sizes(trace) == (60, 60, 68)
    assert not trace.integrity.notes
    assert not trace.integrity.dropped
    assert not trace.integrity.is_truncated
    assert (trace.rank, trace.world_size) == (0, 1)
    assert trace.devices[0].name == "NVIDIA A100"
    assert trace.devices[0].multiprocessors == 108
    assert trace.devices[0].compute_capability == (8, 0)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("02_quote_in_name.json", "1 event held unescaped quotes and was repaired"),
        ("02b_backslash.json", "1 event held unescaped backslashes and was repaired"),
        ("03_nonutf8.json", "1 event held bytes that are not UTF-8 and was repaired"),
        ("10_ts_string.json", "some times are written as text; they were read as numbers"),
    ],
)
def test_a_repairable_trace_loses_nothing_and_says_what_was_repaired(name: str, note: str) -> None:
    trace, sound = read(name), read("00_ok.json")
    assert sizes(trace) == sizes(sound)
    assert trace.integrity.notes == [note]
    assert not trace.integrity.dropped
    assert np.array_equal(trace.activities.start_ns, sound.activities.start_ns)
    assert np.array_equal(trace.activities.end_ns, sound.activities.end_ns)


@pytest.mark.parametrize(
    ("name", "repaired"),
    [
        ("02_quote_in_name.json", '{"device": "cpu"}(12): run'),
        ("02b_backslash.json", r"torch\cuda\x.py(3): f"),
        ("03_nonutf8.json", "lib\ufffd\ufffd.so"),
    ],
)
def test_a_repaired_name_reads_as_it_was_meant(name: str, repaired: str) -> None:
    assert repaired in read(name).names


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("05_nan_dur.json", "event whose time is not finite or beyond 64 bits"),
        ("06_negdur.json", "event with a negative duration"),
        ("08_overflow_dur.json", "event whose time is not finite or beyond 64 bits"),
    ],
)
def test_an_impossible_duration_is_dropped_and_counted(name: str, reason: str) -> None:
    trace = read(name)
    assert sizes(trace) == (59, 60, 68)
    assert reasons(trace) == {reason: 1}
    assert "sgemm_kernel" in trace.integrity.dropped[reason].example


@pytest.mark.parametrize("name", ["04_hugeint.json", "17_bare_array.json", "22_gz_named_json.json", "24_bom.json"])
def test_a_harmless_oddity_changes_nothing(name: str) -> None:
    trace, sound = read(name), read("00_ok.json")
    assert sizes(trace) == sizes(sound)
    assert not trace.integrity.dropped
    assert not trace.integrity.notes
    assert np.array_equal(trace.activities.end_ns, sound.activities.end_ns)


def test_an_arrow_without_a_phase_is_counted_and_changes_nothing_else() -> None:
    trace = read("13_no_ph.json")
    assert sizes(trace) == (60, 60, 68)
    assert reasons(trace) == {"event without a phase or duration (ac2g)": 1}


def test_a_truncated_trace_keeps_every_whole_event_and_says_where_it_ends() -> None:
    trace = read("01_truncated.json")
    text = shared("bad_inputs/01_truncated.json").read_text()
    assert len(trace.activities) == text.count('"cat": "kernel"') == 42
    assert trace.integrity.is_truncated
    assert "truncated after 215 events" in trace.integrity.notes
    # the last whole event is an arrow at 1002285 us, the recording starts at 1000000 us
    assert trace.integrity.truncated_at_ns == 2_285_000
    (cut,) = trace.integrity.cut_ns
    assert cut[0] <= 2_300_000 < cut[1]


def test_kernels_without_correlation_are_kept_and_linked_to_nothing() -> None:
    trace = read("12_no_correlation.json")
    assert sizes(trace) == (60, 60, 68)
    assert int((trace.activities.correlation == -1).sum()) == 2
    assert int((trace.activity_call == -1).sum()) == 2


def test_a_trace_without_steps_is_a_trace() -> None:
    trace = read("15_no_steps.json")
    assert sizes(trace) == (60, 60, 64)


def test_a_correlation_id_shared_by_many_launches_keeps_the_kernels() -> None:
    assert len(read("20_cudagraph_shared_corr.json").activities) == 60


@pytest.mark.parametrize(
    ("name", "problem"),
    [("16_only_meta.json", "no usable events"), ("18_empty.json", "no events")],
)
def test_a_trace_without_events_is_refused_in_one_line(name: str, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem) as error:
        read(name)
    assert "\n" not in str(error.value)


def test_no_input_of_the_folder_ends_in_anything_but_an_answer_or_one_clear_line() -> None:
    for path in shared_files("bad_inputs/*"):
        try:
            assert_answers(path)
        except TraceFormatError as error:
            assert path.name in str(error)  # noqa: PT017 - either outcome is right, silence is not


def assert_answers(path: Path) -> None:
    trace = open_recording(path).traces[0]
    assert len(trace.activities) + len(trace.slices) > 0
