"""A sound recording cut anywhere: the events before the cut, and the numbers those events give in a sound file."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import traceanalyzer
from tests.robustness.answers import analyse, write_text
from tests.robustness.invariants import assert_plausible
from tests.robustness.recordings import kineto_document
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.results.analysis import RankReport

TEXT = json.dumps(kineto_document()).encode()
EVENTS = TEXT.index(b'"traceEvents": [') + len(b'"traceEvents": [')


def whole_events(text: bytes) -> list[dict[str, Any]]:
    """Find the events that lie whole in a text, by a parser of the standard library."""
    decoder = json.JSONDecoder()
    decoded, position = text.decode(), EVENTS
    found = []
    while True:
        while decoded[position : position + 1] in (",", " "):
            position += 1
        try:
            value, position = decoder.raw_decode(decoded, position)
        except json.JSONDecodeError:
            return found
        found.append(value)


def numbers(rank: RankReport) -> dict[str, Any]:
    """Everything of a rank that does not speak of the cut itself: its steps' classes and what follows from them."""
    values = msgspec.to_builtins(rank)
    devices = [{k: v for k, v in device.items() if not k.startswith("windows_")} for device in values["devices"]]
    kept = ("launches", "copies", "allocator", "kernels", "origin_ns", "ranges")
    return {"devices": devices, "window_ns": values["per_step"]["window_ns"], **{name: values[name] for name in kept}}


@pytest.mark.parametrize("percent", range(100))
@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_recording_gives_the_numbers_of_its_whole_events(tmp_path: Path, percent: int, compressed: bool) -> None:
    if compressed:
        packed = gzip.compress(TEXT, mtime=0)
        data = packed[: len(packed) * percent // 100]
        # what is left of the text, by the standard library; its last bytes may wait for more in the decompressor
        text = zlib.decompressobj(wbits=31).decompress(data)
    else:
        data = text = TEXT[: len(TEXT) * percent // 100]
    path = write_text(tmp_path, data)
    kept = whole_events(text) if len(text) > EVENTS else []
    if not any(event["ph"] == "X" for event in kept):
        with pytest.raises(TraceAnalyzerError, match=r"trace\.json"):
            traceanalyzer.analyze(path)
        return
    cut = analyse(path)
    sound = analyse(write_text(tmp_path, json.dumps(kineto_document(kept)), "sound.json"))
    assert numbers(cut) == numbers(sound)
    assert cut.integrity.verdict in {"partial", "unusable"}
    assert f"truncated after {len(kept)} events" in cut.integrity.notes
    assert sound.integrity.dropped == []


@pytest.mark.parametrize("percent", range(5, 100, 10))
def test_a_cut_real_recording_is_answered(tmp_path: Path, percent: int) -> None:
    sample = next(iter(Path(__file__).parents[2].glob("sample_traces/labelled/good/*.gz"))).read_bytes()
    analysis = traceanalyzer.analyze(write_text(tmp_path, sample[: len(sample) * percent // 100], "cut.json.gz"))
    assert_plausible(analysis)
    assert analysis.ranks[0].integrity.verdict != "complete"
