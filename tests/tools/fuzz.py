"""Damage inputs by chance until one is answered wrongly.

    python -m tests.tools.fuzz --inputs 20000 --seed 1 --keep FOLDER --counts counts.json
    python -m tests.tools.fuzz --table tests/robustness/fuzzed > tests/robustness/FUZZED.md

Every input is made from its number (``tests/robustness/fuzz_ways.py`` says which number is of which kind and what it
goes through), so that a failure can be made again: ``--seed N --inputs 1``. What fails (another error than the tool's
own, a warning, a contradiction between numbers, parsers that differ, ten seconds of processor time without an answer,
more memory than four times the input and 300 MB) is kept in the folder under its number, with the traceback beside it.

The work is done by a worker, a process of its own that is replaced every few thousand inputs. One that dies or hangs
where no signal reaches costs the input it was at, which counts as failed, and no other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.robustness import fuzz_ways
from tests.robustness.fuzz_inputs import Made
from tests.robustness.measured import LARGEST_BASE_BYTES, LARGEST_FACTOR
from tests.shared_data import ROOT

LONGEST_SECONDS = 10
STUCK_SECONDS = 25
INPUTS_PER_WORKER = 20_000
INPUTS_PER_REPORT = 50
_STATUS = Path("/proc/self/status")
_MEMORY = Path("/dev/shm")  # where files cost no disk


class HangError(Exception):
    """An input took longer than any may."""


class MemoryUseError(AssertionError):
    """An input took more memory than its size allows."""


class Findings:
    """Counts what came of inputs.

    Attributes:
        answers: How many inputs of which kind and way met which answer.
        failed: Numbers of those that failed.
        done: How many there were.
        peak_bytes: Highest memory of a process while it answered.
        growth_bytes: Most memory that an input took above what the process had before.
        slowest_seconds: Most processor time that an input took.
    """

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.failed: list[int] = []
        self.done = 0
        self.peak_bytes = 0
        self.growth_bytes = 0
        self.slowest_seconds = 0.0

    def count(self, number: int, found: str) -> None:
        """Add the answer of an input."""
        way = fuzz_ways.way_of(number)
        self.answers["\t".join((way.name, way.through, found))] += 1
        self.done += 1
        if found == "failed":
            self.failed.append(number)

    def add(self, other: dict[str, Any]) -> None:
        """Add what another process found, as ``document`` gives it."""
        self.answers.update(other["answers"])
        self.failed += other["failed"]
        self.done += other["done"]
        for name in ("peak_bytes", "growth_bytes", "slowest_seconds"):
            setattr(self, name, max(getattr(self, name), other[name]))

    def document(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**vars(self), "answers": dict(sorted(self.answers.items()))}

    def by_answer(self) -> Counter[str]:
        """Count the answers of all kinds together."""
        total: Counter[str] = Counter()
        for name, count in self.answers.items():
            total[name.rsplit("\t", 1)[-1]] += count
        return total


def answer_all(
    numbers: Iterable[int], keep: Path | None, seconds: float | None = None
) -> Iterator[tuple[int, Findings]]:
    """Answer inputs in this process.

    Args:
        numbers: Which.
        keep: Folder for what fails.
        seconds: Stop early after so long.

    Yields:
        The number of each input as it begins, and what was found so far; at last -1 and the whole.
    """
    found = Findings()
    begun = time.monotonic()

    def hang(_: int, frame: FrameType | None) -> None:
        raise HangError(f"no answer after {LONGEST_SECONDS} s of processor time, at {frame}")

    before = signal.signal(signal.SIGPROF, hang)
    try:
        with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            for number in numbers:
                if seconds is not None and time.monotonic() - begun > seconds:
                    break
                yield number, found
                _answer_one(number, Path(folder, "made"), keep, found)
    finally:
        signal.signal(signal.SIGPROF, before)
    yield -1, found


def _answer_one(number: int, folder: Path, keep: Path | None, found: Findings) -> None:
    with fuzz_ways.made_in(folder, number) as made:
        resident = _reset_peak()
        cpu = time.process_time()
        # processor time: other work on the machine is no fault of the input
        signal.setitimer(signal.ITIMER_PROF, LONGEST_SECONDS)
        try:
            answer = fuzz_ways.answer(made, number)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _check_memory(made, resident, found)
        except Exception:  # whatever it is, it is the finding
            answer = "failed"
            _keep(keep, number, made)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        found.slowest_seconds = max(found.slowest_seconds, time.process_time() - cpu)
        found.count(number, answer)


def run(numbers: Iterable[int], seconds: float) -> Findings:
    """Answer inputs in this process, as many as the seconds allow; tracebacks go to standard error."""
    found = Findings()
    for _, found in answer_all(numbers, None, seconds):  # noqa: B007 - the last is the whole
        pass
    return found


def _memory(line: str) -> int:
    match = re.search(rf"{line}:\s+(\d+)", _STATUS.read_text())
    return int(match[1]) * 1024 if match else 0


def _reset_peak() -> int:
    """Let the highest memory of this process begin anew; returns what it has now."""
    if not _STATUS.exists():
        return 0
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _check_memory(made: Made, resident: int, found: Findings) -> None:
    if not _STATUS.exists():
        return
    peak = _memory("VmHWM")
    found.peak_bytes = max(found.peak_bytes, peak)
    found.growth_bytes = max(found.growth_bytes, peak - resident)
    # the process holds every reader and what thousands of inputs left, which is not this input's doing
    if peak - resident > LARGEST_FACTOR * made.size_bytes + LARGEST_BASE_BYTES:
        raise MemoryUseError(f"{peak - resident:,} bytes more for an input of {made.size_bytes:,}")


def _keep(folder: Path | None, number: int, made: Made) -> None:
    if folder is None:
        traceback.print_exc()
        return
    target = folder / str(number)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in made.names:
        if name.is_dir():
            shutil.copytree(name, target / name.name)
        else:
            shutil.copy(name, target / name.name)
    (target / "traceback.txt").write_text(traceback.format_exc())


def warm_up() -> None:
    """Compile what is compiled on first use: that time belongs to the installation, not to an input."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(200):
            with fuzz_ways.made_in(Path(folder, "made"), number) as made:
                try:
                    fuzz_ways.answer(made, number)
                except Exception:  # reported when its number comes
                    continue


def work(numbers: range, keep: Path | None, skip: frozenset[int], place: Path) -> None:
    """Be a worker: answer inputs and write what was found on standard output, a line now and then."""
    warm_up()
    told = Findings()
    at = os.open(place, os.O_RDWR | os.O_CREAT)
    for at_number, found in answer_all([each for each in numbers if each not in skip], keep):
        number = numbers.stop if at_number < 0 else at_number
        os.pwrite(at, f"{number:20d}".encode(), 0)
        if number == numbers.stop or (number - numbers.start) % INPUTS_PER_REPORT == 0:
            news = found.document()
            news["answers"] = dict(found.answers - told.answers)
            news["failed"], news["done"] = found.failed[len(told.failed) :], found.done - told.done
            sys.stdout.write(json.dumps({"next": number, "found": news}) + "\n")
            sys.stdout.flush()
            told = Findings()
            told.add(found.document())


def supervise(numbers: range, keep: Path, deadline: float | None, tell: Any) -> tuple[int, Findings]:
    """Have workers answer inputs.

    Args:
        numbers: Which.
        keep: Folder for what fails.
        deadline: Stop at this time (seconds since the epoch).
        tell: Called with the next number and the findings now and then.

    Returns:
        The number of the first input that was not answered, and what was found.
    """
    found = Findings()
    following = numbers.start
    skip: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "at")
        while following < numbers.stop and (deadline is None or time.time() < deadline):
            place.write_text(f"{following:20d}")
            last = min(following + INPUTS_PER_WORKER, numbers.stop)
            words = [str(each) for each in (following, last, keep, place, ",".join(map(str, skip)) or "-")]
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.tools.fuzz", "--worker", *words],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            guard = threading.Thread(target=_end_when_stuck, args=(worker, place, deadline), daemon=True)
            guard.start()
            for line in worker.stdout or ():
                news = json.loads(line)
                found.add(news["found"])
                following = news["next"]
                tell(following, found)
            worker.wait()
            if worker.returncode and (deadline is None or time.time() < deadline):
                number = int(place.read_text())
                skip.add(number)
                found.count(number, "failed")
                _tell_death(keep, number, worker.returncode)
    return following, found


def _end_when_stuck(worker: subprocess.Popen[str], place: Path, deadline: float | None) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    seen, since = "", 0.0
    while worker.poll() is None:
        try:
            parts = Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
            number = place.read_text()
        except FileNotFoundError:
            return
        used = (int(parts[11]) + int(parts[12])) / ticks
        if number != seen:
            seen, since = number, used
        # the first input waits for what is compiled on first use
        if used - since > (STUCK_SECONDS if used > 120 else 120) or (deadline is not None and time.time() > deadline):
            worker.kill()
        time.sleep(1)


def _tell_death(keep: Path, number: int, code: int) -> None:
    # only its number: whatever ended the worker may as well end this process
    target = keep / str(number)
    target.mkdir(parents=True, exist_ok=True)
    (target / "traceback.txt").write_text(f"the worker ended with {code}; see its standard error\n")


def table(folder: Path) -> str:
    """Return the page of how many inputs went through what, from the counts of several runs."""
    total = Findings()
    runs = []
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        total.add(document["found"])
        runs.append(document)
    rows: dict[tuple[str, str], Counter[str]] = {}
    for name, count in total.answers.items():
        kind, through, answer = name.split("\t")
        rows.setdefault((kind, through), Counter())[answer] += count
    order = [(way.name, way.through) for way in fuzz_ways.WAYS]
    lines = [
        f"{total.done:,} inputs; most processor time of one {total.slowest_seconds:.1f} s; most memory above what the "
        f"process had before {total.growth_bytes / 1e6:.0f} MB; highest memory of a process that had answered "
        f"thousands {total.peak_bytes / 1e6:.0f} MB.\n",
        "| input | went through | inputs | answers | refusals | failed |",
        "| --- | --- | --: | --- | --: | --: |",
    ]
    for key in sorted(rows, key=lambda key: order.index(key) if key in order else len(order)):
        answers = rows[key]
        given = ", ".join(f"{n:,} {a}" for a, n in sorted(answers.items()) if a not in ("refused", "failed"))
        lines.append(
            f"| {key[0]} | {key[1]} | {answers.total():,} | {given} | {answers['refused']:,} | {answers['failed']:,} |"
        )
    lines += ["", "| numbers | at commit | inputs | failed then |", "| --- | --- | --: | --- |"]
    for document in runs:
        first, last, done = document["first"], document["next"] - 1, document["found"]["done"]
        failed = ", ".join(map(str, document["found"]["failed"])) or "–"
        lines.append(f"| {first:,} to {last:,} | {document['commit']} | {done:,} | {failed} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="number of the first input")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for the inputs that fail")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--counts", type=Path, help="file for the counts, written anew now and then")
    parser.add_argument("--commit", default="", help="what was tested, for the counts")
    parser.add_argument("--table", type=Path, help="write the page for a folder of counts instead")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        sys.stdout.write(table(options.table))
        return 0
    if options.worker:
        first, last, keep, place, skip = options.worker
        left_out = frozenset(int(each) for each in skip.split(",") if each != "-")
        work(range(int(first), int(last)), Path(keep), left_out, Path(place))
        return 0
    begun = time.time()
    shown = [begun]

    def tell(following: int, found: Findings) -> None:
        document = {"first": options.seed, "next": following, "commit": options.commit, "found": found.document()}
        if options.counts:
            options.counts.parent.mkdir(parents=True, exist_ok=True)
            aside = options.counts.with_suffix(".new")
            aside.write_text(json.dumps(document, indent=1) + "\n")
            aside.rename(options.counts)
        if time.time() - shown[0] > 30:
            shown[0] = time.time()
            sys.stdout.write(f"{found.done} inputs in {time.time() - begun:.0f} s, failed: {found.failed[:50]}\n")
            sys.stdout.flush()

    deadline = begun + 60 * options.minutes if options.minutes else None
    numbers = range(options.seed, options.seed + options.inputs)
    following, found = supervise(numbers, options.keep, deadline, tell)
    tell(following, found)
    lines = [f"{found.done} inputs in {time.time() - begun:.0f} s: {dict(found.by_answer())}"]
    if found.failed:
        lines.append(f"failed: {found.failed[:50]}")
    sys.stdout.write("\n".join(lines) + "\n")
    return bool(found.failed)


if __name__ == "__main__":
    sys.exit(main())
