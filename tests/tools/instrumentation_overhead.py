"""Measure what the recorder costs while no profiler runs: the same training, epoch by epoch with and without it.

    python tests/tools/instrumentation_overhead.py [--epochs 20] [--batches 10] [--batch 4] [--imgsz 160] [--workers 0]

One process trains; every other epoch is instrumented (ranges, timers, and on a GPU events at every phase border), the
epochs between are bare. Each instrumented epoch is compared with the mean of its two neighbours, so that drift
cancels. Prints the median of the paired differences with its 95 % interval (distribution-free, from order statistics):
of the epoch's median step, of wall time and of the process's processor time; the last is steadier on a machine that is
shared. The direct cost of a step's timers, measured apart from any training, says what to expect.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from traceanalyzer.recording.options import YoloOptions  # noqa: E402
from traceanalyzer.recording.recorder import Recorder, RecordingComplete  # noqa: E402
from traceanalyzer.recording.schedule import Schedule  # noqa: E402
from traceanalyzer.recording.yolo import _make_trainer, _workplace  # noqa: E402
from traceanalyzer.recording.yolo_hooks import attach  # noqa: E402


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what the recorder costs while no profiler runs.")
    for name, default in (("epochs", 20), ("batches", 10), ("batch", 4), ("imgsz", 160), ("workers", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="yolo11n.yaml")
    return parser.parse_args()


def _clocks() -> tuple[int, int]:
    return time.perf_counter_ns(), time.process_time_ns()


def paired(times: list[float]) -> list[float]:
    """Return how much longer, in percent, each odd entry is than the mean of its neighbours."""
    return [
        100 * (times[number] / statistics.mean((times[number - 1], times[number + 1])) - 1)
        for number in range(1, len(times) - 1, 2)
    ]


def median_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return the narrowest pair of order statistics that hold the median with at least this confidence."""
    ordered, count = sorted(values), len(values)
    outside = 0.0
    rank = 0  # values left out at either end
    while rank < count // 2:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - confidence:
            break
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[count - 1 - first]


class Alternation:
    """Instruments every other epoch and times all of them.

    Args:
        folder: Where run folders of the instrumented epochs go.
        epochs: Number of epochs to time.
        batches: Batches of an epoch.
    """

    def __init__(self, folder: Path, epochs: int, batches: int) -> None:
        self.folder = folder
        self.epochs = epochs
        self.schedule = Schedule(warm_up=0, unprofiled=batches + 1, recorded=0)
        self.recorder: Recorder | None = None
        self.times_ns: list[tuple[int, int]] = []
        self.start: tuple[int, int] | None = None
        self.first_done = False
        self.step_ns: list[float] = []
        self._ends: list[int] = []

    def step_end(self, trainer: Any) -> None:
        """Note when a step ended."""
        self._ends.append(time.perf_counter_ns())

    def begin(self, trainer: Any) -> None:
        """Start an epoch, instrumented when its number is odd."""
        import torch

        if len(self.times_ns) % 2 == 1 and self.first_done:
            self.recorder = Recorder(
                self.folder / f"epoch{len(self.times_ns)}", schedule=self.schedule, profiler="none", sample_gpu=False
            )
            self.recorder.__enter__()
            attach(trainer, self.recorder)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def first_batch(self, trainer: Any) -> None:
        """Start the clock at the first batch, after the loader has been asked."""
        if self.start is None:
            self.start = _clocks()

    def end(self, trainer: Any) -> None:
        """Stop the clock and detach."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        wall, processor = _clocks()
        assert self.start is not None
        steps = [after - before for before, after in pairwise(self._ends)]
        self._ends = []
        spent, self.start = (wall - self.start[0], processor - self.start[1]), None
        if self.recorder is not None:
            self.recorder.finish()
            self.recorder = None
        if self.first_done:
            self.times_ns.append(spent)
            self.step_ns.append(statistics.median(steps))
        self.first_done = True
        if len(self.times_ns) == self.epochs:
            raise RecordingComplete


def direct_cost_ns(folder: Path, steps: int = 2000) -> float:
    """Return what the timers of one step cost, phases nested as the trainer's are."""
    phases = ("data", "h2d", "forward", "backward", "optimizer", "log")
    schedule = Schedule(warm_up=0, unprofiled=steps + 1, recorded=0)
    recorder = Recorder(folder, schedule=schedule, profiler="none", sample_gpu=False)
    with recorder:
        recorder.begin_step()
        recorder.end_step()
        begin = time.perf_counter_ns()
        for _ in range(steps):
            recorder.begin_step()
            for name in phases:
                recorder.push(name)
                inner = {"forward": "loss", "optimizer": "ema"}.get(name)
                if inner:
                    recorder.push(inner)
                    recorder.pop()
                recorder.pop()
            recorder.end_step()
        spent = time.perf_counter_ns() - begin
    return spent / steps


def main() -> int:
    """Run the measurement and print it."""
    options = parse()
    yolo = YoloOptions(
        model=options.model,
        batch=options.batch,
        imgsz=options.imgsz,
        workers=options.workers,
        batches_per_epoch=options.batches,
        set=(f"nbs={options.batch}",),
    )
    with tempfile.TemporaryDirectory() as folder, _workplace(yolo) as place:
        trainer = _make_trainer(yolo, [], place)
        alternation = Alternation(Path(folder), options.epochs, options.batches)
        trainer.add_callback("on_train_epoch_start", alternation.begin)
        trainer.add_callback("on_train_batch_start", alternation.first_batch)
        trainer.add_callback("on_train_batch_end", alternation.step_end)
        trainer.add_callback("on_train_epoch_end", alternation.end)
        try:
            trainer.train()
        except RecordingComplete:
            trainer.train_loader.close()
        direct_ns = direct_cost_ns(Path(folder) / "direct")
    bare = [wall for wall, _ in alternation.times_ns[::2]]
    step_ms = statistics.median(bare) / options.batches / 1e6
    sys.stdout.write(f"bare step {step_ms:.2f} ms, {options.epochs // 2} pairs of {options.batches} steps\n")
    sys.stdout.write(f"direct cost of the timers: {direct_ns / 1e3:.0f} us a step, {direct_ns / step_ms / 1e4:.2f} %\n")
    measured: tuple[tuple[str, list[float]], ...] = (
        ("median step", alternation.step_ns),
        ("wall time", [float(wall) for wall, _ in alternation.times_ns]),
        ("processor time", [float(processor) for _, processor in alternation.times_ns]),
    )
    for what, values in measured:
        shares = paired(values)
        low, high = median_interval(shares)
        sys.stdout.write(
            f"{what}: overhead median {statistics.median(shares):+.2f} % (95 % interval {low:+.2f} to {high:+.2f} %)\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
