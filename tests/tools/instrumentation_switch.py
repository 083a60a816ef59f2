"""Everything the recorder puts into a training, to be taken out and put back between two steps.

The recorder attaches once. What it changed is found by comparing the objects it touches before and after, so that
"off" is the trainer as it was, with no wrapper left that only does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traceanalyzer.recording.recorder import Recorder

_MISSING = object()
_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip


class Difference:
    """What happens to some objects between two moments, to be undone and done again.

    Args:
        owners: Objects whose attributes are compared by identity.
        containers: Lists and dicts whose content is compared.
    """

    def __init__(self, owners: Sequence[Any], containers: Sequence[Any]) -> None:
        self._owners = [(owner, dict(vars(owner))) for owner in owners]
        self._containers = [(container, container.copy()) for container in containers]
        self._attributes: list[tuple[Any, str, Any, Any]] = []
        self._contents: list[tuple[Any, Any, Any]] = []

    def close(self, leave: tuple[str, ...] = ()) -> None:
        """Take the second look.

        Args:
            leave: Names of attributes that are not to be exchanged.
        """
        for owner, before in self._owners:
            after = dict(vars(owner))
            for name in {*before, *after} - set(leave):
                was, now = before.get(name, _MISSING), after.get(name, _MISSING)
                if was is not now:
                    self._attributes.append((owner, name, now, was))
        for container, before in self._containers:
            if list(container) != list(before):
                self._contents.append((container, container.copy(), before))

    @property
    def names(self) -> list[str]:
        """Names of the exchanged attributes, and the number of containers."""
        return [*(name for _, name, _, _ in self._attributes), f"{len(self._contents)} lists and tables"]

    def set(self, on: bool) -> None:
        """Put everything into the later state (``on``) or the earlier one."""
        for owner, name, now, was in self._attributes:
            value = now if on else was
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        for container, after, before in self._contents:
            container.clear()
            content = after if on else before
            container.extend(content) if isinstance(container, list) else container.update(content)


def model_hooks(model: Any) -> list[Any]:
    """Return the tables of hooks of a module."""
    return [getattr(model, name) for name in _HOOKS if hasattr(model, name)]


def transform_lists(composed: Any) -> list[list[Any]]:
    """Return every list of transforms below a composed one."""
    steps = getattr(composed, "transforms", None)
    if not isinstance(steps, list):
        return []
    found = [steps]
    for step in steps:
        found += transform_lists(step) + transform_lists(getattr(step, "pre_transform", None))
    return found


class LoaderSwitch:
    """Exchanges a data set's timed parts at the start of a batch, in the process that makes the batch.

    A flag in shared memory says which half is wanted. Reading it, and two thin calls around the batch, are there in
    both states alike.

    Args:
        loader: A DataLoader whose workers have not started and which is not instrumented yet.
    """

    def __init__(self, loader: Any) -> None:
        self.flag: Any = multiprocessing.RawValue(ctypes.c_int8, 0)
        self._loader = loader
        self._bare_fetch = getattr(loader.dataset, "__getitems__", None)
        self._bare_collate = loader.collate_fn
        transforms = getattr(loader.dataset, "transforms", None)
        self.difference = Difference([loader.dataset], transform_lists(transforms))
        self.is_on = True  # as the recorder leaves it

    def install(self) -> None:
        """Take over from the recorder, which has instrumented the loader meanwhile."""
        dataset = self._loader.dataset
        self.difference.close(leave=("__getitems__",))
        self._timed_fetch, self._timed_collate = dataset.__getitems__, self._loader.collate_fn
        dataset.__getitems__ = self.fetch
        self._loader.collate_fn = self.collate

    def fetch(self, indices: Sequence[int]) -> Any:
        """Return the samples of a batch, timed or bare."""
        wanted = bool(self.flag.value)
        if wanted != self.is_on:
            self.difference.set(wanted)
            self.is_on = wanted
        if wanted:
            return self._timed_fetch(indices)
        if self._bare_fetch is not None:
            return self._bare_fetch(indices)
        return [self._loader.dataset[index] for index in indices]

    def collate(self, samples: Any) -> Any:
        """Collate a batch as it was fetched."""
        return self._timed_collate(samples) if self.is_on else self._bare_collate(samples)


class SamplerGate:
    """Stands for the event a GPU sampler waits on, and lets it sample when asked to instead of by the clock.

    Whether a step holds a sample is then known, and independent of whether the recorder is on.

    Args:
        longest_delay_s: A sample begins up to this long after it was asked for, so that it meets every part of a step.
        seed: Of the delays.
    """

    def __init__(self, longest_delay_s: float = 0.04, seed: int = 0) -> None:
        self._wanted = threading.Event()
        self._end = threading.Event()
        self._longest_s, self._random = longest_delay_s, random.Random(seed)

    def wait(self, _: float) -> bool:
        """Wait until a sample is wanted or the end has come; return whether it is the end."""
        self._wanted.wait()
        self._wanted.clear()
        return self._end.wait(self._random.uniform(0, self._longest_s))

    def ask(self) -> None:
        """Ask for a sample."""
        self._wanted.set()

    def set(self) -> None:
        """End the sampler."""
        self._end.set()
        self._wanted.set()


class DosedRecorder(Recorder):
    """A recorder whose timers and events act several times, to see a small cost through large noise.

    Args:
        out: The run folder; those of the further recorders get a number.
        dose: How many times.
        **settings: As ``Recorder`` takes them.
    """

    def __init__(self, out: Path, *, dose: int, **settings: Any) -> None:
        super().__init__(out, **settings)
        further = {**settings, "sample_gpu": False}
        self._more = [Recorder(out.with_name(f"{out.name}-{number}"), **further) for number in range(1, dose)]

    def begin_step(self) -> bool:
        """Open a step."""
        for one in self._more:
            one.begin_step()
        return super().begin_step()

    def end_step(self) -> None:
        """Close the step."""
        super().end_step()
        for one in self._more:
            one.end_step()

    def push(self, name: str) -> None:
        """Open a phase."""
        for one in self._more:
            one.push(name)
        super().push(name)

    def pop(self) -> None:
        """Close the innermost phase."""
        super().pop()
        for one in self._more:
            one.pop()

    def finish(self, error: BaseException | None = None) -> None:
        """Write the run folders."""
        super().finish(error)
        for one in self._more:
            one.finish(error)

    def free_events(self) -> None:
        """Read the device events so far, which makes them free for the next steps."""
        for one in (self, *self._more):
            if one._events is not None:
                one._events.resolve(one._unprofiled)


class Switch:
    """Turns all instrumentation of a trainer on and off between two steps.

    Args:
        trainer: An Ultralytics trainer that has built its model and loaders.
        recorder: The recorder, not attached yet.
        attach: Attaches the recorder to the trainer.
    """

    def __init__(self, trainer: Any, recorder: DosedRecorder, attach: Callable[[Any, Recorder], None]) -> None:
        import torch
        from ultralytics.utils.torch_utils import unwrap_model

        self._recorder, self._model = recorder, unwrap_model(trainer.model)
        self.gate = SamplerGate()
        if recorder._sampler is not None:
            recorder._sampler._stop = self.gate  # type: ignore[assignment]
        owners = [trainer, trainer.ema, self._model, torch.Tensor]
        lists = [trainer.callbacks[name] for name in ("on_train_batch_end", "on_train_epoch_end")]
        self.loader = LoaderSwitch(trainer.train_loader)
        self.base = type(trainer.train_loader)
        self.difference = Difference(owners, [*lists, *model_hooks(trainer.model), gc.callbacks])
        recorder.__enter__()
        attach(trainer, recorder)
        trainer.train_loader.__class__ = self.base
        self.loader.install()
        self.difference.close(leave=("criterion",))
        self.is_on = True

    def close(self) -> None:
        """Put everything back, for the recorder to take out what it finds."""
        self.set(True)
        self._recorder.finish()

    def set(self, on: bool) -> None:
        """Switch.

        Exchanging attributes of a class throws away what the interpreter remembers about it. Every call goes through
        both states, so that this falls on every step alike.
        """
        self._swap(not on)
        self._swap(on)
        self.loader.flag.value = on

    def _swap(self, on: bool) -> None:
        if on != self.is_on:
            self.is_on = on
            self.difference.set(on)
            self._set_criterion(on)

    def _set_criterion(self, on: bool) -> None:
        """The loss is made by the first step; afterwards it is wrapped or not."""
        from traceanalyzer.recording.yolo_hooks import _NamedCriterion

        criterion = getattr(self._model, "criterion", None)
        if criterion is None:
            return
        wrapped = isinstance(criterion, _NamedCriterion)
        if on and not wrapped:
            self._model.criterion = _NamedCriterion(criterion, self._recorder)
        elif not on and wrapped:
            self._model.criterion = criterion.inner
