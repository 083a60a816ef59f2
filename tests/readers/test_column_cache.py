"""A recording kept as columns is the recording; whatever is wrong with the cache is said and costs nothing else."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceanalyzer
from tests.robustness.recordings import kineto_events, nsys_export, write_kineto
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers import column_cache, open_recording
from traceanalyzer.readers.column_cache import ColumnCache


def contents(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, list | tuple):
        return [contents(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {each.name: contents(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value


@pytest.fixture
def cache(tmp_path: Path) -> ColumnCache:
    return ColumnCache(tmp_path / "cache" / "columns")


def entries(cache: ColumnCache) -> list[Path]:
    return sorted(cache.folder.glob("*")) if cache.folder.is_dir() else []


def never_read(*_: object) -> None:
    raise AssertionError("the recording was parsed again")


@pytest.mark.parametrize("kind", ["kineto", "nsys", "damaged"])
def test_a_kept_recording_is_the_one_that_was_read(
    tmp_path: Path, cache: ColumnCache, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "nsys":
        path = tmp_path / "a.sqlite"
        nsys_export().sqlite(path)
    else:
        path = write_kineto(tmp_path / "a.json")
    if kind == "damaged":
        text = path.read_bytes()
        path.write_bytes(text.replace(b'"dur": 60', b'"dur": -60', 1)[: len(text) - 500])
    fresh = contents(open_recording(path))
    assert contents(cache.open_recording(path)) == fresh
    monkeypatch.setattr(column_cache, "open_recording", never_read)
    assert contents(cache.open_recording(path)) == fresh


def test_two_analyses_of_a_kept_recording_are_equal(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "a.json")
    plain = traceanalyzer.analyze(path)
    first = traceanalyzer.analyze(path, cache=tmp_path / "cache")
    second = traceanalyzer.analyze(path, cache=tmp_path / "cache")
    assert first == second == plain


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(column_cache.FOLDER_VARIABLE, str(tmp_path / "here"))
    traceanalyzer.analyze(write_kineto(tmp_path / "a.json"), cache=True)
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_a_changed_recording_is_read_again(tmp_path: Path, cache: ColumnCache) -> None:
    path = write_kineto(tmp_path / "a.json")
    before = cache.open_recording(path).traces[0]
    write_kineto(path, kineto_events(9))
    after = cache.open_recording(path).traces[0]
    assert len(after.calls) > len(before.calls)
    os.utime(path, ns=(1, 1))  # same bytes, another time: it may have been edited between the sampled blocks
    cache.open_recording(path)
    assert len(entries(cache)) == 3


@pytest.mark.parametrize("damage", ["cut", "header", "column", "empty", "foreign"])
def test_a_damaged_entry_is_ignored_written_anew_and_noted(tmp_path: Path, cache: ColumnCache, damage: str) -> None:
    path = write_kineto(tmp_path / "a.json")
    fresh = contents(open_recording(path).traces[0].activities)
    cache.open_recording(path)
    (entry,) = entries(cache)
    data = bytearray(entry.read_bytes())
    if damage == "cut":
        del data[-1:]
    elif damage == "header":
        data[60] ^= 1
    elif damage == "column":
        data[-200] ^= 1
    elif damage == "empty":
        data.clear()
    else:
        data = bytearray(b"something else entirely, which nobody here wrote")
    entry.write_bytes(data)
    trace = cache.open_recording(path).traces[0]
    assert contents(trace.activities) == fresh
    assert trace.integrity.notes == ["a damaged entry of the cache was ignored and written anew"]
    assert not cache.open_recording(path).traces[0].integrity.notes


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    trace = ColumnCache(tmp_path / "file" / "cache").open_recording(write_kineto(tmp_path / "a.json")).traces[0]
    assert trace.integrity.notes == ["the recording could not be kept in the cache (Not a directory)"]
    assert len(trace.activities)


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path, cache: ColumnCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    trace = cache.open_recording(write_kineto(tmp_path / "a.json")).traces[0]
    assert trace.integrity.notes == ["the recording could not be kept in the cache (No space left on device)"]
    assert not entries(cache)


def test_entries_not_used_for_longest_make_room(tmp_path: Path, cache: ColumnCache) -> None:
    paths = [write_kineto(tmp_path / f"{i}.json", kineto_events(4 + i)) for i in range(3)]
    cache.open_recording(paths[0])
    size = entries(cache)[0].stat().st_size
    small = ColumnCache(cache.folder, most_bytes=int(2.8 * size))
    time.sleep(0.02)
    small.open_recording(paths[1])
    time.sleep(0.02)
    small.open_recording(paths[0])  # used again
    time.sleep(0.02)
    small.open_recording(paths[2])
    assert sum(entry.stat().st_size for entry in entries(small)) <= small.most_bytes
    assert small._entry(paths[0]) in entries(small)
    assert small._entry(paths[1]) not in entries(small)


def test_writing_to_a_kept_column_changes_nothing_on_disk(tmp_path: Path, cache: ColumnCache) -> None:
    path = write_kineto(tmp_path / "a.json")
    cache.open_recording(path)
    kept = cache.open_recording(path).traces[0]
    kept.activities.start_ns[:] = 5
    assert cache.open_recording(path).traces[0].activities.start_ns[0] != 5


def test_a_missing_recording_is_refused_as_ever(tmp_path: Path, cache: ColumnCache) -> None:
    with pytest.raises(TraceFormatError, match="no such file"):
        cache.open_recording(tmp_path / "none.json")
