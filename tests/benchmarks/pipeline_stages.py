"""Time and memory of every stage from a recording to its reports, beside what reading alone costs elsewhere.

Run: ``python -m tests.benchmarks.pipeline_stages RECORDING… [--repeat 5]``. Every run is a fresh process, so that
imports, loading compiled code and peak memory are what a user sees; medians are printed. CPU seconds stay comparable
on a machine that does other work, wall seconds do not. ``--first-use`` gives the first run an empty compiler cache.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SQLITE_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API")


def _pipeline(path: Path, html: bool) -> dict[str, float]:
    from traceanalyzer.pipeline import analyze

    timings: dict[str, float] = {"import": time.process_time()}
    analysis = analyze(path, timings=timings)
    begun = time.perf_counter()
    if html:
        from traceanalyzer.renderers.html import render_html

        render_html(analysis)
    else:
        from traceanalyzer.renderers.json import render_json

        render_json(analysis)
    return timings | {"render": time.perf_counter() - begun}


def _to_html(path: Path) -> dict[str, float]:
    return _pipeline(path, html=True)


def _to_json(path: Path) -> dict[str, float]:
    return _pipeline(path, html=False)


def _json_load(path: Path) -> dict[str, float]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        json.load(file)
    return {}


def _pandas_read_sql(path: Path) -> dict[str, float]:
    import pandas

    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    for table in _SQLITE_TABLES:
        if table in present:
            pandas.read_sql(f"SELECT * FROM {table}", connection)
    return {}


TASKS = {
    "analyze to JSON": _to_json,
    "analyze to HTML": _to_html,
    "json.load": _json_load,
    "pandas.read_sql": _pandas_read_sql,
}


# the whole command line, as a user runs it
COMMANDS = {"command to JSON": "--json", "command to HTML": "--html"}


def tasks_for(path: Path) -> list[str]:
    """Name what can be timed on an input: beside the analysis, the plain way of reading that kind of file."""
    if path.suffix == ".sqlite":
        return [*COMMANDS, "analyze to JSON", "analyze to HTML", "pandas.read_sql"]
    is_json = path.suffix == ".json" or path.suffixes[-2:] == [".json", ".gz"]
    return [*COMMANDS, "analyze to JSON", "analyze to HTML", *(["json.load"] if is_json else [])]


def measure_command(task: str, path: Path) -> dict[str, float]:
    """Run the command a user types, from the start of the interpreter to its end.

    Returns:
        ``wall``, ``cpu`` (seconds) and ``peak_mb`` of that process.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "traceanalyzer", "analyze", str(path), COMMANDS[task], f"{folder}/report"]
        begun = time.perf_counter()
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, words)
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss * 1024 / 1e6}


def measure(task: str, path: Path, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Run one task in a process of its own.

    Returns:
        Seconds per stage, and ``wall``, ``cpu`` (seconds, of the whole process) and ``peak_mb``.
    """
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.pipeline_stages", "--task", task, str(path)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | (environment or {}),
    )
    return json.loads(done.stdout) | {"wall": time.perf_counter() - begun}


def _show(task: str, runs: list[dict[str, float]]) -> None:
    medians = {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}
    whole = [f"{stage} {medians.pop(stage):.2f} s" for stage in ("wall", "cpu")]
    peak = medians.pop("peak_mb")
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in medians.items())
    print(f"  {task:26} {', '.join(whole)}, peak {peak:.0f} MB" + (f" ({stages})" if stages else ""))


def main() -> None:
    """Print medians per input and task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--first-use", action="store_true")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        stages = TASKS[options.task](options.recordings[0])
        used = resource.getrusage(resource.RUSAGE_SELF)
        # ru_maxrss counts KiB
        print(json.dumps(stages | {"cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss * 1024 / 1e6}))
        return
    for path in options.recordings:
        print(f"{path.name}, {path.stat().st_size / 1e6:.1f} MB")
        if options.first_use:
            with tempfile.TemporaryDirectory() as cache:
                _show("first use, to JSON", [measure("analyze to JSON", path, {"NUMBA_CACHE_DIR": cache})])
        for task in tasks_for(path):
            run = measure_command if task in COMMANDS else measure
            _show(task, [run(task, path) for _ in range(options.repeat)])


if __name__ == "__main__":
    main()
