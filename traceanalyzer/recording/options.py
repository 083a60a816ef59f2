"""Options of the two recording commands, declared once for every front end."""
# ruff: noqa: RUF009 - option() declares, as dataclasses.field does

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.schedule import Schedule
from traceanalyzer.recording.torch_trace import TraceOptions

PROFILERS = ("torch", "nsys", "both", "none")
TRIALS = (
    "reused_batch", "empty_cache_off", "anomaly_off", "amp_off", "amp_fp16", "amp_bf16", "tf32", "pinned",
    "callbacks_off", "item_removed", "device_sync_off", "print_removed", "channels_last", "fused_optimizer",
    "cudnn_benchmark", "fixed_shapes", "larger_batch", "gc_frozen", "cuda_graph", "compile",
)  # fmt: skip


def option(default: Any, about: str, *, choices: tuple[str, ...] = (), kind: type = str) -> Any:
    """Declare one option: its default, its help text, its choices and the type of its value (or list items)."""
    metadata = {"help": about, "choices": choices, "kind": kind}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options both commands have.

    Counts of steps that are None follow from the others; see ``schedule``.
    """

    out: Path = option(Path("RUN"), "Run folder to write; it must not exist yet.", kind=Path)
    steps: int = option(20, "Steps to record.", kind=int)
    profiler: str = option("torch", "torch.profiler, Nsight Systems, both (two passes) or none.", choices=PROFILERS)
    skip: int = option(0, "Steps to leave alone at the start.", kind=int)
    warm_up: int | None = option(None, "Warm-up steps (default 10; 2 without a GPU).", kind=int)
    unprofiled: int | None = option(
        None, "Steps measured bare, before and after recording (default: as many as recorded, 4 to 50).",
        kind=int,
    )  # fmt: skip
    settle: int | None = option(
        None, "Steps run but not kept around the recording, until the loader's head start is used up.", kind=int
    )
    stacks: bool = option(False, "Record Python stacks (code locations; slows the host a lot).", kind=bool)
    shapes: bool = option(False, "Record input shapes of operators.", kind=bool)
    memory: bool = option(False, "Record allocator events and a memory snapshot.", kind=bool)
    overwrite: bool = option(False, "Replace an earlier run in the folder.", kind=bool)
    nsys_option: tuple[str, ...] = option((), "Further option for nsys profile; may be repeated.")
    nsys_trace: str = option("cuda,nvtx,osrt", "What nsys traces (its -t option).")
    nsys: Path | None = option(None, "The nsys program (default: the one on the PATH).", kind=Path)

    def __post_init__(self) -> None:
        if self.profiler not in PROFILERS:
            raise UsageError(f"--profiler {self.profiler}: must be one of {', '.join(PROFILERS)}")
        for name in ("steps", "skip", "warm_up", "unprofiled", "settle"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"--{name.replace('_', '-')} {value}: must not be negative")
        if self.steps == 0 and self.profiler != "none":
            raise UsageError("--steps 0 records nothing; use --profiler none to measure only")

    def schedule(self, *, cuda: bool, head_start: int = 0) -> Schedule:
        """Return the steps of each stage.

        Args:
            cuda: Whether a GPU is used.
            head_start: Batches the loader can hold ready.
        """
        recorded = 0 if self.profiler == "none" else self.steps
        unprofiled = self.unprofiled if self.unprofiled is not None else min(max(self.steps, 4), 50)
        settle = self.settle if self.settle is not None else min(head_start, 40)
        return Schedule(
            skip=self.skip,
            warm_up=self.warm_up if self.warm_up is not None else (10 if cuda else 2),
            unprofiled=unprofiled,
            profiler_warm_up=1 + settle + (2 if cuda else 0),
            recorded=recorded,
            settle=settle + (1 if cuda else 0),
            unprofiled_after=unprofiled,
        )

    @property
    def trace_options(self) -> TraceOptions:
        """What torch.profiler records."""
        return TraceOptions(stacks=self.stacks, shapes=self.shapes, memory=self.memory)


@dataclass(frozen=True, kw_only=True)
class YoloOptions(RunOptions):
    """Options of ``record yolo``."""

    model: str = option("yolo11n.yaml", "Model or checkpoint, as Ultralytics names it.")
    data: str | None = option(None, "Data set (a data.yaml); without one, a synthetic data set is made.")
    batch: int = option(16, "Images per step.", kind=int)
    imgsz: int = option(640, "Image size in pixels.", kind=int)
    workers: int = option(8, "Loader worker processes.", kind=int)
    device: str | None = option(None, "Device, as Ultralytics names it (default: the first GPU, else cpu).")
    amp: bool = option(True, "Train with automatic mixed precision.", kind=bool)
    fault: tuple[str, ...] = option((), "Reproduce a root cause; may be repeated. See record faults.")
    set: tuple[str, ...] = option((), "Any Ultralytics setting, for example --set mosaic=0; may be repeated.")
    images: int | None = option(None, "Synthetic images (default: enough for one epoch, at most 2048).", kind=int)
    batches_per_epoch: int | None = option(None, "Make the synthetic data set this many batches long.", kind=int)
    seed: int = option(0, "Seed of the synthetic data set and of training.", kind=int)
    trials: bool | None = option(
        None, "Try changes in short blocks of unprofiled steps (default: where that costs under a fifth of the run).",
        kind=bool,
    )  # fmt: skip
    trial: tuple[str, ...] = option((), "Try only this change; may be repeated.")
    trial_seconds: float | None = option(None, "Time for trials (default with --trials: 30).", kind=float)
    dataset_dir: Path | None = option(None, "Keep the synthetic data set here, to use it again.", kind=Path)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "imgsz"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} {getattr(self, name)}: must be at least 1")
        if self.trial_seconds is not None and not self.trial_seconds > 0:
            raise UsageError(f"--trial-seconds {self.trial_seconds:g}: must be more than 0")
        unknown = [name for name in self.trial if name not in TRIALS]
        if unknown:
            raise UsageError(f"--trial {unknown[0]}: must be one of {', '.join(TRIALS)}")
        if self.workers < 0:
            raise UsageError(f"--workers {self.workers}: must not be negative")
        for word in self.set:
            if "=" not in word:
                raise UsageError(f"--set {word}: write name=value")


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(RunOptions):
    """Options of ``record script``."""

    run_to_end: bool = option(False, "Let the script finish instead of ending it after recording.", kind=bool)
    command: tuple[str, ...] = ()


def flag(name: str) -> str:
    """Return the command-line spelling of an option."""
    return "--" + name.replace("_", "-")


def to_words(options: RunOptions, skip: tuple[str, ...] = ()) -> list[str]:
    """Return the options that differ from their defaults as command-line words.

    Args:
        options: The options.
        skip: Names to leave out.
    """
    words: list[str] = []
    for entry in fields(options):
        value = getattr(options, entry.name)
        if entry.name in skip or not entry.metadata or value == entry.default:
            continue
        name = flag(entry.name)
        if isinstance(value, bool):
            words.append(name if value else name.replace("--", "--no-", 1))
        else:
            values = value if isinstance(value, tuple) else (value,)
            words.extend(f"{name}={item}" for item in values)
    return words
