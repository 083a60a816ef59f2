"""Cutting a sound Kineto recording, and what the events before the cut give in a sound file of their own."""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import traceanalyzer
from tests.robustness.invariants import assert_plausible
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.results.analysis import RankReport

OPENING = b'"traceEvents":['


@dataclass(frozen=True)
class CutRecording:
    """A recording in text whose list of events comes last.

    Attributes:
        text: The whole.
        ends: Where each of its events ends, found by a parser of the standard library.
        timed: How many of the first events must be there before one of them lasts.
    """

    text: bytes
    ends: list[int]
    timed: int

    @classmethod
    def of(cls, text: bytes) -> CutRecording:
        """Find the events of a recording in ASCII."""
        decoder, decoded = json.JSONDecoder(), text.decode("ascii")
        position = text.index(OPENING) + len(OPENING)
        ends, timed = [], None
        while True:
            while decoded[position] in ", \n":
                position += 1
            if decoded[position] == "]":
                return cls(text, ends, len(ends) if timed is None else timed)
            event, position = decoder.raw_decode(decoded, position)
            ends.append(position)
            if event["ph"] == "X" and timed is None:
                timed = len(ends)

    def kept(self, length: int) -> int:
        """Count the events that lie whole in the first so many bytes."""
        return bisect.bisect_right(self.ends, length)

    def sound(self, kept: int) -> bytes:
        """Return a sound file of the first so many events."""
        return self.text[: self.ends[kept - 1]] + b"]}"


def unpacked_length(packed: bytes) -> int:
    """How much text the standard library gets out of the beginning of a gzip file."""
    return len(zlib.decompressobj(wbits=31).decompress(packed))


def steps_in_short(sample: Path, share: int) -> bytes:
    """Return a real recording with only the beginning (one ``share``-th) of each of its steps, digits untouched.

    Kept are the markers of the steps, what the host began then, the GPU work launched by it, and what describes the
    recording. The sample holds one event a line.
    """
    head, *lines = gzip.decompress(sample.read_bytes()).split(b"\n")
    events = [(line, json.loads(line.rstrip(b","))) for line in lines if line.startswith(b"{")]
    steps = [e for _, e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")]
    spans = [(step["ts"], step["ts"] + step["dur"] / share) for step in steps]

    def is_early(event: dict[str, Any]) -> bool:
        return any(first <= event["ts"] < end for first, end in spans)

    calls = {"cuda_runtime", "cuda_driver"}
    launched = {e["args"].get("correlation") for _, e in events if e.get("cat") in calls and is_early(e)}
    on_device = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}
    kept = [
        line.rstrip(b",")
        for line, e in events
        if e["ph"] == "M" or (e["args"].get("correlation") in launched if e.get("cat") in on_device else is_early(e))
    ]
    return head + b"\n" + b",\n".join(kept) + b"\n]}\n"


def numbers(rank: RankReport) -> dict[str, Any]:
    """Everything of a rank that does not speak of the cut itself: its steps' classes and what follows from them."""
    values = msgspec.to_builtins(rank)
    devices = [{k: v for k, v in device.items() if not k.startswith("windows_")} for device in values["devices"]]
    kept = ("launches", "copies", "allocator", "kernels", "origin_ns", "ranges")
    return {"devices": devices, "window_ns": values["per_step"]["window_ns"], **{name: values[name] for name in kept}}


@dataclass(frozen=True)
class Answer:
    """What a cut recording was answered.

    Attributes:
        kept: Events that lie whole before the cut.
        verdict: Verdict of the analysis; ``refused`` where there was none.
        busy_ns: Busy time of the first device, ns; None without one.
    """

    kept: int
    verdict: str
    busy_ns: int | None


def check_cut(recording: CutRecording, data: bytes, length: int, folder: Path) -> Answer:
    """Analyse the beginning of a recording, and check it against a sound file of the same events.

    Args:
        recording: The whole.
        data: What is left of the file.
        length: How much text that holds.
        folder: Where files may be written.

    Raises:
        AssertionError: The answer is none, or its numbers differ.
    """
    path, twin = folder / "trace.json", folder / "sound.json"
    path.write_bytes(data)
    kept = recording.kept(length)
    try:
        analysis = traceanalyzer.analyze(path)
    except TraceAnalyzerError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert bool(refusal) == (kept < recording.timed), refusal
    if refusal:
        assert "\n" not in refusal
        return Answer(kept, "refused", None)
    assert_plausible(analysis)
    twin.write_bytes(recording.sound(kept))
    (cut,) = analysis.ranks
    (sound,) = traceanalyzer.analyze(twin).ranks
    assert numbers(cut) == numbers(sound)
    assert cut.integrity.verdict in {"partial", "unusable"}
    assert f"truncated after {kept} events" in cut.integrity.notes
    assert sound.integrity.dropped == []
    return Answer(kept, cut.integrity.verdict, cut.devices[0].busy_ns if cut.devices else None)
