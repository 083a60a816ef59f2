"""A sound recording cut anywhere: the events before the cut, and the numbers those events give in a sound file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import traceanalyzer
from tests.robustness.cuts import CutRecording, check_cut, steps_in_short, unpacked_length
from tests.robustness.invariants import assert_plausible
from tests.robustness.recordings import kineto_document
from tests.shared_data import ROOT

SAMPLE = ROOT / "sample_traces/labelled/unfused-optimizer/rank0.pt.trace.json.gz"


@pytest.fixture(scope="module")
def made() -> CutRecording:
    return CutRecording.of(json.dumps(kineto_document(), separators=(",", ":")).encode())


@pytest.fixture(scope="module")
def real() -> CutRecording:
    """A real training, the first thirtieth of each of its steps."""
    return CutRecording.of(steps_in_short(SAMPLE, 30))


@pytest.mark.parametrize("percent", range(100))
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("which", ["made", "real"])
def test_a_cut_recording_gives_the_numbers_of_its_whole_events(
    tmp_path: Path, request: pytest.FixtureRequest, which: str, percent: int, compressed: bool
) -> None:
    recording: CutRecording = request.getfixturevalue(which)
    whole = gzip.compress(recording.text, mtime=0) if compressed else recording.text
    data = whole[: len(whole) * percent // 100]
    check_cut(recording, data, unpacked_length(data) if compressed else len(data), tmp_path)


def test_the_real_recording_is_sound_and_large_enough_to_cut(tmp_path: Path, real: CutRecording) -> None:
    (tmp_path / "trace.json").write_bytes(real.text)
    (rank,) = traceanalyzer.analyze(tmp_path / "trace.json").ranks
    assert len(real.ends) > 1000
    assert rank.integrity.verdict == "complete"
    assert rank.steps.count == len(set(rank.steps.name)) > 1


@pytest.mark.parametrize("percent", range(5, 100, 10))
def test_a_cut_real_recording_is_answered(tmp_path: Path, percent: int) -> None:
    sample = SAMPLE.read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(sample[: len(sample) * percent // 100])
    analysis = traceanalyzer.analyze(path)
    assert_plausible(analysis)
    assert analysis.ranks[0].integrity.verdict != "complete"
