"""Record any PyTorch training loop.

with Recorder(out="RUN") as recorder:
    recorder.instrument(model, optimizer)
    for batch in recorder.steps(loader):
        with recorder.phase("h2d"):
            ...
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from traceanalyzer.recording import facts
from traceanalyzer.recording.garbage import GarbageWatch
from traceanalyzer.recording.gpu_sampler import GpuSampler
from traceanalyzer.recording.loader_timing import LoaderClock, time_loader
from traceanalyzer.recording.memory_snapshot import save_snapshot, start_history
from traceanalyzer.recording.phase_clock import EventTrack, PhaseClock, StepTimes
from traceanalyzer.recording.ranges import RangeEmitter, nvtx_problem, nvtx_version
from traceanalyzer.recording.run_folder import RunFolder, describe_error
from traceanalyzer.recording.schedule import Schedule, Stage
from traceanalyzer.recording.torch_trace import TorchTrace, TraceOptions

Batch = TypeVar("Batch")
ProfilerName = Literal["torch", "nsys", "none"]

STEP = "step"
PHASES = ("data", "h2d", "forward", "loss", "backward", "optimizer", "ema", "validate", "checkpoint", "log")
_EVENTS_PER_STEP = 32


class RecordingComplete(BaseException):
    """Leaves a training loop once everything is recorded; like an interrupt, no handler of errors should stop it."""


class _Phase:
    """A reusable context manager for one phase."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        self._recorder.push(self._name)

    def __exit__(self, *_: object) -> None:
        self._recorder.pop()


class Recorder:
    """Measures and records the steps of a training loop into a run folder.

    Args:
        out: The run folder; it must not exist.
        schedule: Which steps are measured and recorded.
        profiler: ``torch`` records with torch.profiler; ``nsys`` steers the Nsight Systems this process runs under;
            ``none`` only measures.
        options: What torch.profiler records besides the defaults.
        overwrite: Replace an earlier run in that folder.
        append: Add a pass to the run in that folder.
        command: What the user asked for, without paths.
        configuration: Settings of the run (``batch``, ``amp`` …) for ``run.json``.
        stop_when_done: End ``steps`` once the schedule is done instead of passing the rest through unrecorded.
        device_events: Time phases on the GPU too, in unprofiled steps.
        sample_gpu: Write ``gpu.csv``.

    Attributes:
        trials: Called once everything is measured, between two steps, with the length of the run so far in ns.

    Raises:
        UsageError: The folder cannot be used.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        schedule: Schedule | None = None,
        profiler: ProfilerName = "torch",
        options: TraceOptions | None = None,
        overwrite: bool = False,
        append: bool = False,
        command: str | None = None,
        configuration: dict[str, Any] | None = None,
        stop_when_done: bool = False,
        device_events: bool = True,
        sample_gpu: bool = True,
    ) -> None:
        import torch

        self.schedule = schedule or Schedule()
        self.profiler: ProfilerName = profiler
        self.options = options or TraceOptions()
        self.stop_when_done = stop_when_done
        self.loader_clock = LoaderClock()
        self.clock = PhaseClock()
        self.ranges = RangeEmitter()
        self._torch = torch
        self._cuda = torch.cuda.is_available()
        self._device_events = device_events and self._cuda
        self._rank = facts.ddp_facts()["rank"]
        self.folder = RunFolder(Path(out), overwrite=overwrite, rank=self._rank, append=append)
        self._phases = {name: _Phase(self, name) for name in PHASES}
        self._garbage = GarbageWatch(self._push_range, self.ranges.pop, threading.get_ident())
        self._sampler = GpuSampler(self.folder.path / "gpu.csv") if sample_gpu and self._rank == 0 else None
        self._trace: TorchTrace | None = None
        self._events: EventTrack | None = None
        self._stage: Stage | None = None
        self._block_start = 0
        self._block_steps = 0
        self._undo: list[Callable[[], None]] = []
        self._block_first = 0
        self._pass_index = 0
        self._finished = False
        self._muted = False
        self._begin_ns = time.perf_counter_ns()
        self.trials: Callable[[int], None] | None = None
        self.step_number = 0
        self._unprofiled = StepTimes()
        self._profiled = StepTimes()
        self.on_stage: list[Callable[[Stage], None]] = []
        self._pass: dict[str, Any] = {"profiler": profiler, "schedule": self.schedule.to_dict()}
        self._describe(command, configuration or {})

    @property
    def stage(self) -> Stage:
        """Stage of the current step."""
        return self.schedule.stage_of(self.step_number) if self._stage is None else self._stage

    @property
    def done(self) -> bool:
        """Whether everything the schedule asks for has been measured."""
        return self._stage is Stage.DONE

    # -- the loop's interface ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._garbage.start()
        if self._sampler is not None and self._sampler.start():
            self.folder.document["files"] = {"gpu_samples": self._sampler.path.name}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        ours = isinstance(error, RecordingComplete)
        self.finish(None if ours else error)
        return ours

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager that names a part of the step; see ``PHASES`` for the names reports know."""
        found = self._phases.get(name)
        if found is None:
            found = self._phases[name] = _Phase(self, name)
        return found

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Iterate over batches, one training step each; the time to get the batch is part of the step.

        Args:
            batches: A DataLoader or anything iterable. May be called again for each epoch.
        """
        if not self._started and hasattr(batches, "collate_fn"):
            problem = time_loader(batches, self.loader_clock)
            if problem:
                self.folder.note(problem)
        length = len(batches) if isinstance(batches, Sized) else None
        iterator: Iterator[Batch] | None = None
        served = 0
        while length is None or served < length:
            if not self.begin_step():
                return
            try:
                with self.phase("data"):
                    if iterator is None:
                        iterator = iter(batches)
                    batch = next(iterator)
            except StopIteration:
                self.abandon_step()
                return
            served += 1
            try:
                yield batch
            except GeneratorExit:
                # The loop was left by break or by an exception: this step is not a whole one.
                self.abandon_step()
                raise
            self.end_step()

    def instrument(self, model: Any, optimizer: Any | None = None) -> None:
        """Name forward, backward and optimizer without touching the loop.

        Args:
            model: A ``torch.nn.Module``; its calls become ``forward``.
            optimizer: A ``torch.optim.Optimizer``; its ``step`` becomes ``optimizer``.
        """
        before = model.register_forward_pre_hook(lambda *_: self.push("forward"))
        after = model.register_forward_hook(lambda *_: self.pop(), always_call=True)
        self._undo += [before.remove, after.remove]
        self.instrument_backward()
        if optimizer is not None:
            start = optimizer.register_step_pre_hook(lambda *_: self.push("optimizer"))
            end = optimizer.register_step_post_hook(lambda *_: self.pop())
            self._undo += [start.remove, end.remove]
            self._pass["optimizer"] = type(optimizer).__name__

    def instrument_backward(self) -> None:
        """Name ``Tensor.backward``, until the recorder finishes."""
        tensor = self._torch.Tensor
        original = tensor.backward
        if getattr(original, "_traceanalyzer", False):
            return

        def backward(self_: Any, *arguments: Any, **named: Any) -> Any:
            self.push("backward")
            try:
                return original(self_, *arguments, **named)
            finally:
                self.pop()

        backward._traceanalyzer = True  # type: ignore[attr-defined]
        tensor.backward = backward
        self._undo.append(lambda: setattr(tensor, "backward", original))

    def times(self) -> dict[str, StepTimes]:
        """Return the step times measured so far: ``unprofiled`` and ``profiled``."""
        return {"unprofiled": self._unprofiled, "profiled": self._profiled}

    def undo_later(self, action: Callable[[], None]) -> None:
        """Register something to run when the recorder finishes, last registered first."""
        self._undo.append(action)

    # -- steps ---------------------------------------------------------------------------------------------------

    @property
    def _started(self) -> bool:
        return self._stage is not None

    def begin_step(self) -> bool:
        """Open a step. Returns False when the schedule is done and the loop should end."""
        if self._finished:
            return not self.stop_when_done
        stage = self.schedule.stage_of(self.step_number)
        if stage is not self._stage:
            self._change_stage(stage)
        if stage is Stage.DONE:
            self._run_trials()
            self.finish()
            return not self.stop_when_done
        if self._trace is not None:
            self._trace.step() if self._block_steps else self._trace.start()
        between = self.clock.begin_step(self._events)
        if between is not None and self._block_steps and stage.timed:
            self._times.between_ns.append(between)
        self._block_steps += 1
        self._push_range(STEP)
        return True

    def end_step(self) -> None:
        """Close the step."""
        if not self.clock.in_step:
            return
        self._unwind()
        self.ranges.pop()
        total, phases = self.clock.end_step()
        if self.stage.timed:
            self._times.add_step(total, phases)
        self.step_number += 1

    def abandon_step(self) -> None:
        """Close a step that turned out to have no batch or was left half-way; it is not counted."""
        if not self.clock.in_step:
            return
        self._unwind()
        self.ranges.pop()
        self.clock.end_step()
        self._block_steps -= 1
        if self._events is not None:
            self._events.drop_step()

    def push(self, name: str) -> None:
        """Open a phase; ``phase`` is the convenient form."""
        if self._finished or self._muted:
            return
        self.clock.push(name)
        self._push_range(name)

    def pop(self) -> None:
        """Close the innermost phase; closing more than was opened does nothing."""
        if self.clock.depth:
            self.ranges.pop()
            self.clock.pop()

    def _run_trials(self) -> None:
        """Try changes, where the loop knows how, with phases and ranges off."""
        if self.trials is None:
            return
        self._publish()
        self._muted = True
        try:
            self.trials(time.perf_counter_ns() - self._begin_ns)
        finally:
            self._muted = False

    def _push_range(self, name: str) -> None:
        self.ranges.push(name)

    def _unwind(self) -> None:
        while self.clock.depth:
            self.pop()

    @property
    def _times(self) -> StepTimes:
        return self._profiled if self._stage is Stage.RECORDED else self._unprofiled

    # -- stages --------------------------------------------------------------------------------------------------

    def _change_stage(self, stage: Stage) -> None:
        previous = self._stage
        if previous is not None:
            self._leave_stage(previous, stage)
        self._stage = stage
        for tell in self.on_stage:
            tell(stage)
        if stage.timed or stage is Stage.PROFILER_WARM_UP:
            self._synchronise()
            self.loader_clock.take()
            self._garbage.take()
        keep_trace = previous is Stage.PROFILER_WARM_UP and stage is Stage.RECORDED
        self._events = None
        if stage.unprofiled and self._device_events:
            count = dict(self.schedule.stages)[stage]
            self._events = EventTrack(lambda: self._torch.cuda.Event(enable_timing=True), count * _EVENTS_PER_STEP)
            self._synchronise()
        if stage is Stage.PROFILER_WARM_UP and self.profiler == "torch":
            self._trace = self._new_trace()
            self.ranges.torch_enabled = True
        elif stage is Stage.RECORDED and self._cuda:
            if self.options.memory and self.profiler == "torch":
                start_history()
            if self.profiler == "nsys":
                self._torch.cuda.profiler.start()
        if not keep_trace:
            self._block_steps = 0
        self._block_first = self._block_steps
        self._block_start = time.perf_counter_ns()
        self._publish()

    def _leave_stage(self, stage: Stage, following: Stage) -> None:
        self._synchronise()
        block_ns = time.perf_counter_ns() - self._block_start
        if stage.timed:
            self._times.block_ns.append(block_ns)
            self._times.block_steps.append(self._block_steps - self._block_first)
            self._note_block(stage)
        if self._events is not None:
            self._events.resolve(self._times)
            self._events = None
        if stage in (Stage.RECORDED, Stage.PROFILER_WARM_UP) and following is not Stage.RECORDED:
            self._stop_profiler()

    def _note_block(self, stage: Stage) -> None:
        count, total_ns = self._garbage.take()
        loader = self.loader_clock.take()
        self._pass.setdefault("garbage_collection", {})[stage.value] = {"count": count, "ns": total_ns}
        if loader["batches"]:
            self._pass.setdefault("loader", {})[stage.value] = loader

    def _new_trace(self) -> TorchTrace:
        warm_up = self.schedule.profiler_warm_up
        first = self.schedule.first(Stage.PROFILER_WARM_UP)
        path = self.folder.path / f"rank{self._rank}.pt.trace.json.gz"
        return TorchTrace(path, first, warm_up, self.schedule.recorded, self.options)

    def _stop_profiler(self) -> None:
        if self.profiler == "nsys" and self._cuda and self._stage is Stage.RECORDED:
            self._torch.cuda.profiler.stop()
        trace, self._trace = self._trace, None
        if trace is None:
            return
        self.ranges.torch_enabled = False
        trace.stop()
        if self.options.memory and self._cuda and self._stage is Stage.RECORDED:
            self._save_memory_snapshot()
        if trace.saved:
            self.folder.document.setdefault("recordings", []).append(
                {
                    "file": trace.path.name,
                    "format": "kineto",
                    "profiler": "torch",
                    "pass": self._pass_index,
                    "rank": self._rank,
                    "first_step": self.schedule.first(Stage.RECORDED),
                    "steps": len(self._profiled.step_ns),
                    "stacks": self.options.stacks,
                    "shapes": self.options.shapes,
                    "memory": self.options.memory,
                }
            )

    def _save_memory_snapshot(self) -> None:
        name = "memory_snapshot.pickle" if self._rank == 0 else f"memory_snapshot.rank{self._rank}.pickle"
        save_snapshot(self.folder.path / name)
        self.folder.document.setdefault("files", {})["memory_snapshot"] = name

    def _synchronise(self) -> None:
        if self._cuda:
            self._torch.cuda.synchronize()

    # -- the document --------------------------------------------------------------------------------------------

    def _describe(self, command: str | None, configuration: dict[str, Any]) -> None:
        document = self.folder.document
        passes = document.setdefault("passes", [])
        self._pass_index = len(passes)
        passes.append(self._pass)
        document.setdefault("recordings", [])
        document.setdefault("trials", [])
        document.setdefault("faults", [])
        document.setdefault("notes", [])
        if self._pass_index == 0:
            document["command"] = command
            document["versions"] = facts.versions()
            document["gpus"] = facts.gpus()
            document["ddp"] = facts.ddp_facts()
            document["configuration"] = {**facts.base_configuration(), **configuration}
        problem = nvtx_problem(nvtx_version(), facts.versions()["nsys"])
        if problem:
            self.folder.note(problem)
        if not self._cuda:
            self.folder.note(
                "no CUDA device: the recording shows the host only (operators, phases, the loader); "
                "GPU idle time, copies and GPU memory cannot be seen"
            )
        self._publish()

    def configure(self, **settings: Any) -> None:
        """Add settings of the run to ``run.json``'s configuration."""
        self.folder.document["configuration"].update(settings)
        self._publish()

    def _publish(self) -> None:
        self._pass["unprofiled"] = self._unprofiled.to_dict()
        self._pass["profiled"] = self._profiled.to_dict()
        self._pass["episodes"] = [{"phase": name, "ns": ns} for name, ns in self.clock.episodes]
        self.folder.document["steps_run"] = self.step_number
        self.folder.save()

    def finish(self, error: BaseException | None = None) -> None:
        """Detach everything and write the last state; called by leaving the ``with`` block.

        Args:
            error: What ended the loop early; the folder then holds what was recorded until then.
        """
        if self._finished:
            return
        self.abandon_step()
        self._unwind()
        state = "complete" if error is None else ("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        message = None if error is None else describe_error(error)
        try:
            if self._stage not in (None, Stage.DONE):
                self._close_stage(error)
        except (OSError, RuntimeError) as problem:
            # A full disk or a device in an error state must not hide the state reached so far.
            state, message = "failed", message or describe_error(problem)
            self.folder.note(f"the recording could not be written: {describe_error(problem)}")
        finally:
            self._finished = True
            self._garbage.stop()
            while self._undo:
                self._undo.pop()()
            if self._sampler is not None:
                self._sampler.stop()
            if error is None and state == "complete" and self._stage is not Stage.DONE:
                self.folder.note(
                    f"the loop ended after {self.step_number} of {self.schedule.total} steps the schedule asks for"
                )
            self._publish()
            self.folder.close(state, message)

    def _close_stage(self, error: BaseException | None) -> None:
        if error is None:
            self._leave_stage(self.stage, Stage.DONE)
        elif self._trace is not None:
            self._stop_profiler()


def default_command(words: list[str]) -> str:
    """Return a command line as ``run.json`` may hold it: file names without the folders they lie in.

    Args:
        words: The words of the command.
    """
    kept = []
    for word in words:
        option, equals, value = word.partition("=")
        if equals and os.sep in value:
            kept.append(f"{option}={Path(value).name}")
        else:
            kept.append(Path(word).name if os.sep in word else word)
    return " ".join(kept)
