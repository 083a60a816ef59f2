"""Faults of the input pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from traceanalyzer.recording.faults import Fault, FaultSettings
from traceanalyzer.recording.loader_timing import TimedPart


class SingleProcessLoader(Fault):
    """Batches are made on the training thread."""

    name: ClassVar[str] = "single-process-loader"
    code: ClassVar[str] = "TA101"
    about: ClassVar[str] = "workers=0: the training thread decodes and augments every batch itself"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"workers": 0})


class SlowCall:
    """A callable that waits first, as slow storage does.

    Args:
        inner: The callable.
        seconds: Wait before each call.
    """

    def __init__(self, inner: Callable[..., Any], seconds: float) -> None:
        self.inner = inner
        self.seconds = seconds

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Wait, then call."""
        time.sleep(self.seconds)
        return self.inner(*arguments, **named)


class SlowStorage(Fault):
    """Every image takes 25 ms longer to come from disk."""

    name: ClassVar[str] = "slow-storage"
    code: ClassVar[str] = "TA102"
    about: ClassVar[str] = "each image read waits 25 ms, as a network share or a spinning disk does"
    seconds: ClassVar[float] = 0.025

    def prepare(self, trainer: Any) -> None:
        """Delay the data set's image reads, in whichever process does them."""
        dataset = trainer.train_loader.dataset
        if isinstance(dataset.load_image, TimedPart):  # the wait belongs to the reading that is being timed
            dataset.load_image.inner = SlowCall(dataset.load_image.inner, self.seconds)
        else:
            dataset.load_image = SlowCall(dataset.load_image, self.seconds)


class FewWorkers(Fault):
    """One worker where many are needed."""

    name: ClassVar[str] = "few-workers"
    code: ClassVar[str] = "TA102"
    about: ClassVar[str] = "workers=1: the only worker takes longer for a batch than the step"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"workers": 1})


class LowPrefetch(Fault):
    """Workers may run only one batch ahead, and one batch in eight is slow."""

    name: ClassVar[str] = "low-prefetch"
    code: ClassVar[str] = "TA103"
    about: ClassVar[str] = "prefetch_factor=1 with three workers: the queue runs dry in a rhythm"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"workers": 3})

    def prepare(self, trainer: Any) -> None:
        """Shorten the queue before its workers start."""
        if trainer.train_loader.num_workers:
            trainer.train_loader.prefetch_factor = 1


class NoPersistence(Fault):
    """Workers are thrown away at the end of each short epoch."""

    name: ClassVar[str] = "no-persistence"
    code: ClassVar[str] = "TA104"
    about: ClassVar[str] = "the loader starts its workers anew every epoch of four batches"
    settings: ClassVar[FaultSettings] = FaultSettings(run={"batches_per_epoch": 4})

    def each_epoch(self, trainer: Any) -> None:
        """Discard the workers."""
        trainer.train_loader.reset()


class HeavyMosaic(Fault):
    """Augmentation dominates the workers' time."""

    name: ClassVar[str] = "heavy-mosaic"
    code: ClassVar[str] = "TA105"
    about: ClassVar[str] = "mosaic on every image, mixed up with a second mosaic, full warp; two workers"
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={"mosaic": 1.0, "mixup": 1.0, "degrees": 20.0, "shear": 10.0, "perspective": 0.0005, "workers": 2}
    )


FAULTS: tuple[type[Fault], ...] = (
    SingleProcessLoader,
    SlowStorage,
    FewWorkers,
    LowPrefetch,
    NoPersistence,
    HeavyMosaic,
)
