"""Names the parts of Ultralytics' training step from outside, by callbacks and thin wrappers.

Nothing of Ultralytics is copied or subclassed in source: the trainer is the installed one, and every wrapper is removed
when the recorder finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from traceanalyzer.recording.loader_timing import time_loader, time_transforms
from traceanalyzer.recording.recorder import Recorder, RecordingComplete

EPOCH_EDGE = "epoch_edge"


class _LoaderView:
    """A loader as it was before it was instrumented."""

    def __init__(self, loader: Any, iterate: Callable[[Any], Iterator[Any]]) -> None:
        self._loader = loader
        self._iterate = iterate

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(self._loader)

    def __len__(self) -> int:
        return len(self._loader)


class _NamedCriterion:
    """A loss whose calls are the phase ``loss``; everything else is the wrapped object's."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self.inner = inner
        self._recorder = recorder

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with self._recorder.phase("loss"):
            return self.inner(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class _EpochEdge:
    """Names the time between an epoch's last step and the next one's first.

    The trainer collects garbage and empties the allocator's cache there, so the step before it is unlike the others.

    Args:
        recorder: Where the range goes.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._is_open = False

    def open(self, _: Any) -> None:
        """Open the range (a callback at the end of an epoch)."""
        if not self._is_open and not self._recorder.clock.in_step:
            self._is_open = True
            self._recorder.ranges.push(EPOCH_EDGE)

    def close(self) -> None:
        """Close it where it is open."""
        if self._is_open:
            self._is_open = False
            self._recorder.ranges.pop()


def attach(trainer: Any, recorder: Recorder) -> None:
    """Instrument a trainer that has built its model and loaders (``on_pretrain_routine_end``).

    Args:
        trainer: An Ultralytics trainer.
        recorder: Where steps and phases go.
    """
    edge = _EpochEdge(recorder)
    trainer.add_callback("on_train_epoch_end", edge.open)
    recorder.undo_later(lambda: trainer.callbacks["on_train_epoch_end"].remove(edge.open))
    recorder.undo_later(edge.close)
    _attach_loader(trainer, recorder, edge)
    _wrap(recorder, trainer, "preprocess_batch", "h2d")
    _wrap(recorder, trainer, "optimizer_step", "optimizer")
    _wrap(recorder, trainer, "validate", "validate")
    _wrap(recorder, trainer, "final_eval", "validate")
    _wrap(recorder, trainer, "save_model", "checkpoint")
    _wrap(recorder, trainer, "save_metrics", "log")
    if getattr(trainer, "ema", None) is not None:
        _wrap(recorder, trainer.ema, "update", "ema")
    recorder.instrument(trainer.model)
    _name_loss(trainer, recorder)
    _name_progress_line(trainer, recorder)
    _follow_rebuilds(trainer, recorder, edge)
    recorder.configure(**trainer_configuration(trainer))


def _wrap(recorder: Recorder, owner: Any, name: str, phase: str) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    def named(*arguments: Any, **keywords: Any) -> Any:
        recorder.push(phase)
        try:
            return original(*arguments, **keywords)
        finally:
            recorder.pop()

    _replace(recorder, owner, name, named)


def _replace(recorder: Recorder, owner: Any, name: str, value: Any) -> None:
    had = vars(owner).get(name)
    setattr(owner, name, value)

    def restore() -> None:
        if had is None:
            delattr(owner, name)
        else:
            setattr(owner, name, had)

    recorder.undo_later(restore)


def _attach_loader(trainer: Any, recorder: Recorder, edge: _EpochEdge) -> None:
    loader = trainer.train_loader
    base = type(loader)
    problem = time_loader(loader, recorder.loader_clock)
    if problem:
        recorder.folder.note(problem)
    else:
        time_transforms(loader.dataset, recorder.loader_clock)

    def iterate(self: Any) -> Iterator[Any]:
        edge.close()
        yield from recorder.steps(_LoaderView(self, base.__iter__))
        if recorder.done and recorder.stop_when_done:
            raise RecordingComplete

    # ``for`` looks ``__iter__`` up on the type, so the instance gets a type of its own.
    loader.__class__ = type(base.__name__, (base,), {"__iter__": iterate})
    recorder.undo_later(lambda: setattr(loader, "__class__", base))


def _name_loss(trainer: Any, recorder: Recorder) -> None:
    from ultralytics.utils.torch_utils import unwrap_model

    model = unwrap_model(trainer.model)
    make = getattr(model, "init_criterion", None)
    if make is None:
        return
    if getattr(model, "criterion", None) is not None:
        model.criterion = _NamedCriterion(model.criterion, recorder)
    else:
        _replace(recorder, model, "init_criterion", lambda: _NamedCriterion(make(), recorder))

    def restore() -> None:
        if isinstance(getattr(model, "criterion", None), _NamedCriterion):
            model.criterion = model.criterion.inner

    recorder.undo_later(restore)


def _name_progress_line(trainer: Any, recorder: Recorder) -> None:
    """Open ``log`` where the progress line is put together and close it with the batch.

    Formatting the line reads the losses back from the device, which is where a training step waits; the trainer asks
    for the memory in use first, and runs ``on_train_batch_end`` last.
    """
    original = getattr(trainer, "_get_memory", None)
    if original is None:
        recorder.folder.note("this Ultralytics has no _get_memory: the progress line is not named as log")
        return

    def get_memory(fraction: bool = False) -> Any:
        if not fraction and recorder.clock.in_step and recorder.clock.depth == 0:
            recorder.push("log")
        return original(fraction) if fraction else original()

    def close(_: Any) -> None:
        if recorder.clock.in_step and recorder.clock.innermost == "log":
            recorder.pop()

    _replace(recorder, trainer, "_get_memory", get_memory)
    trainer.callbacks["on_train_batch_end"].insert(0, close)
    recorder.undo_later(lambda: trainer.callbacks["on_train_batch_end"].remove(close))


def _follow_rebuilds(trainer: Any, recorder: Recorder, edge: _EpochEdge) -> None:
    """Instrument the loader again when the trainer makes a new one after running out of memory."""
    build = getattr(trainer, "_build_train_pipeline", None)
    if build is None:
        return

    def rebuild(*arguments: Any, **named: Any) -> Any:
        result = build(*arguments, **named)
        recorder.folder.note(f"out of memory: the trainer went on with batch {trainer.batch_size}")
        _attach_loader(trainer, recorder, edge)
        recorder.configure(**trainer_configuration(trainer))
        return result

    _replace(recorder, trainer, "_build_train_pipeline", rebuild)


def trainer_configuration(trainer: Any) -> dict[str, Any]:
    """Read the settings that matter for speed from a trainer, as they are in effect.

    Args:
        trainer: An Ultralytics trainer after ``on_pretrain_routine_end``.
    """
    import torch

    arguments = trainer.args
    loader = trainer.train_loader
    optimizer = trainer.optimizer
    group = optimizer.param_groups[0]
    parameters = list(trainer.model.parameters())
    channels_last = any(
        value.dim() == 4 and value.shape[1] > 1 and value.is_contiguous(memory_format=torch.channels_last)
        for value in parameters
        if value.dim() == 4 and value.shape[2] > 1
    )
    dataset = loader.dataset
    return {
        "model": _file_name(arguments.model),
        "parameters": sum(value.numel() for value in parameters),
        "batch": int(trainer.batch_size),
        "imgsz": int(arguments.imgsz),
        "workers": int(loader.num_workers),
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)) or hasattr(loader, "reset"),
        "amp": bool(trainer.amp),
        "amp_setting": str(arguments.amp),
        "accumulate": int(trainer.accumulate),
        "device": str(trainer.device),
        "optimizer": type(optimizer).__name__,
        "optimizer_fused": group.get("fused"),
        "optimizer_foreach": group.get("foreach"),
        "channels_last": bool(channels_last),
        "data": _file_name(arguments.data),
        "images": len(dataset),
        "batches_per_epoch": len(loader),
        "last_batch": len(dataset) % loader.batch_size or loader.batch_size,
        "world_size": max(int(trainer.world_size), 1),
        **{
            name: getattr(arguments, name, None)
            for name in (
                "mosaic", "mixup", "copy_paste", "multi_scale", "compile", "rect", "cache", "deterministic",
                "val", "save", "plots", "degrees", "perspective", "nbs",
            )
        },
    }  # fmt: skip


def _file_name(value: Any) -> str | None:
    return None if value is None else str(value).replace("\\", "/").rsplit("/", 1)[-1]
