"""Each fault reproduces one root cause in the real trainer, so that a rule can be checked against a known answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.schedule import Stage

if TYPE_CHECKING:
    from traceanalyzer.recording.recorder import Recorder

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FaultSettings:
    """How a fault changes the run before it starts.

    Attributes:
        trainer: Ultralytics settings.
        run: Fields of the recorder's own options (``images``, ``memory`` …).
        environment: Variables CUDA reads when it starts.
    """

    trainer: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    run: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    environment: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


class Fault:
    """Base of all faults.

    Attributes:
        name: Name on the command line.
        code: Code of the root cause it reproduces.
        about: One sentence.
        needs_cuda: Whether it has no effect without a CUDA device.
        phase: Names a part of the step, where a recorder listens.
        settings: Changes made before the run starts.
    """

    name: ClassVar[str]
    code: ClassVar[str]
    about: ClassVar[str]
    needs_cuda: ClassVar[bool] = False
    settings: ClassVar[FaultSettings] = FaultSettings()
    phase: Callable[[str], AbstractContextManager[None]] = staticmethod(lambda _: nullcontext())

    def prepare(self, trainer: Any) -> None:
        """Change the trainer once its model and loaders exist, before the first batch."""

    def after_warm_up(self, trainer: Any) -> None:
        """Change the trainer once its memory need is known."""

    def each_step(self, trainer: Any) -> None:
        """Do harm at the end of every step."""

    def each_epoch(self, trainer: Any) -> None:
        """Do harm at the start of every epoch."""

    def on_batch(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Do harm to a batch before it is moved to the device."""

    def undo(self) -> None:
        """Put process-wide state back."""


def uses_cuda(trainer: Any) -> bool:
    """Return whether the trainer trains on a CUDA device."""
    return str(trainer.device.type) == "cuda"


def catalogue() -> dict[str, type[Fault]]:
    """Return every fault by name."""
    from traceanalyzer.recording import faults_device, faults_loader, faults_memory

    found = (*faults_loader.FAULTS, *faults_device.FAULTS, *faults_memory.FAULTS)
    return {fault.name: fault for fault in found}


def make_faults(names: tuple[str, ...]) -> list[Fault]:
    """Return the faults with these names.

    Raises:
        UsageError: A name is not known.
    """
    known = catalogue()
    for name in names:
        if name not in known:
            raise UsageError(f"unknown fault {name!r}; known are {', '.join(known)}")
    return [known[name]() for name in names]


def install(faults: list[Fault], trainer: Any, recorder: Recorder) -> None:
    """Let faults act on a trainer that has built its model and loaders.

    Args:
        faults: The faults.
        trainer: An Ultralytics trainer.
        recorder: The recorder already attached to it.
    """
    for fault in faults:
        fault.phase = recorder.phase
        recorder.undo_later(fault.undo)
        fault.prepare(trainer)
        if type(fault).each_step is not Fault.each_step:
            trainer.add_callback("on_train_batch_end", fault.each_step)
        if type(fault).each_epoch is not Fault.each_epoch:
            trainer.add_callback("on_train_epoch_start", fault.each_epoch)
    original = trainer.preprocess_batch

    def preprocess(batch: dict[str, Any]) -> Any:
        for fault in faults:
            fault.on_batch(trainer, batch)
        return original(batch)

    def spoil_when_warm(stage: Stage) -> None:
        if stage is Stage.UNPROFILED:
            for fault in faults:
                fault.after_warm_up(trainer)

    trainer.preprocess_batch = preprocess
    recorder.on_stage.append(spoil_when_warm)
