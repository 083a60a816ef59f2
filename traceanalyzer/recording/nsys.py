"""Run a recording under Nsight Systems and keep what it leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.nsys_export import clean_export
from traceanalyzer.recording.options import RunOptions, ScriptOptions, to_words
from traceanalyzer.recording.ranges import APPEND_VARIABLE, NSYS_VERSION_VARIABLE
from traceanalyzer.recording.run_folder import RunFolder, describe_error, prepare_folder

# What a YOLO training needs from the environment. A report stores the environment of the program it profiled.
_KEPT = re.compile(
    r"^(PATH|LD_LIBRARY_PATH|LD_PRELOAD|LANG|LC_\w+|TZ|TMPDIR|PYTHON\w+|VIRTUAL_ENV|CUDA_\w+|NVIDIA_\w+|NCCL_\w+"
    r"|OMP_\w+|MKL_\w+|TORCH\w*|PYTORCH_\w+|YOLO_\w+|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_\w+|TRACEANALYZER_\w+)$"
)
_REPORT_STEM = "nsys"


def find_nsys(named: Path | None) -> Path:
    """Return the nsys program.

    Args:
        named: The one the user named, or None.

    Raises:
        UsageError: There is none.
    """
    if named is not None:
        if not named.is_file():
            raise UsageError(f"--nsys {named}: no such program")
        return named
    found = shutil.which("nsys")
    if found is None:
        raise UsageError("Nsight Systems is not on the PATH; install it, or name the program with --nsys")
    return Path(found)


def nsys_version(nsys: Path) -> str:
    """Return the version a nsys program reports, for example ``2025.3.2.474``.

    Raises:
        UsageError: It does not run.
    """
    try:
        answer = subprocess.run([nsys, "--version"], capture_output=True, text=True, check=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as problem:
        raise UsageError(f"{nsys}: does not run ({describe_error(problem)})") from None
    found = re.search(r"\d{4}\.\d+(?:\.\d+)*", answer.stdout)
    if found is None:
        raise UsageError(f"{nsys}: does not say its version")
    return found[0]


def profile_command(nsys: Path, report: Path, options: RunOptions, program: list[str], *, cuda: bool) -> list[str]:
    """Return the command that profiles a program.

    Args:
        nsys: The nsys program.
        report: Report to write, without its suffix.
        options: What to trace.
        program: The program and its arguments.
        cuda: Whether there is a GPU; without one nothing would ever start a capture range.
    """
    defaults = {"-t": options.nsys_trace, "--sample": "none", "--cpuctxsw": "none", "--force-overwrite": "true"}
    if cuda:
        defaults |= {
            "--capture-range": "cudaProfilerApi",
            "--capture-range-end": "stop",
            "--cuda-memory-usage": "true",
        }
    given = {word.split("=", 1)[0] for word in options.nsys_option}
    words = [
        word
        for name, value in defaults.items()
        if name not in given
        for word in ((name, value) if name == "-t" else (f"{name}={value}",))
    ]
    return [str(nsys), "profile", *words, "-o", str(report), *options.nsys_option, *program]


def find_importer(nsys: Path) -> Path | None:
    """Return the program that turns a ``.qdstrm`` stream into a report: beside nsys, else on the PATH."""
    home = nsys.resolve().parent
    for folder in (home, home.parent):
        for found in sorted([*folder.glob("host-*/QdstrmImporter"), *folder.glob("QdstrmImporter")]):
            return found
    on_path = shutil.which("QdstrmImporter")
    return Path(on_path) if on_path else None


def record_with_nsys(kind: Literal["yolo", "script"], options: RunOptions) -> Path:
    """Record under Nsight Systems; with ``--profiler both``, after a pass with torch.profiler.

    Args:
        kind: Which recording command.
        options: Its options.

    Returns:
        The run folder.

    Raises:
        UsageError: Nsight Systems is missing, or the profiled program failed.
    """
    from traceanalyzer.recording.command import say

    nsys = find_nsys(options.nsys)
    version = nsys_version(nsys)
    out = options.out.resolve()
    prepare_folder(out, overwrite=options.overwrite)
    both = options.profiler == "both"
    if both:
        # A process of its own: CUPTI stays attached to one that torch.profiler has profiled.
        child = _program(kind, replace(options, profiler="torch", out=out))
        if subprocess.run(child, check=False).returncode:
            raise UsageError(f"the torch.profiler pass failed; what it recorded is in {options.out}")
    program = _program(kind, replace(options, profiler="nsys", out=out))
    with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as home:
        environment = _environment(kind, home)
        environment[NSYS_VERSION_VARIABLE] = version
        if both:
            environment[APPEND_VARIABLE] = "1"
        report = out.with_name(f".{out.name}.{_REPORT_STEM}")
        command = profile_command(nsys, report, options, program, cuda=_has_cuda())
        # nsys hands on the program's exit code; whether a report came of it is what counts here.
        code = subprocess.run(command, check=False, env=environment).returncode
    _collect(nsys, version, report, out, code, say)
    return out


def _program(kind: str, options: RunOptions) -> list[str]:
    words = to_words(options, ("nsys", "nsys_option", "nsys_trace", "overwrite"))
    program = [sys.executable, "-m", "traceanalyzer.recording", kind, *words]
    if isinstance(options, ScriptOptions):
        program += ["--", *options.command]
    return program


def _environment(kind: str, home: str) -> dict[str, str]:
    """Return the profiled program's environment; a user's script gets the whole of it, since it may need any of it."""
    if kind == "script":
        return dict(os.environ)
    return {**{name: value for name, value in os.environ.items() if _KEPT.match(name)}, "HOME": home}


def _has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _collect(nsys: Path, version: str, report: Path, out: Path, code: int, say: Callable[[str], None]) -> None:
    """Move the report into the run folder, export it and enter both into the document."""
    if not (out / "run.json").is_file():
        raise UsageError(f"the program under Nsight Systems ended with exit code {code} before it began to record")
    stream = report.with_name(report.name + ".qdstrm")
    finished = report.with_name(report.name + ".nsys-rep")
    folder = RunFolder(out, append=True)
    state, error = str(folder.document.get("state")), folder.document.get("error")
    try:
        if not finished.is_file() and stream.is_file():
            _import_stream(nsys, stream, finished, folder)
        if finished.is_file():
            kept = out / f"{_REPORT_STEM}.nsys-rep"
            shutil.move(finished, kept)
            stream.unlink(missing_ok=True)
            _enter(folder, nsys, version, kept, say)
        elif stream.is_file():
            shutil.move(stream, out / f"{_REPORT_STEM}.qdstrm")
        else:
            folder.note(f"Nsight Systems left no report (exit code {code})")
            state, error = "failed", "Nsight Systems left no report"
    finally:
        folder.close(state, error)


def _import_stream(nsys: Path, stream: Path, finished: Path, folder: RunFolder) -> None:
    importer = find_importer(nsys)
    if importer is None:
        folder.note("Nsight Systems left a .qdstrm stream and there is no QdstrmImporter here to import it with")
        return
    command = [str(importer), "-i", str(stream), "-o", str(finished)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=_beside(importer))
    if not finished.is_file():
        folder.note(f"QdstrmImporter failed with exit code {answer.returncode}; the .qdstrm stream is kept")


def _beside(importer: Path) -> dict[str, str]:
    """Return an environment in which nsys's host half finds its own libraries when it was copied elsewhere."""
    libraries = [str(importer.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(name for name in libraries if name)}


def _enter(folder: RunFolder, nsys: Path, version: str, report: Path, say: Callable[[str], None]) -> None:
    passes = folder.document.get("passes") or [{}]
    entry: dict[str, Any] = {
        "file": report.name,
        "format": "nsys_rep",
        "profiler": "nsys",
        "pass": len(passes) - 1,
        "rank": 0,
        "steps": len(passes[-1].get("profiled", {}).get("step_ns", [])),
        "nsys": version,
        "stacks": False,
        "shapes": False,
        "memory": False,
    }
    export = report.with_suffix(".sqlite")
    command = [str(nsys), "export", "--type", "sqlite", "--force-overwrite=true", "-o", str(export), str(report)]
    importer = find_importer(nsys)
    surroundings = None if importer is None else _beside(importer)
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)
    if export.is_file() and answer.returncode == 0:
        clean_export(export)
        entry |= {"file": export.name, "format": "nsys_sqlite", "report": report.name}
    else:
        folder.note(f"nsys export failed with exit code {answer.returncode}; the report itself is kept")
    folder.document.setdefault("recordings", []).append(entry)
    say(f"nsys recording: {entry['file']}; {report.name} holds the environment and command line, do not publish it")
