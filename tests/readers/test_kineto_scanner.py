"""The scanner and the tolerant parser give the same recording, byte for byte, whatever the input."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.shared_data import shared
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.trace import Integrity, Trace
from traceanalyzer.readers import kineto, kineto_parsers
from traceanalyzer.readers.files import Stream, read_head
from traceanalyzer.readers.kineto_columns import ChunkParser
from traceanalyzer.readers.kineto_msgspec import MsgspecParser
from traceanalyzer.readers.kineto_scanner import ScannerParser

ROOT = Path(__file__).parents[2]


def read_with(parser: type[Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace | str:
    """Read a recording with one of the parsers; the message where it is refused."""

    def choose(stream: Stream, integrity: Integrity) -> ChunkParser:
        del stream
        made: ChunkParser = parser(integrity)
        return made

    monkeypatch.setattr(kineto, "choose_parser", choose)
    try:
        return kineto.read(path).traces[0]
    except TraceFormatError as error:
        return str(error)


def contents(value: Any) -> Any:
    """Turn a trace into something that compares byte by byte."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return [contents(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {each.name: contents(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value


def assert_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = contents(read_with(ScannerParser, path, monkeypatch))
    tolerant = contents(read_with(MsgspecParser, path, monkeypatch))
    if isinstance(scanned, dict) and isinstance(tolerant, dict):
        for name in tolerant:
            assert scanned[name] == tolerant[name], name
    assert scanned == tolerant


def recordings(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.rglob("*.json*")) if path.is_file()]
    return [path for path in files if kineto.sniff(path, read_head(path))]


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["traces", "bad_inputs"])
def test_both_parsers_read_every_recording_at_hand_alike(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recordings(shared(folder))
    assert len(found) > 10
    for path in found:
        assert_same(path, monkeypatch)


def test_both_parsers_read_every_sample_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    found = recordings(ROOT / "sample_traces")
    assert found
    for path in found:
        assert_same(path, monkeypatch)


def test_small_recordings_are_not_worth_compiled_code(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(b'{"traceEvents": []}')
    with Stream(path) as stream:
        assert isinstance(kineto_parsers.choose_parser(stream, Integrity()), MsgspecParser)
