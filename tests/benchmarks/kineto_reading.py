"""What a Kineto recording costs from command to JSON, beside loading it with ``json`` and with a peer.

python -m tests.benchmarks.kineto_reading RECORDING [--turns 3] [--peer PYTHON]

Every contender is a process of its own, the contenders take turns, and the table has medians: seconds on the clock and
of processor time, the largest memory, and how much longer than ``analyze --json`` it took. ``PYTHON`` is an interpreter
with traceinsight (HolisticTraceAnalysis) installed. A first, uncounted run compiles what is not compiled yet.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

JSON_TO_COLUMNS = """
import json, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    events = json.load(file)["traceEvents"]
codes = {}
def coded(key):
    return np.fromiter((codes.setdefault(event.get(key), len(codes)) for event in events), np.int32, len(events))
columns = {key: coded(key) for key in ("ph", "cat", "name", "pid", "tid")}
for key in ("ts", "dur"):
    columns[key] = np.fromiter((event.get(key, -1) for event in events), np.float64, len(events))
for key in ("correlation", "stream", "device", "External id", "Python id", "Python parent id", "bytes"):
    values = (event.get("args", {}).get(key) for event in events)
    columns[key] = np.fromiter((value if type(value) is int else -1 for value in values), np.int64, len(events))
"""
JSON_TO_PANDAS = """
import json, sys
import pandas as pd
with open(sys.argv[1], "rb") as file:
    frame = pd.DataFrame(json.load(file)["traceEvents"])
args = frame.pop("args").map(lambda value: value if isinstance(value, dict) else {})
frame = pd.concat([frame, pd.DataFrame(args.tolist())], axis=1)
"""
PEER = """
import sys
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_files={0: sys.argv[1]})
"""


@dataclass
class Contender:
    """Something to run.

    Attributes:
        name: What the table calls it.
        command: The command line.
        seconds: On the clock, one per turn.
        processor_seconds: User and system time, one per turn.
        peak_bytes: Largest memory of any turn.
    """

    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    def run(self, *, counts: bool = True) -> None:
        """Run once; what a warming run took does not count."""
        begun = time.perf_counter()
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{self.name} failed: {' '.join(self.command)}")
        if counts:
            self.seconds.append(time.perf_counter() - begun)
            self.processor_seconds.append(usage.ru_utime + usage.ru_stime)
            self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss * 1024)


def contenders(path: Path, folder: Path, peer: str | None) -> list[Contender]:
    """Return everything that is measured, what the others are compared with first."""
    analyze = [sys.executable, "-m", "traceanalyzer", "analyze"]
    output = ["--json", str(folder / "analysis.json")]
    made = [Contender("analyze --json", [*analyze, str(path), *output])]
    packed = folder / f"{path.name}.gz"
    if path.suffix != ".gz":
        with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 8 << 20)
        made.append(Contender("analyze --json, the same gzipped", [*analyze, str(packed), *output]))
        made.append(Contender("json.load → NumPy columns", [sys.executable, "-c", JSON_TO_COLUMNS, str(path)]))
        made.append(Contender("json.load → pandas", [sys.executable, "-c", JSON_TO_PANDAS, str(path)]))
    made.append(Contender("analyze --json --cache, again", [*analyze, str(path), "--cache", *output]))
    if peer is not None:
        made.append(Contender("traceinsight, loading alone", [peer, "-c", PEER, str(path)]))
    return made


def table(measured: list[Contender], size: int) -> str:
    """Return the results as a Markdown table."""
    lines = ["| what | seconds | × | processor seconds | × | peak memory |", "|---|---|---|---|---|---|"]
    base, base_busy = (statistics.median(each) for each in (measured[0].seconds, measured[0].processor_seconds))
    for each in measured:
        elapsed, busy = statistics.median(each.seconds), statistics.median(each.processor_seconds)
        lines.append(
            f"| {each.name} | {elapsed:.2f} | {elapsed / base:.1f} | {busy:.2f} | {busy / base_busy:.1f} | "
            f"{each.peak_bytes / 1e6:.0f} MB ({each.peak_bytes / size:.2f} × file) |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peer", help="interpreter with traceinsight")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["TRACEANALYZER_CACHE"] = str(Path(name, "cache"))
        running = contenders(options.recording, Path(name), options.peer)
        for each in running:
            if "analyze" in each.name:
                each.run(counts=False)
        for _ in range(options.turns):
            for each in running:
                each.run()
    sys.stdout.write(table(running, options.recording.stat().st_size) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
