"""Nsight Systems reports (``.nsys-rep``): converted by the user's own ``nsys`` into a cached Parquet export.

The report's format is not documented, so ``nsys export`` has to read it. Parquet is asked for first because it reads
fastest; versions without it write SQLite. Exports are kept in the user's cache, keyed by the report's content, so that
analysing the same report again starts at once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.model.trace import Recording, Source
from traceanalyzer.readers import nsys_arrow, nsys_sqlite
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.nsys_source import fingerprint, size_on_disk

NAME = "nsys-rep"

NSYS_VARIABLE = "TRACEANALYZER_NSYS"
"""Environment variable naming the ``nsys`` program, where it is neither on PATH nor passed in."""

_program: ContextVar[Path | None] = ContextVar("nsys_program", default=None)

_MAGIC = b"NVIDIA Tegra Profiler Report"  # also the head of reports that today's Nsight Systems writes
_INSTALL_FOLDERS = (
    "/opt/nvidia/nsight-systems*",
    "/opt/nvidia/nsight-systems*/*/bin",
    "/opt/nvidia/nsight-systems*/*/target-linux-x64",
    "/usr/local/cuda*/bin",
    "/usr/lib/nsight-systems/bin",
    "/Program Files/NVIDIA Corporation/Nsight Systems*/target-windows-x64",
    "/Applications/NVIDIA Nsight Systems.app/Contents/MacOS",
)


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content is an Nsight Systems report."""
    return head.startswith(_MAGIC)


def read(path: Path, progress: Progress | None = None, *, nsys: Path | None = None) -> Recording:
    """Export a report with ``nsys`` (or take the export made of it earlier) and read that.

    Args:
        path: The report.
        progress: Passed on to the reader of the export.
        nsys: The program to use; None looks for it.

    Raises:
        TraceFormatError: No ``nsys`` is found, or it cannot export the report.
        UsageError: ``nsys`` names a program that does not exist.
    """
    key = fingerprint(path)
    for folder in _cache_folders(path, key):
        export = _finished(folder)
        if export is not None:
            break
    else:
        export = _export(path, find_nsys(nsys), key)
    reader = nsys_arrow if export.is_dir() else nsys_sqlite
    recording = reader.read(export, progress)
    inside = recording.source
    return Recording(Source(str(path), NAME, size_on_disk(path), key, inside.producer), recording.traces)


@contextmanager
def nsys_program(path: Path | None) -> Iterator[None]:
    """Use this ``nsys`` for every report read inside, as if it had been named; None changes nothing."""
    token = _program.set(path)
    try:
        yield
    finally:
        _program.reset(token)


def find_nsys(named: Path | None = None) -> Path | None:
    """Find ``nsys``: the one named, the one the environment names, on PATH, or in the usual install folders.

    Returns:
        The program, or None. Of several installed versions the newest.

    Raises:
        UsageError: The named program does not exist.
    """
    wanted = named or _program.get() or (Path(os.environ[NSYS_VARIABLE]) if os.environ.get(NSYS_VARIABLE) else None)
    if wanted is not None:
        program = wanted / "nsys" if wanted.is_dir() else wanted
        if not program.is_file():
            raise UsageError(f"{wanted}: no nsys program there")
        return program
    on_path = shutil.which("nsys")
    if on_path is not None:
        return Path(on_path)
    found = [program for program in _installed() if os.access(program, os.X_OK)]
    return max(found, key=_version) if found else None


def _installed() -> Iterator[Path]:
    root = Path("/")
    for pattern in _INSTALL_FOLDERS:
        for folder in root.glob(pattern.lstrip("/")):
            yield from (program for name in ("nsys", "nsys.exe") if (program := folder / name).is_file())


def _version(program: Path) -> list[int]:
    """Version in a path such as ``…/2025.3.2/bin/nsys``; empty where it has none."""
    versions = re.findall(r"\d{4}(?:\.\d+)+", str(program.resolve()))
    return [int(part) for part in versions[-1].split(".")] if versions else []


def _cache_folders(path: Path, key: str) -> Iterator[Path]:
    """Folders an export may be kept in: the user's cache, else beside the report."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    if base or os.environ.get("HOME"):
        yield (Path(base) if base else Path.home() / ".cache") / "traceanalyzer" / "nsys" / key
    yield path.with_name(f".{path.stem}.traceanalyzer-{key}")


def _finished(folder: Path) -> Path | None:
    for name in ("export", "export.sqlite"):
        if (folder / name).exists():
            return folder / name
    return None


def _export(path: Path, nsys: Path | None, key: str) -> Path:
    if nsys is None:
        raise TraceFormatError(
            str(path),
            "nsys, which is needed to read a report, is neither on PATH nor in the usual folders",
            f"export it where nsys is installed: `nsys export --type sqlite {path.name}`, or name it with --nsys",
        )
    problem = "no folder for the export can be written"
    for folder in _cache_folders(path, key):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # made under another name first: an interrupted export must not look like a finished one
            work = Path(tempfile.mkdtemp(prefix=f"{folder.name[-16:]}-", dir=folder.parent))
        except OSError as error:
            problem = f"the export cannot be written to {folder.parent} ({error.strerror})"
            continue
        try:
            name = _run_export(path, nsys, work)
            try:
                work.rename(folder)
            except OSError:
                # another run finished the same export first, or files stand in the way
                if _finished(folder) is None:
                    raise
            return _finished(folder) or folder / name
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise TraceFormatError(str(path), problem, "set XDG_CACHE_HOME to a folder that can be written")


def _run_export(path: Path, nsys: Path, work: Path) -> str:
    """Export into a folder; returns the name of what was made."""
    said = ""
    for kind, name in (("parquetdir", "export"), ("sqlite", "export.sqlite")):
        command = [str(nsys), "export", "--type", kind, "--force-overwrite", "true", "--output", str(work / name)]
        try:
            done = subprocess.run([*command, str(path.resolve())], capture_output=True, text=True, check=False)
        except OSError as error:
            raise TraceFormatError(str(path), f"{nsys} cannot be started ({error.strerror})", "check --nsys") from None
        if done.returncode == 0 and _has_content(work / name):
            return name
        said = _last_line(done.stderr) or _last_line(done.stdout) or f"exit code {done.returncode}"
    hint = "use an nsys at least as new as the one that recorded it"
    raise TraceFormatError(str(path), f"nsys cannot export the report ({said})", hint)


def _has_content(export: Path) -> bool:
    return any(export.iterdir()) if export.is_dir() else export.is_file() and export.stat().st_size > 0


def _last_line(output: str) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]", output) if line.strip() and "%" not in line]
    return lines[-1][:200] if lines else ""
