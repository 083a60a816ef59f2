"""Trials inside Ultralytics' trainer: its training step, run one at a time between two steps of its own loop."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

from traceanalyzer.recording.loader_tap import LoaderTap, OutOfBatches
from traceanalyzer.recording.recorder import Recorder
from traceanalyzer.recording.training_state import TrainingState
from traceanalyzer.recording.trial_changes import GENERAL, NEEDS_CUDA, non_blocking_copies
from traceanalyzer.recording.trial_patches import replaced, several, watched
from traceanalyzer.recording.trial_plan import TrialPlan
from traceanalyzer.recording.trials import Change, Seen, TrialLoop, TrialRun

_TRAINER_STATE = (
    "loss", "loss_items", "tloss", "metrics", "fitness", "best_fitness", "amp", "scaler", "wdir", "last", "best",
    "accumulate",
)  # fmt: skip
_OWN_MODULES = ("ultralytics.", "traceanalyzer.recording.yolo")
_MEMORY_SHARE = 0.45  # of the device, that a batch may take so that twice of it can be tried


def run_yolo_trials(trainer: Any, recorder: Recorder, plan: TrialPlan, run_so_far_ns: int) -> None:
    """Run trials between two steps of a trainer's loop and put their results into the run's document.

    Args:
        trainer: The trainer, its loop waiting for a batch.
        recorder: The recorder; its measuring is over.
        plan: What to try.
        run_so_far_ns: How long the run has taken.
    """
    reason = _not_possible(trainer, recorder)
    if reason is not None:
        recorder.folder.note(f"no trials: {reason}")
        return
    tap = LoaderTap(trainer.train_loader, keep=not recorder.stop_when_done)
    state = TrainingState(
        trainer.model,
        trainer.optimizer,
        scaler=trainer.scaler,
        averaged=getattr(trainer.ema, "ema", None),
        objects=[
            (trainer, _TRAINER_STATE),
            (trainer.args, ("amp", "multi_scale")),
            *([(trainer.ema, ("updates", "_pairs"))] if trainer.ema else []),
        ],
    )
    steps = _Steps(trainer, tap)
    recorder.loader_clock.take()
    workers = int(trainer.train_loader.num_workers)
    unprofiled = recorder.times()["unprofiled"].step_ns

    def supply_ns() -> int:
        made = recorder.loader_clock.take()
        return made["worker_ns"] // made["batches"] // workers if workers and made["batches"] else 0

    run = TrialRun(
        steps.loop,
        (*GENERAL, *YOLO),
        plan,
        state,
        spy=steps.spy,
        run_so_far_ns=run_so_far_ns,
        typical_step_ns=sorted(unprofiled)[len(unprofiled) // 2] if unprofiled else 0,
        supply_ns=supply_ns,
    )
    # Checkpoints written meanwhile hold weights that are not the run's.
    begin = time.perf_counter_ns()
    with tempfile.TemporaryDirectory(prefix="traceanalyzer-trials-") as folder:
        place = Path(folder)
        trainer.wdir, trainer.last, trainer.best = place, place / "last.pt", place / "best.pt"
        try:
            recorder.folder.document["trials"] = run.run()
        finally:
            state.restore()
            tap.give_back()
    recorder.folder.document["trials_ns"] = time.perf_counter_ns() - begin
    if run.note:
        recorder.folder.note(run.note)


def _not_possible(trainer: Any, recorder: Recorder) -> str | None:
    if int(trainer.world_size) > 1:
        return "with several processes every one of them would have to run the same blocks"
    if recorder.profiler == "nsys":
        return "under Nsight Systems no step is unprofiled"
    if getattr(trainer.args, "compile", False):
        return "the model is compiled"
    if getattr(trainer.train_loader, "iterator", None) is None:
        return "the loader does not keep its iterator from epoch to epoch"
    return None


class _Steps:
    """A trainer's step, taken out of its loop.

    Args:
        trainer: The trainer.
        tap: Where batches come from.
    """

    def __init__(self, trainer: Any, tap: LoaderTap) -> None:
        self.trainer = trainer
        self._done = 0
        self.loop = TrialLoop(
            step=self.step,
            fetch=tap.fetch,
            model=trainer.model,
            optimizer=trainer.optimizer,
            device=str(trainer.device.type),
            accumulate=max(int(trainer.accumulate), 1),
            drain=tap.drain,
            ready=tap.ready,
            subject=trainer,
        )

    def forward(self, batch: Any) -> Any:
        """Return the loss and its parts."""
        return self.trainer.model(batch)

    def step(self, batch: Any) -> None:
        """Do what one turn of the trainer's loop does."""
        self.step_with(batch, self.forward)

    def step_with(self, batch: Any, forward: Any) -> None:
        """Run a step whose loss comes from ``forward``."""
        import torch
        from ultralytics.utils.torch_utils import autocast

        trainer = self.trainer
        self._call_back("on_train_batch_start")
        mixed = torch.bfloat16 if trainer.args.amp == "bf16" else trainer.amp
        with autocast(mixed, device=trainer.device.type):
            batch = trainer.preprocess_batch(dict(batch))
            loss, trainer.loss_items = forward(batch)
            trainer.loss = loss.sum()
        trainer.scaler.scale(trainer.loss).backward()
        self._done += 1
        if self._done % self.loop.accumulate == 0:
            trainer.optimizer_step()
        # The progress line reads the losses back; so much of it is the loop's own waiting.
        parts = trainer.loss_items
        for value in parts.values() if isinstance(parts, dict) else parts:
            float(value)
        self._call_back("on_train_batch_end")

    def _call_back(self, event: str) -> None:
        if not self.loop.callbacks_enabled:
            return
        with ExitStack() as stack:
            for patch in self.loop.callback_patches:
                stack.enter_context(patch())
            for callback in self.trainer.callbacks.get(event, ()):
                callback(self.trainer)

    @contextmanager
    def spy(self, seen: Seen) -> Iterator[None]:
        """Watch steps, and note whether the training has callbacks of its own."""
        events = ("on_train_batch_start", "on_train_batch_end")
        for callback in (found for event in events for found in self.trainer.callbacks.get(event, ())):
            module = getattr(callback, "__module__", "") or ""
            if not module.startswith(_OWN_MODULES):
                seen.add("user_callbacks")
        with watched(self.loop, seen):
            yield


# -- mixed precision ---------------------------------------------------------------------------------------------


def _precision(trainer: Any) -> str:
    if not trainer.amp:
        return "off"
    return "bf16" if trainer.args.amp == "bf16" else "fp16"


def _amp(precision: str, about: str) -> Change:
    def obstacle(loop: TrialLoop, _: Seen) -> str | None:
        if not loop.on_cuda:
            return NEEDS_CUDA
        return f"autocast is {precision} already" if _precision(loop.subject) == precision else None

    @contextmanager
    def apply(loop: TrialLoop) -> Iterator[None]:
        import torch

        trainer = loop.subject
        # A scale that does not overflow: skipped optimizer steps would look like a saving.
        scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16", init_scale=1024.0)
        amp = "bf16" if precision == "bf16" else precision == "fp16"
        with several((trainer, "amp", precision != "off"), (trainer, "scaler", scaler), (trainer.args, "amp", amp)):
            yield

    return Change(f"amp_{precision}", about, obstacle, apply)


# -- input -------------------------------------------------------------------------------------------------------


def _pinned_already(loop: TrialLoop, seen: Seen) -> str | None:
    if not loop.on_cuda:
        return NEEDS_CUDA
    if loop.subject.train_loader.pin_memory and not seen["copy"]:
        return "inputs are pinned and copied without blocking already"
    return None


@contextmanager
def _pinned(loop: TrialLoop) -> Iterator[None]:
    """Pin batches on a thread of their own, as a loader does, and copy without blocking."""
    fetch = loop.fetch
    taken: Queue[Any] = Queue(maxsize=1)
    leaving = threading.Event()
    wanted = threading.Semaphore(1)  # one batch ahead, so that none is left over that the training would miss

    def pin() -> None:
        while True:
            wanted.acquire()
            if leaving.is_set():
                return
            try:
                batch = fetch()
                taken.put(
                    {key: value.pin_memory() if hasattr(value, "pin_memory") else value for key, value in batch.items()}
                )
            except (RuntimeError, StopIteration, OutOfBatches) as problem:
                taken.put(problem)
                return

    def fetch_pinned() -> Any:
        batch = taken.get()
        if isinstance(batch, BaseException):
            raise batch
        wanted.release()
        return batch

    thread = threading.Thread(target=pin, daemon=True)
    thread.start()
    loop.fetch = fetch_pinned
    try:
        with non_blocking_copies():
            yield
    finally:
        loop.fetch = fetch
        leaving.set()
        wanted.release()
        if taken.full():
            taken.get()
        thread.join(timeout=60)


def _shapes_are_fixed(loop: TrialLoop, _: Seen) -> str | None:
    return None if loop.subject.args.multi_scale else "multi_scale is off: every batch has one size"


@contextmanager
def _fixed_shapes(loop: TrialLoop) -> Iterator[None]:
    with replaced(loop.subject.args, "multi_scale", 0.0):
        yield


def _no_room(loop: TrialLoop, _: Seen) -> str | None:
    import torch

    if not loop.on_cuda:
        return None
    total = torch.cuda.get_device_properties(loop.subject.device).total_memory
    if torch.cuda.max_memory_allocated(loop.subject.device) > _MEMORY_SHARE * total:
        return "twice the batch would not fit into the device's memory"
    return None


@contextmanager
def _larger_batch(loop: TrialLoop) -> Iterator[None]:
    """Take two batches for every step, and work on two joined once: joining is the loader's work."""
    fetch = loop.fetch
    joined = join_batches(fetch(), fetch())
    if loop.on_cuda and loop.subject.train_loader.pin_memory:
        joined = {key: value.pin_memory() if hasattr(value, "pin_memory") else value for key, value in joined.items()}

    def fetch_two() -> Any:
        fetch()
        fetch()
        return joined

    loop.fetch = fetch_two
    try:
        yield
    finally:
        loop.fetch = fetch


def join_batches(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return one detection batch made of two.

    Args:
        first: A batch as Ultralytics' data set collates it.
        second: Another.
    """
    import torch

    joined: dict[str, Any] = {}
    for key, value in first.items():
        other = second[key]
        if key == "batch_idx":
            other = other + first["img"].shape[0]
        if isinstance(value, torch.Tensor):
            joined[key] = torch.cat((value, other))
        else:
            joined[key] = value + other if isinstance(value, list | tuple) else value
    return joined


# -- graphs ------------------------------------------------------------------------------------------------------


def _no_graph(loop: TrialLoop, _: Seen) -> str | None:
    import torch

    if not loop.on_cuda:
        return NEEDS_CUDA
    if torch.is_anomaly_enabled():
        return "anomaly mode waits for the device in every backward operator"
    return "multi_scale changes the shapes from step to step" if loop.subject.args.multi_scale else None


class _StepWithNetwork:
    """A step whose network is replaced; the loss stays what it was."""

    def __init__(self, loop: TrialLoop, network: Any) -> None:
        self._steps = loop.step.__self__  # type: ignore[attr-defined]
        self._network = network

    def __call__(self, batch: Any) -> None:
        self._steps.step_with(batch, self._forward)

    def _forward(self, batch: Any) -> Any:
        from ultralytics.utils.torch_utils import unwrap_model

        return unwrap_model(self._steps.trainer.model).loss(batch, self._network(batch["img"]))


@contextmanager
def _cuda_graph(loop: TrialLoop) -> Iterator[None]:
    """Capture the network's forward and backward pass as CUDA graphs."""
    import torch
    from ultralytics.utils.torch_utils import unwrap_model

    trainer = loop.subject
    model = unwrap_model(trainer.model)

    class Network(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        """The network without the hooks that name its phases, which a capture refuses."""

        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def forward(self, images: Any) -> Any:
            """Return the predictions."""
            return self.network.predict(images)

    images = trainer.preprocess_batch(dict(loop.fetch()))["img"]
    precision = _precision(trainer)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    with torch.autocast("cuda", dtype=dtype, enabled=precision != "off", cache_enabled=False):
        network = torch.cuda.make_graphed_callables(Network(), (images.clone(),))
    step = loop.step
    loop.step = _StepWithNetwork(loop, network)
    try:
        yield
    finally:
        loop.step = step


def _not_compiled(loop: TrialLoop, _: Seen) -> str | None:
    return None


@contextmanager
def _compile(loop: TrialLoop) -> Iterator[None]:
    import torch
    from ultralytics.utils.torch_utils import unwrap_model

    network = torch.compile(unwrap_model(loop.subject.model).predict)
    step = loop.step
    loop.step = _StepWithNetwork(loop, network)
    try:
        yield
    finally:
        loop.step = step


YOLO: tuple[Change, ...] = (
    _amp("off", "autocast is off: fp32"),
    _amp("fp16", "autocast to float16 with a gradient scaler"),
    _amp("bf16", "autocast to bfloat16"),
    Change("pinned", "batches are pinned on a thread and copied without blocking", _pinned_already, _pinned),
    Change("fixed_shapes", "multi_scale is off: every batch has one size", _shapes_are_fixed, _fixed_shapes,
           trim=False),
    Change("larger_batch", "two batches in one step; the time is that of half a step", _no_room, _larger_batch,
           batches_per_step=2),
    Change("cuda_graph", "the network's forward and backward pass are captured CUDA graphs", _no_graph, _cuda_graph,
           apart=True),
    Change("compile", "the network is compiled by torch.compile", _not_compiled, _compile, apart=True,
           on_request=True),
)  # fmt: skip
