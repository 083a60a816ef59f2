"""Measure what the recorder costs while no profiler runs, in one training with everything switched on and off.

    python tests/tools/instrumentation_overhead.py --out overhead.jsonl [--processes 3] [--steps 800] [--seconds 75]
                                                   [--batch 16] [--imgsz 640] [--workers 8] [--dose 1]
    python tests/tools/instrumentation_overhead.py --table overhead.jsonl

Ultralytics' own trainer runs. Between two steps all of the recorder is taken out or put back: wrappers, hooks, timers,
CUDA events, the watch on garbage collection, the GPU sampler and the timing in the loader's workers. Steps come in
groups of four, on-off-off-on or off-on-on-off by a seeded coin, so that drift within a group cancels; each group gives
one difference. Groups never span an epoch's edge. Printed are the median of the differences with its exact 95 %
interval (sign test), and their mean with a bootstrap interval, which rare costs enter too (a sample of the GPU every
half second, a collection): of the step's wall time, device work included, and of the process's processor time.

Samples of the GPU are asked for in two steps of each group, one with and one without the rest of the recorder, instead
of by the clock: what one of them costs is seen five times as often as in a recording, and counted as rare as there.

``--dose 10`` lets timers and events act ten times in an instrumented step: what is found is ten times as large, and its
interval divided by ten is narrower. ``--dose 0`` leaves everything off, to see what the method finds in nothing. Two
more numbers say what to expect: the time the recorder's calls of one step take outside any training, and, from the same
batches made twice, what the timing in the workers adds to a batch.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.tools.instrumentation_switch import DosedRecorder, LoaderSwitch, Switch  # noqa: E402
from tests.tools.paired_statistics import describe, describe_mean  # noqa: E402
from traceanalyzer.recording.facts import gpus, usable_cores, versions  # noqa: E402
from traceanalyzer.recording.gpu_sampler import sample_line  # noqa: E402
from traceanalyzer.recording.options import YoloOptions  # noqa: E402
from traceanalyzer.recording.recorder import Recorder, RecordingComplete  # noqa: E402
from traceanalyzer.recording.schedule import Schedule, Stage  # noqa: E402
from traceanalyzer.recording.training_state import random_state, set_random_state  # noqa: E402
from traceanalyzer.recording.yolo import _make_trainer, _workplace  # noqa: E402
from traceanalyzer.recording.yolo_hooks import attach  # noqa: E402

GROUP = 4  # steps
SAMPLE_PERIOD_NS = 500_000_000
EDGE_STEPS = 2  # left out after an epoch's edge, where the trainer collects garbage and empties the cache
DEFAULTS = {"steps": 800, "batch": 16, "imgsz": 640, "workers": 8, "warm-up": 16, "dose": 1, "batches": 44}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what the recorder costs while no profiler runs.")
    parser.add_argument("--out", type=Path, help="file to add a line of results to, per process")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of earlier results instead")
    parser.add_argument("--processes", type=int, default=1, help="trainings, one after the other")
    parser.add_argument("--seed", type=int, default=1, help="of the order; each further process adds one")
    parser.add_argument("--seconds", type=float, default=600.0, help="end the steps of a process after that time")
    parser.add_argument("--loader-pairs", type=int, default=24, help="batches made twice, with and without timing")
    parser.add_argument("--model", default="yolo11n.yaml")
    parser.add_argument("--dataset-dir", type=Path, help="keep the synthetic images here, to use them again")
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if not options.table and not options.out:
        parser.error("--out or --table is needed")
    return options


class Endless(Schedule):
    """A schedule that stays in the unprofiled stage."""

    def stage_of(self, step: int) -> Stage:
        """Return the stage of any step."""
        return Stage.UNPROFILED


@dataclass
class _One:
    """A loader with one batch left."""

    source: Iterator[Any]

    def __iter__(self) -> Iterator[Any]:
        return self.source

    def __len__(self) -> int:
        return 1


@dataclass
class Measured:
    """One process's numbers: per group, the times of its two instrumented and its two bare steps, in ns.

    ``sampled_wall_ns`` are the same steps, divided into those with and those without a sample of the GPU.
    """

    wall_ns: list[tuple[list[int], list[int]]] = field(default_factory=list)
    processor_ns: list[tuple[list[int], list[int]]] = field(default_factory=list)
    sampled_wall_ns: list[tuple[list[int], list[int]]] = field(default_factory=list)


class Alternation:
    """Serves batches to the trainer, in steps with and without the recorder, and times them.

    Args:
        switch: Turns the recorder on and off.
        recorder: The recorder.
        options: The command line.
    """

    def __init__(self, switch: Switch, recorder: DosedRecorder, options: argparse.Namespace) -> None:
        import torch

        self.switch, self.recorder = switch, recorder
        self.measured = Measured()
        self._groups = max(options.steps // GROUP, 1)
        self._warm_up, self._dose = options.warm_up, options.dose
        self._end = time.monotonic() + options.seconds
        self._coin = random.Random(options.seed)
        self._wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """Yield an epoch's batches."""
        source, left = self.switch.base.__iter__(loader), len(loader)
        for _ in range(min(EDGE_STEPS, left)):
            yield from self._step(source, on=False)
            left -= 1
        while left:
            warming = self._warm_up > 0
            if left < GROUP or warming:
                # warm up in both states: the first instrumented steps make the events
                yield from self._step(source, on=warming and left % 2 == 0)
                left -= 1
                self._warm_up -= 1
                continue
            yield from self._group(source)
            left -= GROUP
            if len(self.measured.wall_ns) >= self._groups or time.monotonic() > self._end:
                self.switch.set(True)
                raise RecordingComplete
        self.switch.set(False)

    def _group(self, source: Iterator[Any]) -> Iterator[Any]:
        first, sampled_first = self._coin.random() < 0.5, self._coin.random() < 0.5
        wall, processor, sampled = _Sides(), _Sides(), _Sides()
        # each of the four combinations of recorder and sample once, the recorder's order free of drift
        for number, on in enumerate((first, not first, not first, first)):
            with_sample = (number < GROUP // 2) == sampled_first
            spent = yield from self._step(source, on=on, with_sample=with_sample)
            wall.add(spent[0], on)
            processor.add(spent[1], on)
            sampled.add(spent[0], with_sample)
        self.measured.wall_ns.append(wall.pair)
        self.measured.processor_ns.append(processor.pair)
        self.measured.sampled_wall_ns.append(sampled.pair)
        self.recorder.free_events()

    def _step(self, source: Iterator[Any], *, on: bool, with_sample: bool = False) -> Iterator[Any]:
        on = on and self._dose > 0
        self.switch.set(on)
        self._wait()
        wall, processor = time.perf_counter_ns(), time.process_time_ns()
        if with_sample:
            self.switch.gate.ask()
        if on:
            yield from self.recorder.steps(_One(source))
        else:
            yield next(source)
        self._wait()
        return time.perf_counter_ns() - wall, time.process_time_ns() - processor


class _Sides:
    """Times of a group's steps: those with something and those without."""

    def __init__(self) -> None:
        self.pair: tuple[list[int], list[int]] = ([], [])

    def add(self, value: int, has: bool) -> None:
        """Add a step's time to its side."""
        self.pair[not has].append(value)


def sample_cost_ns(samples: int = 30) -> dict[str, float]:
    """Return what one sample of the first GPU takes (``whole``), and each of its queries; empty without a GPU.

    Args:
        samples: How many; medians are returned, in ns, waiting for the driver included.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except (ImportError, pynvml.NVMLError):
        return {}
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls: dict[str, Callable[[], Any]] = {"whole": lambda: sample_line(pynvml, 0, device, datetime.now())}
    for name in ("Name", "UtilizationRates", "MemoryInfo", "PowerUsage"):
        calls[name] = partial(getattr(pynvml, f"nvmlDeviceGet{name}"), device)
    calls["Temperature"] = partial(pynvml.nvmlDeviceGetTemperature, device, pynvml.NVML_TEMPERATURE_GPU)
    calls["ClockInfo"] = partial(pynvml.nvmlDeviceGetClockInfo, device, pynvml.NVML_CLOCK_SM)
    found: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            begin = time.perf_counter_ns()
            with suppress(pynvml.NVMLError):
                call()
            found[name].append(time.perf_counter_ns() - begin)
    return {name: statistics.median(spent) for name, spent in found.items()}


def direct_cost_ns(folder: Path, steps: int = 200) -> float:
    """Return what the recorder's calls of one step take, phases nested as the trainer's are."""
    phases = ("data", "h2d", "forward", "backward", "optimizer", "log")
    recorder = Recorder(folder, schedule=Schedule(unprofiled=steps + 50), profiler="none", sample_gpu=False)
    recorder.schedule = Endless(unprofiled=steps + 50)
    spent = 0
    with recorder:
        for number in range(steps + 40):
            begin = time.perf_counter_ns()
            recorder.begin_step()
            for name in phases:
                recorder.push(name)
                inner = {"forward": "loss", "optimizer": "ema"}.get(name)
                if inner:
                    recorder.push(inner)
                    recorder.pop()
                recorder.pop()
            recorder.end_step()
            spent += time.perf_counter_ns() - begin if number >= 40 else 0
    return spent / steps


def loader_pairs(switch: LoaderSwitch, pairs: int, batch: int, seed: int) -> list[tuple[int, int]]:
    """Make the same batches twice in this process and return the processor time with and without timing, in ns.

    Args:
        switch: Turns the timing on and off.
        pairs: Number of batches.
        batch: Samples of each.
        seed: Of the choice of samples and the order.
    """
    dataset, choice = switch._loader.dataset, random.Random(seed)
    found = []
    for number in range(pairs + 2):
        indices = [choice.randrange(len(dataset)) for _ in range(batch)]
        lists = {name: list(value) for name, value in vars(dataset).items() if isinstance(value, list)}
        state, spent = random_state(), [0, 0]
        for on in choice.sample((True, False), 2):
            switch.flag.value = on
            for name, values in lists.items():
                getattr(dataset, name)[:] = values
            set_random_state(state)
            begin = time.thread_time_ns()
            switch.collate(switch.fetch(indices))
            spent[not on] = time.thread_time_ns() - begin
        if number >= 2:  # the first fill caches
            found.append((spent[0], spent[1]))
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train once and return what was measured."""
    yolo = YoloOptions(
        model=options.model, batch=options.batch, imgsz=options.imgsz, workers=options.workers,
        batches_per_epoch=options.batches, set=(f"nbs={options.batch}",), dataset_dir=options.dataset_dir,
    )  # fmt: skip
    alternations: list[Alternation] = []
    with tempfile.TemporaryDirectory() as folder, _workplace(yolo) as place:
        trainer = _make_trainer(yolo, [], place)

        def begin(it: Any) -> None:
            recorder = DosedRecorder(Path(folder) / "RUN", dose=options.dose, schedule=Endless(), profiler="none")
            switch = Switch(it, recorder, attach)
            alternation = Alternation(switch, recorder, options)
            alternations.append(alternation)
            base = switch.base
            served = {"__iter__": lambda loader: alternation.epoch(loader)}
            it.train_loader.__class__ = type(base.__name__, (base,), served)

        trainer.add_callback("on_pretrain_routine_end", begin)
        with suppress(RecordingComplete):
            trainer.train()
        alternation = alternations[0]
        alternation.switch.close()
        document = alternation.recorder.folder.document
        samples = Path(folder) / "RUN" / "gpu.csv"
        trainer.train_loader.close()
        pairs = loader_pairs(alternation.switch.loader, options.loader_pairs, options.batch, options.seed)
        direct_ns = direct_cost_ns(Path(folder) / "direct")
        found = versions()
        return {
            "model": options.model, "batch": options.batch, "imgsz": options.imgsz, "workers": options.workers,
            "dose": options.dose, "seed": options.seed,
            "machine": {"gpu": next((gpu["name"] for gpu in gpus()), None), "cores": usable_cores()},
            "versions": {name: found[name] for name in ("torch", "ultralytics", "python")},
            "switched": alternation.switch.difference.names,
            "switched_in_loader": alternation.switch.loader.difference.names,
            "loader_batches_timed": document["passes"][0].get("loader", {}).get("unprofiled", {}).get("batches", 0),
            "gpu_samples": len(samples.read_text().splitlines()) - 1 if samples.is_file() else 0,
            "device_phases": len(alternation.recorder.times()["unprofiled"].device_phase_ns),
            "direct_ns": direct_ns, "loader_pairs_ns": pairs, "wall_ns": alternation.measured.wall_ns,
            "processor_ns": alternation.measured.processor_ns,
            "sampled_wall_ns": alternation.measured.sampled_wall_ns, "sample_ns": sample_cost_ns(),
        }  # fmt: skip


def differences(groups: list[list[list[int]]]) -> list[float]:
    """Return by how many percent the instrumented steps of each group are longer than its bare ones.

    As logarithms of the ratios: the mean of plain ratios of noisy times lies above 1 (here by half a percent) even
    where nothing differs.
    """
    return [100 * math.log(sum(on) / sum(bare)) for on, bare in groups]


def sample_differences(result: dict[str, Any]) -> list[float]:
    """Return per group by how many percent a sample each half second prolongs the training; empty without a GPU."""
    pairs = result.get("sampled_wall_ns", []) if result.get("sample_ns") else []
    return [100 * statistics.fmean(map(operator.sub, has, lacks)) / SAMPLE_PERIOD_NS for has, lacks in pairs]


def table(results: list[dict[str, Any]]) -> str:
    """Return Markdown: a row per process, and one for the processes of a configuration together."""
    head = (
        "| training | bare step, ms | groups | wall time, median | wall time, mean | processor time, median | "
        "direct, µs a step | worker timing, of a batch | GPU samples | all |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    lines = [head]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        device = result["machine"]["gpu"] or f"{result['machine']['cores']} CPU cores"
        kind = f"{Path(result['model']).stem}, batch {result['batch']}, {result['imgsz']} px, {device}"
        kinds.setdefault(kind + (f", dose {result['dose']}" if result["dose"] != 1 else ""), []).append(result)
    for kind, members in kinds.items():
        lines += [row(f"{kind}, seed {member['seed']}", [member]) for member in members]
        if len(members) > 1:
            lines.append(row(f"**{kind}: all {len(members)}**", members))
    return "\n".join(lines)


def row(name: str, results: list[dict[str, Any]]) -> str:
    """Return one line of the table, from the groups of one process or of several."""
    wall = [value for result in results for value in differences(result["wall_ns"])]
    processor = [value for result in results for value in differences(result["processor_ns"])]
    bare = [value for result in results for _, steps in result["wall_ns"] for value in steps]
    pairs = [100 * (on / off - 1) for result in results for on, off in result["loader_pairs_ns"]]
    samples = [value for result in results for value in sample_differences(result)]
    direct = statistics.median(result["direct_ns"] for result in results)
    cells = (
        name, f"{statistics.median(bare) / 1e6:.1f}", str(len(wall)), describe(wall), describe_mean(wall),
        describe(processor), f"{direct / 1e3:.0f}", describe(pairs) if pairs else "–",
        describe_mean(samples) if samples else "–",
        describe_mean(list(map(operator.add, wall, samples))) if len(samples) == len(wall) else "–",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Measure, or print the table."""
    options = parse()
    if options.table:
        lines = [line for path in options.table for line in path.read_text(encoding="utf-8").splitlines()]
        sys.stdout.write(table([json.loads(line) for line in lines]) + "\n")
        return 0
    if options.processes > 1:
        # every training in a process of its own: caches, memory layout and the allocator's state begin anew
        for number in range(options.processes):
            command = [sys.executable, __file__, *sys.argv[1:], f"--seed={options.seed + number}", "--processes=1"]
            subprocess.run(command, check=True)
        return 0
    result = measure(options)
    with options.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    sys.stdout.write(table([result]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
