"""Opening: what is recognised by content, and what is refused in one line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.readers.test_kineto_spellings import OPERATOR, span
from traceanalyzer import readers
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers import files, kineto, kineto_chunks, open_recording
from traceanalyzer.readers.files import Stream, fingerprint, read_head

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [OPERATOR]}).encode()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.sqlite", "noname"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_content_decides_whatever_the_name_says(tmp_path: Path, name: str, compress: object) -> None:
    assert callable(compress)
    path = write(tmp_path / name, compress(TRACE))
    recording = open_recording(str(path))
    assert recording.source.format == "kineto"
    assert recording.source.size_bytes == path.stat().st_size
    assert recording.source.path == str(path)
    assert len(recording.traces[0].slices) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b""), "the compressed data is empty"),
        (b"hello", "not a recording"),
        (b"\x00" * 5000, "not a recording"),
        (b"{}", "not a recording"),
        (b"[]", "not a recording"),
        (b'{"schema": "traceanalyzer.analysis/1", "schemaVersion": 1}', "not a recording"),
        (b'[{"some": "list"}]', "not a recording"),
        (gzip.compress(b"hello"), "not a recording"),
        (b"\x28\xb5\x2f\xfd1234", "zstd-compressed"),
        (b"PK\x03\x04....", "zip archive"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b'{"schemaVersion": 1}', "holds no list of trace events"),
        (b'{"schemaVersion": 1, "traceEvents": [', "no events"),
        (gzip.compress(TRACE)[:12], "the compressed data is empty"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    path = write(tmp_path / "input.json", content)
    with pytest.raises(TraceFormatError, match=problem) as error:
        open_recording(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"nowhere\.json: no such file or folder"):
        open_recording(tmp_path / "nowhere.json")


def test_a_path_that_cannot_exist_is_refused() -> None:
    with pytest.raises(TraceFormatError, match="is not a path"):
        open_recording("trace\0.json")


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "trace.json", TRACE)
    with pytest.raises(TraceFormatError, match="the folder is no recording"):
        open_recording(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceFormatError, match="pipe, socket or device"):
        open_recording(tmp_path / "pipe")


def test_a_device_is_refused() -> None:
    with pytest.raises(TraceFormatError, match="pipe, socket or device"):
        open_recording("/dev/zero")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "trace.json", TRACE)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TraceFormatError, match=r"cannot be opened \(Permission denied\)"):
        open_recording(path)


def test_two_readers_claiming_one_file_is_an_error_naming_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = SimpleNamespace(NAME="greedy", sniff=lambda *_: True, read=None)
    monkeypatch.setattr(readers, "READERS", (kineto, greedy))
    with pytest.raises(TraceFormatError, match="kineto and greedy"):
        open_recording(write(tmp_path / "trace.json", TRACE))


def test_every_reader_of_the_registry_has_a_name_of_its_own() -> None:
    names = [reader.NAME for reader in readers.READERS]
    assert len(set(names)) == len(names)


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_EXPANSION_CHECKED_FROM_BYTES", 1 << 20)
    bomb = b'{"traceEvents": [' + b" " * (8 << 20)
    with pytest.raises(TraceFormatError, match="expands more than 300-fold"):
        open_recording(write(tmp_path / "bomb.json.gz", gzip.compress(bomb, 9)))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("block", [1, 7, 4096, 1 << 20])
def test_blocks_join_to_the_whole_text(tmp_path: Path, compress: object, block: int) -> None:
    assert callable(compress)
    text = bytes(range(256)) * 20 + TRACE * (1 if block < 10 else 5000)
    path = write(tmp_path / "data", compress(text[:3000]) + (compress(text[3000:])))
    parts = []
    with Stream(path) as stream:
        while part := stream.read(block):
            parts.append(part)
            assert len(part) <= block
    assert b"".join(parts) == text
    assert not stream.damage
    assert stream.done_bytes == path.stat().st_size
    assert {len(part) for part in parts[:-1]} <= {block}


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_a_stream_cut_off_says_so(tmp_path: Path, compress: object) -> None:
    assert callable(compress)
    path = write(tmp_path / "data", compress(os.urandom(5000))[:-200])
    with Stream(path) as stream:
        while stream.read():
            pass
    assert "cut off" in stream.damage


def test_damage_inside_gzip_keeps_everything_before_it(tmp_path: Path) -> None:
    text = b"".join(b'{"ph": "X", "name": "%d"},\n' % i for i in range(40_000))
    data = bytearray(gzip.compress(text))
    middle = len(data) // 2
    data[middle : middle + 64] = b"\xff" * 64
    with Stream(write(tmp_path / "data.gz", bytes(data))) as stream:
        got = b""
        while block := stream.read(100_000):
            got += block
    assert "damaged" in stream.damage
    sound = len(text) * 48 // 100
    assert got[:sound] == text[:sound]


def test_what_is_salvaged_of_gzip_comes_in_blocks_of_the_size_asked_for(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"ph": "X", "name": "%d"},\n' % (i * i) for i in range(200)))
    damaged = 0
    for place in range(10, len(packed) - 8):
        path = write(tmp_path / "data.gz", packed[:place] + bytes([packed[place] ^ 0x55]) + packed[place + 1 :])
        with Stream(path) as stream:
            whole = stream.read()
            damaged += "damaged" in stream.damage
        with Stream(path) as stream:
            blocks = list(iter(lambda: stream.read(300), b""))
        assert {len(block) for block in blocks[:-1]} <= {300}
        assert b"".join(blocks) == whole
        buffer, into = bytearray(300), []
        with Stream(path) as stream:
            while made := stream.readinto(memoryview(buffer)):
                into.append(bytes(buffer[:made]))
        assert into == blocks
    assert damaged > 100


@pytest.mark.parametrize("size", [300, 5000])
def test_gzip_cut_off_anywhere_gives_what_the_standard_library_gets_out_of_it(tmp_path: Path, size: int) -> None:
    packed = gzip.compress(b"".join(b'{"ph": "X", "name": "%d"},\n' % (i * i) for i in range(200)))
    for place in range(12, len(packed), 7):
        with Stream(write(tmp_path / "data.gz", packed[:place])) as stream:
            got = b"".join(iter(lambda: stream.read(size), b""))
        assert got == zlib.decompressobj(wbits=31).decompress(packed[:place])
        assert "cut off" in stream.damage


def test_a_head_is_short_and_decompressed(tmp_path: Path) -> None:
    path = write(tmp_path / "data", gzip.compress(TRACE * 10_000))
    assert read_head(path) == (TRACE * 10_000)[:65_536]


def test_a_fingerprint_changes_with_content_and_not_with_the_name(tmp_path: Path) -> None:
    one = write(tmp_path / "a", TRACE * 1000)
    same = write(tmp_path / "b", TRACE * 1000)
    other = write(tmp_path / "c", TRACE * 999 + TRACE[::-1])
    longer = write(tmp_path / "d", TRACE * 1001)
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(path) for path in (one, other, longer)}) == 3
    assert fingerprint(one).startswith(f"{len(TRACE) * 1000}-")


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "data", gzip.compress(TRACE))
    seen: list[tuple[int, int]] = []
    open_recording(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_memory_stays_near_the_size_of_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_chunks, "BLOCK_BYTES", 256 << 10)
    operator = json.dumps(
        span("cpu_op", "aten::add", 12345.678, 1.5, **{"External id": 1, "Ev Idx": 7, "a" * 40: "b" * 40})
    )
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + ",\n".join([operator] * 30_000) + "]}")
    tracemalloc.start()
    trace = open_recording(path).traces[0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    columns = sum(values.nbytes for values in trace.slices.columns().values())
    block = 6 << 20  # one block of text and its decoded events
    assert peak < 3 * columns + block
