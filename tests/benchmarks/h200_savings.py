"""Predicted against true savings, on a GPU: for each cause, runs with and without it side by side.

    tests/benchmarks/h200_savings.sh OUT …, or where all is installed
    python tests/benchmarks/h200_savings.py measure --out OUT [--budget 560] [--only NAME…] [--rounds 3] [--tiny]
    python -m tests.benchmarks.h200_savings table FOLDER…

``measure`` is resumable: finished runs are kept in the work folder (and in those named by --done-dir), and a run that
might not end within the budget is not started. For each cause it makes, in random order within each round,

- *truth*: unprofiled runs with the fault and, before and after it, without it, all of a round in one process, since
  the host gets slower and faster by a quarter within minutes;
- *prediction*: one recording of the fault, as ``record yolo --trials`` makes it, in a process of its own.

OUT holds ``runs.jsonl`` (a line per truth run) and the recordings in tar files. ``table`` analyses them and prints, per
cause, the true fall of the mean step (against the runs beside it, by round, 95 % interval), what the trials say, and
what replay says. An error is the difference of two shares, the predicted saving of the step in the recording and the
true one of the step in the truth runs: between processes the same step is up to a quarter longer or shorter. Which runs
were used for choosing numbers of the analysis and which for scoring it, the README of the
results says.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tools.h200_record import Packer, drop_arrows, say, tail  # noqa: E402

IMAGES = 1536
BASE = ("--set=nbs=16", "--set=optimizer=SGD", f"--images={IMAGES}")
LARGE = ("--set=nbs=32", "--set=optimizer=SGD", f"--images={IMAGES}")
LARGE_FIXED = (*LARGE, "--model=yolo11l.yaml", "--batch=32", "--workers=12")
TRUTH_STEPS = ("--warm-up=10", "--unprofiled=24")
PREDICTION_STEPS = ("--steps=3", "--warm-up=10", "--unprofiled=8", "--settle=6", "--trial-seconds=10")
# the recorder's own cost estimate of one truth run and one prediction, used to leave a machine in time
TRUTH_S, PREDICTION_S, START_S = 14, 60, 15


@dataclass(frozen=True)
class Cause:
    """One cause and what removes it.

    Attributes:
        name: The fault.
        code: The rule that should name it.
        trials: The trials that remove it, best first; empty where there is none.
        words: Options of the faulty run beside ``--fault``.
        prediction: Further options of the recording.
    """

    name: str
    code: str
    trials: tuple[str, ...] = ()
    words: tuple[str, ...] = BASE
    prediction: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the run with the fault."""
        return (f"--fault={self.name}", *self.words)


@dataclass(frozen=True)
class Group:
    """Causes that share the run without them.

    Attributes:
        name: Name.
        fixed: Options of the run without a fault.
        causes: The causes.
        fresh: Whether each run needs a process of its own, because one leaves behind what the next would profit from.
    """

    name: str
    fixed: tuple[str, ...]
    causes: tuple[Cause, ...]
    fresh: bool = False


LOADER = ("--settle=12", "--unprofiled=12")
GROUPS = (
    Group(
        "common",
        BASE,
        (
            Cause("single-process-loader", "TA101", ("reused_batch",)),
            Cause("slow-storage", "TA102", ("reused_batch",), prediction=LOADER),
            Cause("few-workers", "TA102", ("reused_batch",), prediction=LOADER),
            Cause("empty-cache", "TA402", ("empty_cache_off", "callbacks_off")),
            Cause("pageable", "TA301", ("pinned",)),
            Cause("tiny-copies", "TA304"),
            Cause("item-per-step", "TA501", ("item_removed", "callbacks_off")),
            Cause("device-sync", "TA502", ("device_sync_off",)),
            Cause("gc-storm", "TA205", ("gc_frozen", "callbacks_off")),
            Cause("validate-every-step", "TA801", ("callbacks_off",)),
            Cause("checkpoint-every-step", "TA802", ("callbacks_off",)),
            Cause("log-every-step", "TA803", ("callbacks_off", "item_removed")),
            Cause("print-tensor", "TA501", ("print_removed", "callbacks_off")),
            Cause("blocking", "TA302", ("pinned",)),
        ),
    ),
    Group("fp32", (*BASE, "--no-amp"), (Cause("anomaly-mode", "TA207", ("anomaly_off",)),)),
    Group(
        "adamw",
        ("--set=nbs=16", "--set=optimizer=AdamW", f"--images={IMAGES}"),
        (
            Cause(
                "unfused-optimizer", "TA604", ("fused_optimizer",), ("--set=nbs=16", f"--images={IMAGES}"),
            ),
        ),
    ),
    Group(
        "large",
        LARGE_FIXED,
        (
            Cause("amp-off", "TA601", ("amp_fp16",), LARGE),
            Cause("channels-last-off", "TA603", ("channels_last",), LARGE),
        ),
    ),
    Group("shapes", BASE, (Cause("multi-scale", "TA202", ("fixed_shapes",)),), fresh=True),
)  # fmt: skip
# nothing wrong, and every trial there is: what AMP, batch size, graphs and the rest are worth on a healthy loop
ALL_TRIALS = Cause("good", "TA903", prediction=("--trial-seconds=40",))
TINY = (
    "--imgsz=64", "--set=imgsz=64", "--set=batch=2", "--set=workers=2", "--set=model=yolo11n.yaml", "--images=48",
    "--set=nbs=2",
)  # fmt: skip
TINY_TRUTH = ("--warm-up=1", "--unprofiled=3")
TINY_PREDICTION = ("--warm-up=1", "--unprofiled=2", "--settle=1", "--steps=1", "--trial-seconds=0.1")


# -- measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TruthRun:
    """One unprofiled run: of a cause, or of its group's ``fixed``."""

    group: Group
    name: str
    number: int

    @property
    def key(self) -> str:
        """Name of the run in the results."""
        return f"{self.group.name}/{self.number}/{self.name}"

    @property
    def words(self) -> tuple[str, ...]:
        """Options of ``record yolo``."""
        for cause in self.group.causes:
            if cause.name == self.name:
                return cause.options
        return self.group.fixed


def truth_runs(only: list[str], rounds: int) -> Iterator[list[TruthRun]]:
    """Yield the runs of one process each: a round, in which each cause in random order stands between runs without."""
    for number in range(rounds):
        together: list[TruthRun] = []
        for group in random.Random(f"groups/{number}").sample(GROUPS, len(GROUPS)):
            causes = [cause.name for cause in group.causes if not only or cause.name in only]
            if not causes:
                continue
            random.Random(f"{group.name}/{number}").shuffle(causes)
            runs = [TruthRun(group, "fixed 0", number)]
            for place, name in enumerate(causes, 1):
                runs += [TruthRun(group, name, number), TruthRun(group, f"fixed {place}", number)]
            if group.fresh:
                yield from ([run] for run in runs)
            else:
                together += runs
        if together:
            yield together


class Results:
    """What has been measured, kept in the work folder and copied to OUT after every run.

    Args:
        work: Work folder.
        out: Folder that comes back.
        done: Folders of earlier results.
    """

    def __init__(self, work: Path, out: Path, done: list[Path]) -> None:
        self.file = work / "runs.jsonl"
        self.copy = out / "runs.jsonl"
        lines: dict[str, str] = {}
        for file in (*(folder / "runs.jsonl" for folder in done), self.file):
            if file.is_file():
                lines.update({json.loads(line)["key"]: line for line in file.read_text().splitlines() if line})
        self.file.write_text("".join(f"{line}\n" for line in lines.values()))
        self.refresh()

    def refresh(self) -> None:
        """Copy to OUT what the work folder holds."""
        shutil.copy(self.file, self.copy)

    @property
    def keys(self) -> set[str]:
        """Names of the runs there are."""
        return {json.loads(line)["key"] for line in self.file.read_text().splitlines()}


def measure(options: argparse.Namespace) -> int:
    """Make the runs that are missing; 0 when all are there."""
    end = time.monotonic() + options.budget
    for folder in (options.work, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    results = Results(options.work, options.out, options.done_dir)
    packer = Packer(options.out)
    missing: list[str] = []
    rounds = list(truth_runs(options.only, options.rounds))
    # one round of truth first, then the recordings, then the other rounds: whatever comes back can be used
    first = len(list(truth_runs(options.only, 1)))
    for runs in rounds[:first]:
        missing += measure_truth(runs, results, options, end)
    for group in GROUPS:
        for cause in group.causes:
            if not options.only or cause.name in options.only:
                missing += predict(cause, packer, options, end)
    for runs in rounds[first:]:
        missing += measure_truth(runs, results, options, end)
    if not options.only or ALL_TRIALS.name in options.only:
        missing += predict(ALL_TRIALS, packer, options, end)
    say("missing: " + (", ".join(missing) if missing else "nothing"))
    return 1 if missing else 0


def measure_truth(runs: list[TruthRun], results: Results, options: argparse.Namespace, end: float) -> list[str]:
    """Measure runs in one process; return the names of those that are still missing."""
    todo = [run.key for run in runs if run.key not in results.keys]
    if not todo or time.monotonic() + START_S + TRUTH_S > end:
        return todo
    command = [sys.executable, str(Path(__file__).resolve()), "child", f"--work={options.work}", f"--end={end}"]
    command += ["--tiny"] if options.tiny else []
    log = options.work / "truth.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, *todo], stdout=file, stderr=file, env=environment(), start_new_session=True
        )
        wait(process, end)
    results.refresh()
    left = [key for key in todo if key not in results.keys]
    say(
        f"{todo[0].rsplit('/', 1)[0]}: {len(todo) - len(left)} of {len(todo)} runs "
        f"[{end - time.monotonic():.0f} s left]"
    )
    if left:
        say(f"  {tail(log)}")
    return left


def environment() -> dict[str, str]:
    """Return the environment of a process that records."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")}


def wait(process: subprocess.Popen[bytes], end: float) -> int | None:
    """Wait for a process until the budget is spent; return its exit code, None where it had to be stopped."""
    try:
        return process.wait(timeout=max(end - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def child(options: argparse.Namespace) -> int:
    """Make truth runs one after the other in this process."""
    known = {run.key: run for runs in truth_runs([], 100) for run in runs}
    process = f"{os.getpid()}-{time.time_ns()}"
    for key in options.keys:
        if time.monotonic() + TRUTH_S > options.end:
            return 1
        begin = time.monotonic()
        found = run_bare(known[key].words, options)
        line = {"key": key, "process": process, "seconds": round(time.monotonic() - begin, 1), **found}
        with (options.work / "runs.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    return 0


def run_bare(words: tuple[str, ...], options: argparse.Namespace) -> dict[str, Any]:
    """Train unprofiled and return the step times."""
    from traceanalyzer.recording.command import build_parser, from_values
    from traceanalyzer.recording.options import YoloOptions
    from traceanalyzer.recording.yolo import record_yolo

    words = (*words, *TRUTH_STEPS, *((*TINY, *TINY_TRUTH) if options.tiny else ()))
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["yolo", *words, "--profiler=none", "--no-trials", f"--out={folder}/RUN"]
        arguments += [f"--dataset-dir={options.work / 'data'}"]
        record_yolo(from_values(YoloOptions, vars(build_parser().parse_args(arguments))), say=lambda _: None)
        document = json.loads((Path(folder) / "RUN" / "run.json").read_text())
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    times = document["passes"][0]["unprofiled"]
    return {
        "state": document["state"],
        "mean_step_ns": sum(times["block_ns"]) // sum(times["block_steps"]),
        "steps": sum(times["block_steps"]),
        "step_ns": times["step_ns"],
        "loader": document["passes"][0].get("loader", {}).get("unprofiled", {}).get("worker_ns"),
        "settings": {
            name: document["configuration"].get(name)
            for name in ("gpu", "model", "batch", "imgsz", "workers", "amp", "optimizer", "pin_memory", "channels_last")
        },
    }


def predict(cause: Cause, packer: Packer, options: argparse.Namespace, end: float) -> list[str]:
    """Record one cause with trials; return its name where that is still missing."""
    folder = options.work / cause.name
    if any((done / cause.name / "run.json").is_file() for done in options.done_dir):
        return []
    if (folder / ".packed").exists():
        return []
    name = f"recording of {cause.name}"
    if time.monotonic() + PREDICTION_S > end:
        return [name]
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.monotonic()
    own = () if cause is ALL_TRIALS else (f"--fault={cause.name}",)
    words = [*own, *cause.words, *PREDICTION_STEPS, *cause.prediction, *(f"--trial={trial}" for trial in cause.trials)]
    if not cause.trials and cause is not ALL_TRIALS:
        words += ["--trial=reused_batch"]
    words += [*TINY, *TINY_PREDICTION] if options.tiny else []
    command = [sys.executable, "-m", "traceanalyzer.recording", "yolo", *words]
    command += [f"--dataset-dir={options.work / 'data'}", f"--out={folder}"]
    log = options.work / f"{cause.name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
        code = wait(process, end)
    if code != 0:
        say(f"{name}: exit code {code}; {tail(log)}")
        return [name]
    drop_arrows(folder)
    packer.add(folder)
    (folder / ".packed").touch()
    states = [trial["status"] for trial in json.loads((folder / "run.json").read_text())["trials"]]
    say(f"{name}: trials {states.count('measured')} measured, {states.count('failed')} failed, "
        f"{time.monotonic() - begin:.0f} s [{end - time.monotonic():.0f} s left]")  # fmt: skip
    return []


# -- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """An estimate in ns with its interval."""

    low: float
    likely: float
    high: float

    def meets(self, other: Interval) -> bool:
        """Whether two intervals share a value."""
        return self.low <= other.high and other.low <= self.high

    def scaled(self, factor: float) -> Interval:
        """The same in another unit."""
        return Interval(self.low * factor, self.likely * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{self.likely / 1e6:.1f} ({self.low / 1e6:.1f} … {self.high / 1e6:.1f})"


T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}


def true_saving(runs: dict[str, dict[str, Any]], group: Group, cause: Cause) -> tuple[Interval, float] | None:
    """Return the fall of the mean step when the cause is gone, paired by round, and the step with the cause; in ns."""
    differences, steps = [], []
    for number in range(100):
        faulty = runs.get(f"{group.name}/{number}/{cause.name}")
        means = [run["mean_step_ns"] for run in beside(runs, group, number, cause)]
        if faulty is not None and means:
            differences.append(faulty["mean_step_ns"] - statistics.mean(means))
            steps.append(faulty["mean_step_ns"])
    if not differences:
        return None
    mean = statistics.mean(differences)
    if len(differences) < 2:
        return Interval(float("-inf"), mean, float("inf")), steps[0]
    half = T_95[len(differences) - 1] * statistics.stdev(differences) / len(differences) ** 0.5
    return Interval(mean - half, mean, mean + half), statistics.mean(steps)


def beside(runs: dict[str, dict[str, Any]], group: Group, number: int, cause: Cause) -> list[dict[str, Any]]:
    """Return the runs without a fault just before and after a cause's run in its process.

    Results of rounds that had only two such runs (``fixed`` and ``fixed again``) are compared with both.
    """
    start = f"{group.name}/{number}/"
    own = [(key.removeprefix(start), run) for key, run in runs.items() if key.startswith(start)]
    place = next((at for at, (name, _) in enumerate(own) if name == cause.name), None)
    if place is None:
        return []
    if any(name == "fixed" for name, _ in own):
        return [run for name, run in own if name in ("fixed", "fixed again")]
    process = own[place][1]["process"]
    before, after = reversed(own[:place]), own[place + 1 :]
    if group.fresh:
        found = [next((run for name, run in part if name.startswith("fixed ")), None) for part in (before, after)]
    else:
        found = [
            next((run for name, run in part if name.startswith("fixed ") and run["process"] == process), None)
            for part in (before, after)
        ]
    return [run for run in found if run is not None]


def tried_saving(folder: Path, cause: Cause) -> tuple[str, Interval, float] | None:
    """Return what the first of the cause's trials that was measured says, and the step it compared with, ns."""
    trials = {trial["name"]: trial for trial in json.loads((folder / "run.json").read_text())["trials"]}
    for name in cause.trials:
        trial = trials.get(name)
        if trial is not None and trial["status"] == "measured":
            found = trial["difference_ns"]
            return name, Interval(found["low"], found["likely"], found["high"]), trial["baseline_step_ns"]
    return None


def predicted_saving(folder: Path, cause: Cause) -> tuple[str, Interval, float] | None:
    """Return what the finding promises without trials, how it knows, and the unprofiled step, ns; None where silent."""
    import traceanalyzer

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "RUN"
        shutil.copytree(folder, copy)
        document = json.loads((copy / "run.json").read_text())
        document["trials"] = []
        (copy / "run.json").write_text(json.dumps(document))
        findings = traceanalyzer.analyze(copy).findings
    for finding in findings:
        saving = finding.saving_per_step_ns
        if finding.code == cause.code and saving.likely is not None:
            low = saving.likely if saving.low is None else saving.low
            high = float("inf") if saving.high is None else saving.high
            timed = document["passes"][0]["unprofiled"]
            step = sum(timed["block_ns"]) / sum(timed["block_steps"])
            return str(saving.basis), Interval(low, saving.likely, high), step
    return None


def table(options: argparse.Namespace) -> int:
    """Print the comparison."""
    runs: dict[str, dict[str, Any]] = {}
    for folder in options.folders:
        for file in sorted(folder.rglob("runs.jsonl")):
            runs.update({run["key"]: run for run in map(json.loads, file.read_text().splitlines())})
    rows = ["| cause | step with it, ms | true saving, ms | trial | says, ms | error | analysis | says, ms | error |",
            "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    errors: dict[str, list[float]] = {"trials": [], "replay": [], "bound": []}
    covered: dict[str, list[bool]] = {"trials": [], "replay": [], "bound": []}
    for group in GROUPS:
        for cause in group.causes:
            truth = true_saving(runs, group, cause)
            folder = next((place / cause.name for place in options.folders if (place / cause.name).is_dir()), None)
            if truth is None or folder is None:
                continue
            saved, step = truth
            tried, predicted = tried_saving(folder, cause), predicted_saving(folder, cause)
            cells = [cause.name, f"{step / 1e6:.1f}", str(saved), tried[0] if tried else "none"]
            for kind, found, own in (
                ("trials", *tried[1:]) if tried else ("trials", None, 1),
                predicted or ("", None, 1),
            ):
                if kind != "trials":
                    cells.append(kind)
                if found is None:
                    cells += ["", ""]
                    continue
                error = found.likely / own - saved.likely / step
                errors[kind].append(abs(error))
                covered[kind].append(found.scaled(1 / own).meets(saved.scaled(1 / step)))
                cells += [f"{found} of {own / 1e6:.1f}", f"{error:+.1%}"]
            rows.append("| " + " | ".join(cells) + " |")
    for kind, found_errors in errors.items():
        if found_errors:
            ordered = sorted(found_errors)
            ninth = ordered[min(round(0.9 * (len(ordered) - 1)), len(ordered) - 1)]
            rows.append(
                f"\n{kind}: {len(ordered)} causes, share of the step missed: median {statistics.median(ordered):.1%}, "
                f"90th percentile {ninth:.1%}; intervals meet the true one in {sum(covered[kind])}"
            )
    say("\n".join(rows))
    return 0


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description="Predicted against true savings on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--done-dir", type=Path, action="append", default=[], help="folders of earlier results")
    measuring.add_argument("--budget", type=float, default=560.0, help="seconds in all")
    measuring.add_argument("--only", nargs="*", default=[], help="names of causes")
    measuring.add_argument("--rounds", type=int, default=3)
    making = commands.add_parser("child")
    making.add_argument("--end", type=float, required=True)
    making.add_argument("keys", nargs="+")
    for command in (measuring, making):
        command.add_argument("--work", type=Path, default=Path("/tmp/traceanalyzer-savings"))
        command.add_argument("--tiny", action="store_true", help="tiny settings, to try this script without a GPU")
    printing = commands.add_parser("table")
    printing.add_argument("folders", type=Path, nargs="+", help="folders with runs.jsonl and unpacked recordings")
    options = parser.parse_args()
    return {"measure": measure, "child": child, "table": table}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
