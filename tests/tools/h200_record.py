"""Record the sample traces on a GPU machine: one process per run, resumable, packed into few tar files.

    python tests/tools/h200_record.py --out OUT [--only NAME…] [--budget 560] [--nsys PROGRAM] [--tiny]

Each run has its own time limit, and no run starts that might not end within the budget. Finished runs are left out the
next time: those in the work folder, and those in a folder named by --have. A table says for each run the unprofiled and
the profiled step and how busy the GPU was.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TAR_BYTES = 15 << 20
TRACE_LIMIT_BYTES = 2_000_000
KEPT_SUFFIXES = (".json", ".gz", ".csv")


@dataclass(frozen=True)
class Run:
    """One recording to make.

    Attributes:
        name: Folder name.
        words: Options of ``record yolo``.
        limit_s: Time after which it is stopped.
        profiler: ``torch`` or ``nsys``.
        busy_processes: Processes that only count, started beside the recording to load the host.
    """

    name: str
    words: tuple[str, ...] = ()
    limit_s: int = 75
    profiler: str = "torch"
    busy_processes: int = 0


def fault(name: str, *words: str, steps: int = 4, limit_s: int = 75) -> Run:
    """Return the run that records one fault on YOLO11n, batch 16, with an optimizer step in every step."""
    nbs = next((word.split("=")[1] for word in words if word.startswith("--set=batch=")), "16")
    return Run(name, (f"--fault={name}", f"--steps={steps}", f"--set=nbs={nbs}", *words), limit_s)


BASE = ("--steps=4", "--set=nbs=16")
# an optimizer with a fused form, so that the step's end is not one kernel per parameter
LARGE = ("--set=optimizer=SGD", "--set=batch=40", "--set=nbs=40", "--settle=6", "--unprofiled=8", "--images=1200")
REPEAT = ("--steps=10", "--set=nbs=16", "--set=optimizer=SGD", "--settle=6", "--unprofiled=8")
RUNS = (
    Run("good", BASE),
    fault("healthy", *LARGE, steps=3, limit_s=150),
    fault("single-process-loader"),
    fault("few-workers", "--unprofiled=12"),
    fault("slow-storage", "--unprofiled=12", limit_s=90),
    fault("item-per-step"),
    fault("empty-cache", steps=3),
    fault("pageable"),
    fault("anomaly-mode", steps=3),
    fault("tiny-copies", steps=3),
    fault("multi-scale", "--settle=6", "--unprofiled=8", "--warm-up=4", limit_s=120),
    fault("batch-small", "--set=nbs=2", "--settle=8"),
    fault("gc-storm"),
    fault("checkpoint-every-step", "--settle=8", "--unprofiled=8", steps=3),
    fault("validate-every-step", "--settle=8", "--unprofiled=8", steps=3),
    fault("heavy-mosaic", "--unprofiled=12"),
    fault("no-persistence", "--settle=4", "--unprofiled=12", steps=9, limit_s=90),
    fault("memory-cap", "--settle=4", "--unprofiled=6", "--set=nbs=32", "--no-trials", steps=3, limit_s=100),
    fault("amp-off", "--settle=8", "--unprofiled=10", "--set=nbs=32", steps=2, limit_s=100),
    fault("device-sync"),
    fault("log-every-step", steps=3),
    fault("unfused-optimizer", steps=2),
    fault("lazy-loading", "--settle=8", "--unprofiled=8"),
    fault("blocking"),
    fault("print-tensor"),
    fault("low-prefetch", "--unprofiled=16"),
    fault("fragmentation", "--settle=8", "--no-trials", steps=3),
    fault("creep", "--settle=8", "--unprofiled=8", steps=4),
    fault("channels-last-off", "--settle=8", "--unprofiled=10", "--set=nbs=32", steps=2, limit_s=100),
    Run("nsys-good", ("--steps=6", "--set=nbs=16"), 110, "nsys"),
    Run("nsys-single-process-loader", ("--fault=single-process-loader", "--steps=4", "--set=nbs=16"), 110, "nsys"),
    Run("nsys-empty-cache", ("--fault=empty-cache", "--steps=4", "--set=nbs=16"), 110, "nsys"),
    Run("nsys-healthy", ("--fault=healthy", "--steps=3", *LARGE), 160, "nsys"),
    # one configuration again and again, with and without other work on the host: what a release gate must not call
    # a regression
    *(Run(f"repeat-{number}", REPEAT, 60) for number in range(1, 9)),
    *(Run(f"loaded-{number}", REPEAT, 75, busy_processes=12) for number in range(1, 5)),
)  # fmt: skip
TINY = (
    "--imgsz=64", "--set=imgsz=64", "--set=batch=2", "--set=workers=2", "--set=model=yolo11n.yaml", "--settle=2",
    "--warm-up=2", "--unprofiled=3", "--steps=2",
)  # fmt: skip


def main() -> int:
    """Make the recordings and return 0 when every one asked for is there."""
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [run for run in RUNS if not options.only or run.name in options.only]
    start = time.monotonic()
    packer = Packer(options.out)
    failed: list[str] = []
    rows = []
    for run in wanted:
        folder = options.work / run.name
        if any((have / run.name / "run.json").is_file() for have in options.have):
            continue
        if state_of(folder) == "complete" and (folder / ".packed").exists():
            continue
        limit = min(run.limit_s, 60) if options.tiny else run.limit_s
        left = options.budget - (time.monotonic() - start)
        if state_of(folder) != "complete":
            if limit > left:
                failed.append(f"{run.name}: not started, {left:.0f} s of the budget left")
                continue
            problem = record(run, folder, limit, options)
            if problem:
                failed.append(f"{run.name}: {problem}")
                continue
        row = summarise(run, folder) + incidents(folder)
        rows.append(row)
        drop_arrows(folder)
        say(f"{row}  [{time.monotonic() - start:.0f} s]")
        packer.add(folder)
        (folder / ".packed").touch()
    table = "\n".join([HEADER, *rows, *failed])
    (options.out / "table.txt").write_text(table + "\n")
    say("\n" + table)
    return 1 if failed else 0


def say(text: str) -> None:
    """Write a line now, so that it is there even when the machine is taken away."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Record the sample traces on a GPU machine.")
    parser.add_argument("--out", type=Path, required=True, help="folder for tar files and the table")
    parser.add_argument("--work", type=Path, default=Path("/tmp/traceanalyzer-runs"), help="folder for run folders")
    parser.add_argument(
        "--have", type=Path, action="append", default=[ROOT / "sample_traces"], help="runs not to repeat"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of runs")
    parser.add_argument("--budget", type=float, default=560.0, help="seconds in all")
    parser.add_argument("--nsys", type=Path, help="the nsys program; without one, nsys runs fail")
    parser.add_argument("--tiny", action="store_true", help="tiny settings, to try this script without a GPU")
    return parser.parse_args()


def state_of(folder: Path) -> str | None:
    """Return the state of a run folder, or None where there is none."""
    file = folder / "run.json"
    return json.loads(file.read_text())["state"] if file.is_file() else None


def record(run: Run, folder: Path, limit_s: float, options: argparse.Namespace) -> str | None:
    """Make one recording; return what went wrong, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [*run.words, *(TINY if options.tiny else ())]
    if run.profiler == "nsys":
        words += ["--profiler=nsys", "--nsys-trace=cuda,nvtx"]
        words += [f"--nsys={options.nsys}"] if options.nsys else []
    command = [sys.executable, "-m", "traceanalyzer.recording", "yolo", *words]
    command += [f"--dataset-dir={options.work / 'data'}", f"--out={folder}"]
    log = options.work / f"{run.name}.log"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")}
    with log.open("w") as file, loaded_host(run.busy_processes):
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(8)
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
            return f"stopped after {limit_s:.0f} s; {tail(log)}"
    if code or state_of(folder) != "complete":
        return f"exit code {code}, state {state_of(folder)}; {tail(log)}"
    return None


@contextmanager
def loaded_host(processes: int) -> Iterator[None]:
    """Keep that many processes counting meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def drop_arrows(folder: Path) -> None:
    """Leave out of every trace what repeats what correlation ids say; it is half of the file."""
    sys.path.insert(0, str(ROOT))
    from tests.tools.trim_kineto import load, save, trim

    for path in folder.glob("*.pt.trace.json.gz"):
        document = load(path)
        names = [event["name"] for event in document["traceEvents"] if "name" in event]
        steps = {int(name.split("#")[1]) for name in names if name.startswith("ProfilerStep#")}
        if steps:
            save(trim(document, min(steps), max(steps) + 1, path.name.removesuffix(".gz")), path)


def tail(log: Path) -> str:
    """Return the last lines of a log, joined."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-6:])[-900:]


HEADER = (
    f"{'run':28} {'unprofiled':>11} {'after':>9} {'profiled':>9} {'busy/step':>10} "
    f"{'busy rec.':>9} {'bare':>6} {'trace':>9}"
)


def summarise(run: Run, folder: Path) -> str:
    """Return one line of the table.

    ``busy rec.`` is the share of the recorded steps in which the GPU was busy; ``bare`` is the same busy time against
    the unprofiled step, which is how busy the GPU is when nobody looks.
    """
    document = json.loads((folder / "run.json").read_text())
    own = document["passes"][-1]
    before = own["schedule"]["unprofiled"]
    bare = own["unprofiled"]["step_ns"]
    profiled = own["profiled"]["step_ns"]
    mean_bare, mean_after, mean_profiled = mean(bare[:before]), mean(bare[before:]), mean(profiled)
    recording = next((entry["file"] for entry in document["recordings"]), None)
    busy = window = None
    size = "none"
    if recording is not None:
        path = folder / recording
        size = f"{path.stat().st_size / 1e6:.2f} MB"
        busy, window = busy_nsys(path) if path.suffix == ".sqlite" else busy_kineto(path)
        if path.name.endswith(".gz") and path.stat().st_size > TRACE_LIMIT_BYTES:
            size += "!"
    steps = max(len(profiled), 1)
    per_step = None if busy is None else busy / steps
    share = f"{100 * busy / window:.1f} %" if busy is not None and window else "n/a"
    reference = mean_bare or mean_after
    true_share = f"{100 * per_step / reference:.1f} %" if per_step is not None and reference else "n/a"
    return (
        f"{run.name:28} {ms(mean_bare):>11} {ms(mean_after):>9} {ms(mean_profiled):>9} {ms(per_step):>10} "
        f"{share:>9} {true_share:>6} {size:>9}"
    )


def incidents(folder: Path) -> str:
    """Return what the allocator's snapshot counts, where the run left one."""
    path = folder / "memory_snapshot.pickle"
    if not path.is_file():
        return ""
    snapshot = pickle.loads(path.read_bytes())  # written by the recorder a moment ago
    counters = snapshot["device_counters"][0] if snapshot["device_counters"] else {}
    actions = Counter(entry["action"] for trace in snapshot["device_traces"] for entry in trace)
    size = path.stat().st_size / 1e6
    return f"  snapshot {size:.1f} MB, {counters}, in the history {dict(actions)}"


def mean(values: list[int]) -> float | None:
    """Return the mean, or None of nothing."""
    return sum(values) / len(values) if values else None


def ms(value: float | None) -> str:
    """Write nanoseconds as milliseconds."""
    return "n/a" if value is None else f"{value / 1e6:.1f} ms"


def union(intervals: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Return the length of the union of intervals within ``[start, end)``."""
    total, reached = 0.0, start
    for left, right in sorted(intervals):
        left, right = max(left, reached), min(right, end)
        if right > left:
            total += right - left
            reached = right
    return total


def busy_kineto(path: Path) -> tuple[float | None, float | None]:
    """Return the GPU's busy time within the recorded steps and their length, in ns."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [event for event in events if event.get("ph") == "X" and event["name"].startswith("ProfilerStep#")]
    steps = [event for event in steps if event.get("cat") == "user_annotation"]
    work = [
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and event.get("ph") == "X"
    ]
    if not steps or not work:
        return None, None
    start = min(event["ts"] for event in steps)
    end = max(event["ts"] + event["dur"] for event in steps)
    return union(work, start, end) * 1e3, (end - start) * 1e3


def busy_nsys(path: Path) -> tuple[float | None, float | None]:
    """Return the GPU's busy time within the ``step`` ranges of an export and their length, in ns."""
    with closing(sqlite3.connect(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        work: list[tuple[float, float]] = []
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
                work += database.execute(f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table}").fetchall()
        if "NVTX_EVENTS" not in tables or not work:
            return None, None
        found: Any = database.execute(
            "SELECT min(start), max(end) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id "
            "WHERE coalesce(text, value) = 'step' AND end IS NOT NULL"
        ).fetchone()
    start, end = found
    return (None, None) if start is None else (union(work, start, end), end - start)


class Packer:
    """Packs run folders into tar files of at most ``TAR_BYTES``; each is complete after every run.

    Args:
        out: Folder of the tar files.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.number = len(list(out.glob("runs-*.tar")))

    def add(self, folder: Path) -> None:
        """Add what is kept of a run folder; exports are compressed, reports stay behind."""
        members = []
        document = folder / "run.json"
        if (folder / "nsys.sqlite").exists():
            document.write_text(document.read_text().replace('"nsys.sqlite"', '"nsys.sqlite.gz"'))
        for file in sorted(folder.iterdir()):
            if file.suffix == ".sqlite":
                packed = file.with_name(file.name + ".gz")
                with file.open("rb") as source, gzip.open(packed, "wb", 9) as target:
                    shutil.copyfileobj(source, target)
                members.append(packed)
            elif file.suffix == ".pickle":
                packed = file.with_name(file.name + ".gz")
                packed.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
                members.append(packed)
            elif file.suffix in KEPT_SUFFIXES:
                members.append(file)
        size = sum(member.stat().st_size + 1024 for member in members)
        target_tar = self.out / f"runs-{self.number}.tar"
        if target_tar.exists() and target_tar.stat().st_size + size > TAR_BYTES:
            self.number += 1
            target_tar = self.out / f"runs-{self.number}.tar"
        with tarfile.open(target_tar, "a") as archive:
            for member in dict.fromkeys(members):
                archive.add(member, arcname=f"{folder.name}/{member.name}", filter=anonymous)


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave owner names out of a tar entry."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    sys.exit(main())
