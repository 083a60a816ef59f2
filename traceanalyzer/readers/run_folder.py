"""What ``record`` leaves: a folder with ``run.json`` and the recordings it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from traceanalyzer.errors import TraceFormatError

NAME = "run_folder"
SCHEMA = "traceanalyzer.run/1"
RUN_FILE = "run.json"


@dataclass(frozen=True, slots=True)
class RunRecording:
    """One recording of a run.

    Attributes:
        path: The file.
        format: Reader name, as the recorder wrote it.
        profiler: ``torch`` or ``nsys``.
        pass_index: Which pass over the training loop it was made in, from 0.
        rank: Process rank.
        recorder: What the recorder knows besides, for the measures: ``unprofiled`` and ``profiled`` (``step_ns`` list,
            ``phase_ns`` lists by phase), ``configuration``, ``loader``, ``garbage_collection``, ``schedule``,
            ``episodes``, ``faults``, ``versions``, ``trials``, ``notes`` and ``recorded_with`` (``stacks``, ``shapes``,
            ``memory``).
    """

    path: Path
    format: str
    profiler: str
    pass_index: int
    rank: int
    recorder: dict[str, object]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder.

    Attributes:
        path: The folder.
        state: ``complete``, ``interrupted``, ``failed``, or ``running`` where the recorder was killed.
        document: ``run.json`` as it is.
        recordings: By pass, then by rank; only files that exist.
        notes: Sentences for the reader: the recorder's own, and what is missing.
        memory_snapshot: Allocator snapshot of rank 0, or None.
        gpu_samples: CSV of GPU samples, or None.
    """

    path: Path
    state: str
    document: dict[str, Any]
    recordings: tuple[RunRecording, ...]
    notes: tuple[str, ...]
    memory_snapshot: Path | None
    gpu_samples: Path | None


def sniff(path: Path) -> bool:
    """Say whether a path is a run folder (its content decides, not its name)."""
    file = path / RUN_FILE
    if not file.is_file():
        return False
    try:
        document = msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError:
        return False
    return isinstance(document, dict) and document.get("schema") == SCHEMA


def read_run_folder(path: Path) -> RunFolder:
    """Read a run folder's document and find the recordings it names.

    Args:
        path: The folder.

    Raises:
        TraceFormatError: It is not a run folder, or it holds no recording.
    """
    document = _read_document(path / RUN_FILE)
    documents = [document]
    documents += [_read_document(file) for file in sorted(path.glob("run.rank*.json"))]
    notes = [str(note) for note in _list(document.get("notes"))]
    state = str(document.get("state", "running"))
    if state != "complete":
        reason = document.get("error")
        notes.append(f"the recording run ended early ({state}{f': {reason}' if reason else ''})")
    recordings: list[RunRecording] = []
    for source in documents:
        for entry in _list(source.get("recordings")):
            recording = _recording(path, source, entry)
            if recording is None:
                notes.append(f"{RUN_FILE} names {_file_of(entry)}, which is not in the folder")
            else:
                recordings.append(recording)
    if not recordings:
        detail = f"{state}, {document.get('error')}" if document.get("error") else state
        raise TraceFormatError(
            str(path), f"the run folder holds no recording (the run's state: {detail})", "record it again", RUN_FILE
        )
    recordings.sort(key=lambda recording: (recording.pass_index, recording.rank))
    files = document.get("files")
    files = files if isinstance(files, dict) else {}
    return RunFolder(
        path=path,
        state=state,
        document=document,
        recordings=tuple(recordings),
        notes=tuple(notes),
        memory_snapshot=_plain_or_gzipped(path, files.get("memory_snapshot")),
        gpu_samples=_inside(path, files.get("gpu_samples")),
    )


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(file.read_bytes())
    except FileNotFoundError:
        raise TraceFormatError(str(file.parent), f"holds no {RUN_FILE}", "name a recording or a run folder") from None
    except msgspec.DecodeError as problem:
        raise TraceFormatError(str(file), f"not valid JSON ({problem})", "record the run again") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise TraceFormatError(str(file), f"not a {SCHEMA} document", "record it with this version of traceanalyzer")
    return document


def _recording(folder: Path, document: dict[str, Any], entry: Any) -> RunRecording | None:
    path = _inside(folder, entry.get("file") if isinstance(entry, dict) else None)
    if path is None:
        return None
    index = _count(entry.get("pass"))
    return RunRecording(
        path=path,
        format=str(entry.get("format", "")),
        profiler=str(entry.get("profiler", "")),
        pass_index=index,
        rank=_count(entry.get("rank")),
        recorder=_recorder_facts(document, index, entry),
    )


def _recorder_facts(document: dict[str, Any], index: int, entry: dict[str, Any]) -> dict[str, object]:
    passes = _list(document.get("passes"))
    own = passes[index] if index < len(passes) and isinstance(passes[index], dict) else {}
    facts: dict[str, object] = {
        name: own[name] for name in ("unprofiled", "profiled", "loader", "garbage_collection", "schedule", "episodes")
        if name in own
    }  # fmt: skip
    # Under Nsight Systems even steps outside the capture run with its library loaded: the torch pass, whose first
    # block ran before any profiler, is the better witness of the undisturbed step.
    for other in passes:
        measured = other.get("unprofiled") if isinstance(other, dict) else None
        if isinstance(measured, dict) and measured.get("step_ns") and other.get("profiler") != "nsys":
            facts["unprofiled"] = measured
            break
    for name in ("configuration", "versions", "faults", "trials", "notes", "ddp", "gpus", "command"):
        if name in document:
            facts[name] = document[name]
    facts["recorded_with"] = {name: bool(entry.get(name, False)) for name in ("stacks", "shapes", "memory")}
    return facts


def _inside(folder: Path, name: object) -> Path | None:
    """Return a named file of the folder where it exists; a name that leads out of the folder is not followed."""
    if not isinstance(name, str) or not name:
        return None
    path = folder / name
    try:
        is_inside = path.exists() and path.resolve().is_relative_to(folder.resolve())
    except OSError:  # a name that no file can have
        return None
    return path if is_inside else None


def _count(value: object) -> int:
    """Return a pass or rank number; 0 where the document holds none that makes sense."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _plain_or_gzipped(folder: Path, name: object) -> Path | None:
    """Return a named file, or what ``gzip`` made of it."""
    return _inside(folder, name) or (_inside(folder, f"{name}.gz") if isinstance(name, str) and name else None)


def _file_of(entry: object) -> str:
    return str(entry.get("file")) if isinstance(entry, dict) else "a recording without a file"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
