"""Redacted copies of what is not one recording in one file: memory snapshots, sample files and run folders."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.memory_snapshot import load_document
from traceanalyzer.readers.run_folder import RUN_FILE, read_run_folder
from traceanalyzer.results.redaction import Redactor

_PICKLE_PROTOCOL = 4  # what torch writes
_LARGEST_TEXT = 64 << 20


def copy_snapshot(source: Path, target: Path, redactor: Redactor) -> None:
    """Write a memory snapshot again, its texts redacted; sizes, addresses and times stay.

    Args:
        source: A snapshot of ``torch.cuda.memory``.
        target: The copy; compressed where its name ends in ``.gz``.
        redactor: Knows names found elsewhere, and learns those of the snapshot.

    Raises:
        TraceFormatError: The source is not a snapshot that is safe to load.
    """
    document = load_document(source)
    redactor.learn(_Texts(document).found)
    _write(target, pickle.dumps(_Redacted(redactor).copy(document), _PICKLE_PROTOCOL))


def copy_run(source: Path, target: Path, copy_recording: Callable[[Path, Path, Redactor], list[str]]) -> list[str]:
    """Write a run folder again: its document and every recording redacted. Files it does not name stay behind.

    Args:
        source: The run folder.
        target: The folder to make.
        copy_recording: Writes the redacted copy of one recording and returns what it left behind.

    Returns:
        What was left behind.

    Raises:
        TraceFormatError: The source is not a run folder, or one of its recordings cannot be redacted.
    """
    run = read_run_folder(source)
    target.mkdir()
    left: set[str] = set()
    kept: set[Path] = set()
    redactor = Redactor()
    documents = {file: json.loads(file.read_bytes()) for file in (source / RUN_FILE, *source.glob("run.rank*.json"))}
    for document in documents.values():
        redactor.learn(_Texts(document).found)
    # a name the recorder gave is part of the document and stays; it was made from the rank alone
    for file in (recording.path for recording in run.recordings):
        kept.add(file)
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        left |= set(copy_recording(file, place, redactor))
    if run.memory_snapshot is not None:
        kept.add(run.memory_snapshot)
        copy_snapshot(run.memory_snapshot, target / run.memory_snapshot.relative_to(source), redactor)
    if run.gpu_samples is not None:
        kept.add(run.gpu_samples)
        _copy_text(run.gpu_samples, target / run.gpu_samples.relative_to(source), redactor)
    for file, document in documents.items():
        kept.add(file)
        made = _Redacted(redactor, _file_names(document)).copy(document)
        (target / file.name).write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return sorted(left | {str(f.relative_to(source)) for f in source.rglob("*") if f.is_file() and f not in kept})


def _copy_text(source: Path, target: Path, redactor: Redactor) -> None:
    with Stream(source) as stream:
        data = stream.read(_LARGEST_TEXT)
        if stream.read(1):
            raise TraceFormatError(str(source), "the sample file is larger than 64 MiB", "record fewer samples")
    text = data.decode("utf-8", "surrogateescape")
    redactor.learn([text])
    # line by line, because patterns of paths may run over a line's end
    made = "".join(redactor.text(line) for line in text.splitlines(keepends=True))
    _write(target, made.encode("utf-8", "surrogateescape"))


def _write(target: Path, data: bytes) -> None:
    target.write_bytes(gzip.compress(data, 6, mtime=0) if target.suffix == ".gz" else data)


def _file_names(document: Any) -> frozenset[str]:
    """Names of files of the folder: they stay, or the document would no longer find its recordings."""
    names = [entry.get("file") for entry in document.get("recordings", []) if isinstance(entry, dict)]
    files = document.get("files")
    names += list(files.values()) if isinstance(files, dict) else []
    return frozenset(name for name in names if isinstance(name, str))


class _Texts:
    """Collects the texts of a document; lists that occur many times are visited once."""

    def __init__(self, document: Any) -> None:
        self.found: list[str] = []
        self._seen: set[int] = set()
        self._collect(document)

    def _collect(self, value: Any) -> None:
        if isinstance(value, str):
            self.found.append(value)
        elif isinstance(value, dict | list | tuple) and id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, dict):
                for name, member in value.items():
                    self._collect(name)
                    if isinstance(name, str) and isinstance(member, str):
                        self.found.append(json.dumps({name: member}))  # "hostname": "x" tells that x is a name
            for member in value.values() if isinstance(value, dict) else value:
                self._collect(member)


class _Redacted:
    """Copies a document with its texts redacted; what was shared stays shared, so that a history does not grow."""

    def __init__(self, redactor: Redactor, kept: frozenset[str] = frozenset()) -> None:
        self._redactor = redactor
        self._kept = kept
        self._made: dict[int, Any] = {}

    def copy(self, value: Any) -> Any:
        """Return a value without names of people, machines and folders."""
        if isinstance(value, str):
            return value if value in self._kept else self._redactor.text(value)
        if not isinstance(value, dict | list | tuple):
            return value
        if id(value) not in self._made:
            if isinstance(value, dict):
                made: Any = {self.copy(name): self.copy(member) for name, member in value.items()}
            else:
                made = type(value)(self.copy(member) for member in value)
            self._made[id(value)] = made
        return self._made[id(value)]
