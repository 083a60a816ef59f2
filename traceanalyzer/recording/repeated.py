"""Several runs in one command: the same thing again, or two things in turn.

A gate wants several runs a side, because whole runs of one program differ. Recording them in turn (A B B A …) puts
what drifts meanwhile, such as clocks, temperature or another tenant of the host, on both sides alike.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.command import say
from traceanalyzer.recording.options import RunOptions, ScriptOptions, to_words
from traceanalyzer.recording.run_folder import RUN_FILE, read_document

COMPLETE = "complete"
MAX_RUNS = 1000


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """How often to record, and what in turn.

    Attributes:
        runs: Runs, of each side where there are two.
        ab: The two sides: two checkouts (folders) to run in, or two commands; for ``yolo`` two sets of further
            options. None: one thing.
        resume: Keep the complete runs found in the folder and record the missing ones.
    """

    runs: int = 1
    ab: tuple[str, str] | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= MAX_RUNS:
            raise UsageError(f"--runs {self.runs}: must be at least 1 and at most {MAX_RUNS}")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One of the runs.

    Attributes:
        side: ``A`` or ``B``, or empty where there is one thing only.
        folder: Its run folder.
        words: Arguments of ``python -m traceanalyzer.recording``.
        place: Folder to run in; None for the current one.
    """

    side: str
    folder: Path
    words: list[str]
    place: Path | None


def plan_runs(kind: str, options: RunOptions, repetition: Repetition) -> list[PlannedRun]:
    """Lay out the runs in the order in which to record them.

    Args:
        kind: ``yolo`` or ``script``.
        options: Options of every run; ``out`` is the folder that will hold the run folders.
        repetition: How often, and what in turn.

    Returns:
        The runs; two sides alternate as A B, B A, A B …

    Raises:
        UsageError: The sides cannot be told, or name no command.
    """
    out = options.out
    if repetition.ab is None:
        if isinstance(options, ScriptOptions) and not options.command:
            raise UsageError("record script needs a script: -- python train.py")
        words = _words(kind, options, "", checkout=False)
        return [
            PlannedRun("", out / f"run-{turn}", [*words, *_tail(options)], None)
            for turn in range(1, repetition.runs + 1)
        ]
    checkouts = [bool(side) and Path(side).is_dir() for side in repetition.ab]
    if checkouts[0] is not checkouts[1]:
        folder = repetition.ab[checkouts.index(True)]
        raise UsageError(f"--ab: {folder} is a folder and the other side is not; name two checkouts or two commands")
    command = options.command if isinstance(options, ScriptOptions) else ()
    if isinstance(options, ScriptOptions) and bool(command) is not checkouts[0]:
        raise UsageError(
            "--ab with two commands takes none after --"
            if command
            else "--ab with two checkouts needs the command to run in both: -- python train.py"
        )
    runs = []
    for turn in range(1, repetition.runs + 1):
        for side in "AB" if turn % 2 else "BA":
            what = repetition.ab["AB".index(side)]
            if isinstance(options, ScriptOptions) and not _split(what):
                raise UsageError(f"--ab: side {side} names neither a command nor a checkout")
            words = _words(kind, options, what, checkout=checkouts[0])
            tail = _tail(options) if checkouts[0] or not isinstance(options, ScriptOptions) else ["--", *_split(what)]
            place = Path(what).resolve() if checkouts[0] else None
            runs.append(PlannedRun(side, out / f"{side}-{turn}", [*words, *tail], place))
    return runs


def record_repeatedly(kind: str, options: RunOptions, repetition: Repetition) -> tuple[list[Path], list[Path]]:
    """Record every run in a process of its own, one after the other.

    Args:
        kind: ``yolo`` or ``script``.
        options: Options of every run; ``out`` is the folder that will hold the run folders.
        repetition: How often, and what in turn.

    Returns:
        The run folders of side A and of side B; all of them as A where there is one thing only.

    Raises:
        UsageError: A folder holds a run already, or a run failed; what was recorded until then is kept.
    """
    runs = plan_runs(kind, options, repetition)
    done = {run.folder for run in runs if _is_complete(run.folder)}
    taken = [run.folder for run in runs if run.folder.exists() and run.folder not in done]
    if done and not (repetition.resume or options.overwrite):
        raise UsageError(
            f"{options.out}: holds {len(done)} recorded runs already; pass --resume to add the missing ones, "
            "--overwrite to record all again, or name another folder"
        )
    if not repetition.resume:
        done = set()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{options.out}: cannot hold the runs: {error.strerror or error}") from error
    for turn, run in enumerate(runs, 1):
        name = f"{run.folder.name} ({turn} of {len(runs)})"
        if run.folder in done:
            say(f"{name}: recorded already")
            continue
        say(f"{name}: recording")
        sys.stdout.flush()
        words = [*run.words]
        if repetition.resume and run.folder in taken:
            words.insert(1, "--overwrite")  # what an interrupted run left
        words.insert(1, f"--out={run.folder.resolve()}")
        code = subprocess.run(
            [sys.executable, "-m", "traceanalyzer.recording", *words],
            check=False,
            cwd=run.place,
            env=_environment() if run.place is not None else None,
        ).returncode
        if code or not _is_complete(run.folder):
            raise UsageError(
                f"{run.folder}: recording failed{f' with exit code {code}' if code else _why(run.folder)}; "
                "when mended, the same command with --resume records the missing runs"
            )
    first = [run.folder for run in runs if run.side in ("", "A")]
    return sorted(first, key=_number), sorted([run.folder for run in runs if run.side == "B"], key=_number)


def next_command(first: list[Path], second: list[Path]) -> str:
    """Return the command that makes use of the runs: a comparison, or a baseline where there is one side.

    Args:
        first: Runs of side A, or of the one thing recorded.
        second: Runs of side B.
    """
    before, after = ([shlex.quote(str(folder)) for folder in side] for side in (first, second))
    if not after:
        return " ".join(["traceanalyzer baseline update BASELINE.json", *before])
    words = [f"--base {folder}" for folder in before] + [f"--candidate {folder}" for folder in after]
    return " ".join(["traceanalyzer compare", *words])


def _words(kind: str, options: RunOptions, what: str, *, checkout: bool) -> list[str]:
    absolute: dict[str, Any] = {
        entry.name: _absolute(getattr(options, entry.name))
        for entry in fields(options)
        if checkout and entry.metadata and isinstance(getattr(options, entry.name), (str, Path))
    }
    words = [kind, *to_words(replace(options, **absolute), skip=("out",))]
    return words if checkout or kind == "script" else [*words, *_split(what)]


def _absolute(value: str | Path) -> str | Path:
    # a name that is no file here (a model of the library's, a device) means the same everywhere
    return type(value)(Path(value).resolve()) if Path(value).is_file() or isinstance(value, Path) else value


def _tail(options: RunOptions) -> list[str]:
    return ["--", *options.command] if isinstance(options, ScriptOptions) else []


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--ab {text!r}: {error}") from error


def _is_complete(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file() and read_document(folder).get("state") == COMPLETE


def _why(folder: Path) -> str:
    if not (folder / RUN_FILE).is_file():
        return " and left no run"
    return f": {read_document(folder).get('error') or 'it did not finish'}"


def _number(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])


def _environment() -> dict[str, str]:
    """Return an environment in which this package is found from another folder too."""
    root = Path(__file__).parents[2]
    if root.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else str(root)}
