"""Measure what the recorder costs while no profiler runs: the same training, epoch by epoch with and without it.

    python tests/tools/instrumentation_overhead.py [--epochs 20] [--batches 10] [--batch 4] [--imgsz 160] [--workers 0]

One process trains; every other epoch is instrumented (ranges, timers, and on a GPU events at every phase border), the
epochs between are bare. Each instrumented epoch is compared with the mean of its two neighbours, so that drift
cancels. Prints the median of the paired differences and how they spread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
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
        self.times_ns: list[int] = []
        self.start_ns = 0
        self.first_done = False

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
        if not self.start_ns:
            self.start_ns = time.perf_counter_ns()

    def end(self, trainer: Any) -> None:
        """Stop the clock and detach."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent, self.start_ns = time.perf_counter_ns() - self.start_ns, 0
        if self.recorder is not None:
            self.recorder.finish()
            self.recorder = None
        if self.first_done:
            self.times_ns.append(spent)
        self.first_done = True
        if len(self.times_ns) == self.epochs:
            raise RecordingComplete


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
        trainer.add_callback("on_train_epoch_end", alternation.end)
        try:
            trainer.train()
        except RecordingComplete:
            trainer.train_loader.close()
    times = alternation.times_ns
    shares = [
        100 * (times[number] / statistics.mean((times[number - 1], times[number + 1])) - 1)
        for number in range(1, len(times) - 1, 2)
    ]
    step_ms = statistics.median(times[::2]) / options.batches / 1e6
    quarters = statistics.quantiles(shares, n=4)
    sys.stdout.write(
        f"bare step {step_ms:.2f} ms; overhead median {statistics.median(shares):+.2f} % "
        f"(quartiles {quarters[0]:+.2f} and {quarters[2]:+.2f} %, {len(shares)} pairs of {options.batches} steps)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
