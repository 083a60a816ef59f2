"""Everything a user may name as input, turned into recordings: files, run folders, folders of ranks, URLs, samples."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.model.memory_snapshot import MemorySnapshot
from traceanalyzer.model.trace import Recording, Source, Trace
from traceanalyzer.readers import READERS, gpu_metrics_csv, memory_snapshot, open_recording, run_folder
from traceanalyzer.readers.column_cache import ColumnCache
from traceanalyzer.readers.files import read_head
from traceanalyzer.readers.run_folder import RunFolder

InputProgress = Callable[[str, int, int], None]
"""Called with (input, bytes done, bytes in all) while an input is read; bytes in all is 0 when unknown."""

_COPY_BYTES = 8 << 20
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,5})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OpenedInput:
    """One recording and what was known about it besides.

    Attributes:
        recording: The recording.
        recorder: Facts of the run folder it came from (see ``RunRecording.recorder``); empty without one.
        beside: Memory snapshots that belong to it.
    """

    recording: Recording
    recorder: dict[str, object] = field(default_factory=dict)
    beside: tuple[Source, ...] = ()


def open_inputs(
    names: Sequence[str],
    progress: InputProgress | None = None,
    profiler: str | None = None,
    cache: ColumnCache | None = None,
) -> list[OpenedInput]:
    """Read every input.

    Args:
        names: Recordings, run folders, folders that hold one recording per rank, URLs, and files taken
            beside the recordings: GPU samples (nvidia-smi) and memory snapshots. A snapshot alone is an input too.
        progress: Told how far reading is.
        profiler: Which pass of a run folder to read, ``torch`` or ``nsys``; by default the first.
        cache: Where recordings are kept as columns, or None to parse each.

    Raises:
        TraceFormatError: An input is not usable.
        UsageError: There are samples but no recording, or the run folder has no such pass.
    """
    opened: list[OpenedInput] = []
    samples: list[Path] = []
    snapshots: list[Path] = []
    for name in names:
        path = Path(name)
        if "://" in name:
            opened.append(OpenedInput(_download_and_read(name, progress)))
        elif path.is_dir() and run_folder.sniff(path):
            opened += _open_run(run_folder.read_run_folder(path), progress, profiler, cache)
        elif path.is_dir() and (files := _recordings_in(path)):
            snapshots += [file for file in files if memory_snapshot.sniff(file, read_head(file))]
            opened += [OpenedInput(_read(str(file), progress, cache)) for file in files if file not in snapshots]
        elif path.is_file() and gpu_metrics_csv.sniff(path, read_head(path)):
            samples.append(path)
        elif path.is_file() and memory_snapshot.sniff(path, read_head(path)):
            snapshots.append(path)
        else:
            opened.append(OpenedInput(_read(name, progress, cache)))
    if not opened and snapshots:
        opened = [OpenedInput(_read(str(path), progress)) for path in snapshots]
    elif snapshots:
        opened = _with_snapshots(opened, snapshots)
    if not opened:
        raise UsageError(f"{names[0]}: GPU samples hold no timeline; name the recording they belong to as well")
    for path in samples:
        opened = [_with_samples(each, path) for each in opened]
    return opened


def separate_recordings(names: Sequence[str]) -> list[str]:
    """List recordings that can be read apart from each other, one or more of which a name stands for.

    Returns:
        The recordings; empty where an input belongs to others (a run folder, GPU samples, memory snapshots).
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        files = [path]
        if path.is_dir() and run_folder.sniff(path):
            return []
        if path.is_dir():
            files = _recordings_in(path) or files
        if any(
            f.is_file() and (memory_snapshot.sniff(f, h := read_head(f)) or gpu_metrics_csv.sniff(f, h)) for f in files
        ):
            return []
        found += [name] if files == [path] else [str(file) for file in files]
    return found


def rank_in_name(path: str) -> int | None:
    """Rank that a file's name holds (``rank3``, ``rank_3``); None without one."""
    rank = _RANK_IN_NAME.search(PurePosixPath(path).name)
    return int(rank.group(1)) if rank else None


def _read(name: str, progress: InputProgress | None, cache: ColumnCache | None = None) -> Recording:
    read = open_recording if cache is None else cache.open_recording
    if progress is None:
        return read(name)
    return read(name, lambda done, total: progress(name, done, total))


def _open_run(
    run: RunFolder, progress: InputProgress | None, profiler: str | None, cache: ColumnCache | None
) -> list[OpenedInput]:
    kinds = list(dict.fromkeys(recording.profiler for recording in run.recordings))
    chosen = profiler or kinds[0]
    if chosen not in kinds:
        raise UsageError(f"{run.path}: the run has no {chosen} recording; it has {' and '.join(kinds)}")
    first = next(entry.pass_index for entry in run.recordings if entry.profiler == chosen)
    notes = list(run.notes)
    notes += [
        f"The run also holds a recording by {kind}: analyze it with --profiler {kind}."
        for kind in kinds
        if kind != chosen
    ]
    opened = []
    for entry in run.recordings:
        if entry.pass_index != first:
            continue
        recording = _read(str(entry.path), progress, cache)
        if len(recording.traces) == 1 and recording.traces[0].rank is None:
            recording = replace(recording, traces=(replace(recording.traces[0], rank=entry.rank),))
        for trace in recording.traces:
            for note in notes:
                trace.integrity.note(note)
        each = OpenedInput(recording, dict(entry.recorder))
        if run.memory_snapshot is not None and entry.rank == 0:
            each = _with_run_snapshot(each, run.memory_snapshot)
        opened.append(_with_samples(each, run.gpu_samples) if run.gpu_samples is not None else each)
    return opened


def _with_samples(opened: OpenedInput, path: Path) -> OpenedInput:
    metrics = gpu_metrics_csv.read_metrics(path)
    traces: tuple[Trace, ...] = tuple(gpu_metrics_csv.attach_metrics(t, metrics) for t in opened.recording.traces)
    return replace(opened, recording=replace(opened.recording, traces=traces))


def _with_run_snapshot(opened: OpenedInput, path: Path) -> OpenedInput:
    """Attach the run's snapshot; one that cannot be read costs the memory report, not the analysis."""
    try:
        return _with_snapshot(opened, memory_snapshot.read_snapshot(path))
    except TraceFormatError as error:
        for trace in opened.recording.traces:
            trace.integrity.note(f"the memory snapshot was left out: {error}")
        return opened


def _with_snapshots(opened: list[OpenedInput], paths: Sequence[Path]) -> list[OpenedInput]:
    """Attach snapshots to the recordings they were taken beside: by the rank in the name, else one after the other."""
    free = list(range(len(opened)))
    attached = list(opened)
    for path in paths:
        rank = _RANK_IN_NAME.search(path.name)
        named = int(rank.group(1)) if rank else None
        if not free:
            raise UsageError(f"{path}: there are more memory snapshots than recordings; give one per rank")
        chosen = next((i for i in free if named is not None and _first_rank(opened[i]) == named), free[0])
        free.remove(chosen)
        attached[chosen] = _with_snapshot(opened[chosen], memory_snapshot.read_snapshot(path))
    return attached


def _first_rank(opened: OpenedInput) -> int | None:
    return opened.recording.traces[0].rank if opened.recording.traces else None


def _with_snapshot(opened: OpenedInput, snapshot: MemorySnapshot) -> OpenedInput:
    first, *others = opened.recording.traces
    traces = (memory_snapshot.attach(first, snapshot), *others)
    recording = replace(opened.recording, traces=traces)
    return replace(opened, recording=recording, beside=(*opened.beside, snapshot.source))


def _recordings_in(folder: Path) -> list[Path]:
    """Recordings directly inside a folder that is none itself, by name; empty where the folder is one."""
    if any(reader.sniff(folder, b"") for reader in READERS):
        return []
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)
    return [path for path in files if any(reader.sniff(path, read_head(path)) for reader in READERS)]


def _download_and_read(url: str, progress: InputProgress | None) -> Recording:
    # the readers seek and map, so the file has to be here
    with _local_copy(url) as path:
        try:
            recording = open_recording(
                path, None if progress is None else (lambda done, all_: progress(url, done, all_))
            )
        except TraceFormatError as error:
            raise TraceFormatError(url, error.problem, error.hint, error.where) from error
    return replace(recording, source=replace(recording.source, path=url))


def _fetch_hint(url: str, error: Exception) -> str:
    """Say what to do about an address that cannot be read; the reason decides, not the address alone."""
    protocol = url.split("://", 1)[0]
    if isinstance(error, ImportError):
        return f"reading {protocol}:// needs a package that is not installed: install it, or download the file first"
    if isinstance(error, ValueError):
        return f"{protocol}:// is not known to fsspec; download the file and name it"
    return "check the address and that this machine reaches it, or download the file and name it"


@contextmanager
def _local_copy(url: str) -> Iterator[Path]:
    import fsspec

    with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
        path = Path(folder, PurePosixPath(url.split("://", 1)[1]).name or "recording")
        try:
            with fsspec.open(url, "rb") as source, path.open("wb") as target:
                while block := source.read(_COPY_BYTES):
                    target.write(block)
        except (OSError, ValueError, ImportError) as error:
            # ValueError: no such protocol; ImportError: its package is not installed
            raise TraceFormatError(url, f"cannot be fetched: {error}", _fetch_hint(url, error)) from error
        yield path
