"""The recording commands without the analysis half's command line: ``python -m traceanalyzer.recording``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from traceanalyzer.errors import TraceAnalyzerError, UsageError
from traceanalyzer.recording.faults import catalogue
from traceanalyzer.recording.options import RunOptions, ScriptOptions, YoloOptions, flag, to_words
from traceanalyzer.recording.ranges import APPEND_VARIABLE, NSYS_VERSION_VARIABLE


def run_yolo(options: YoloOptions) -> None:
    """Record a YOLO training with the profiler or profilers asked for."""
    if options.profiler in ("nsys", "both") and NSYS_VERSION_VARIABLE not in os.environ:
        from traceanalyzer.recording.nsys import record_with_nsys

        record_with_nsys("yolo", options)
        return
    devices = [name for name in (options.device or "").split(",") if name.strip()]
    if len(devices) > 1 and "LOCAL_RANK" not in os.environ:
        _run_ranks(options, len(devices))
        return
    from traceanalyzer.recording.yolo import record_yolo

    profiler, append = profiled_pass(options)
    record_yolo(options, profiler=profiler, append=append, say=say)


def _run_ranks(options: YoloOptions, ranks: int) -> None:
    """Start one recording process per device, as the trainer would start itself, but with the recorder in each.

    Raises:
        UsageError: A process failed.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "traceanalyzer.recording", "yolo", *to_words(options)]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise UsageError(f"the recording on {ranks} devices ended with exit code {code}; its own message is above")


def run_script(options: ScriptOptions) -> None:
    """Record a Python script with the profiler or profilers asked for."""
    if options.profiler in ("nsys", "both") and NSYS_VERSION_VARIABLE not in os.environ:
        from traceanalyzer.recording.nsys import record_with_nsys

        record_with_nsys("script", options)
        return
    from traceanalyzer.recording.script import record_script

    profiler, append = profiled_pass(options)
    record_script(options, profiler=profiler, append=append)


def profiled_pass(options: RunOptions) -> tuple[str, bool]:
    """Return the profiler of this process's pass and whether it adds to a run: Nsight Systems' where it runs us."""
    return ("nsys" if NSYS_VERSION_VARIABLE in os.environ else options.profiler), APPEND_VARIABLE in os.environ


def say(line: str) -> None:
    """Write a line for the user."""
    sys.stdout.write(line + "\n")


def add_options(parser: argparse.ArgumentParser, kind: type[RunOptions]) -> None:
    """Add the options of a dataclass to a parser."""
    for entry in fields(kind):
        about = entry.metadata
        if not about:
            continue
        extra: dict[str, Any] = {"dest": entry.name, "default": entry.default, "help": about["help"]}
        if about["kind"] is bool:
            parser.add_argument(flag(entry.name), action=argparse.BooleanOptionalAction, **extra)
        elif isinstance(entry.default, tuple):
            extra["default"] = list(entry.default)
            parser.add_argument(flag(entry.name), action="append", type=about["kind"], metavar="TEXT", **extra)
        else:
            parser.add_argument(flag(entry.name), type=about["kind"], choices=about["choices"] or None, **extra)


def from_values(kind: type[Any], values: dict[str, Any]) -> Any:
    """Build options from parsed values, whichever front end parsed them."""
    known = {entry.name for entry in fields(kind)}
    return kind(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name in known}
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(prog="python -m traceanalyzer.recording", description="Record a training loop.")
    commands = parser.add_subparsers(dest="command_name", required=True)
    yolo = commands.add_parser("yolo", help="record Ultralytics' detection trainer", allow_abbrev=False)
    add_options(yolo, YoloOptions)
    script = commands.add_parser("script", help="record a Python script's training loop", allow_abbrev=False)
    add_options(script, ScriptOptions)
    script.add_argument("command", nargs=argparse.REMAINDER, help="-- python train.py arguments")
    commands.add_parser("faults", help="list the faults that can be reproduced")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parsed = vars(build_parser().parse_args(arguments))
    name = parsed.pop("command_name")
    try:
        if name == "yolo":
            run_yolo(from_values(YoloOptions, parsed))
        elif name == "script":
            words = parsed.pop("command")
            run_script(from_values(ScriptOptions, {**parsed, "command": words[1:] if words[:1] == ["--"] else words}))
        else:
            for fault in catalogue().values():
                say(f"{fault.name:22} {fault.code}  {fault.about}")
    except TraceAnalyzerError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return problem.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was recorded until then is in the run folder\n")
        return 130
    return 0
