"""Faults of GPU memory."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from traceanalyzer.recording.faults import Fault, FaultSettings, uses_cuda

_WITH_MEMORY = FaultSettings(run={"memory": True})
_MIB = 1 << 20


class EmptyCache(Fault):
    """The allocator's cache is given back after every step."""

    name: ClassVar[str] = "empty-cache"
    code: ClassVar[str] = "TA402"
    about: ClassVar[str] = "torch.cuda.empty_cache() at the end of every step"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = _WITH_MEMORY

    def each_step(self, trainer: Any) -> None:
        """Give the cache back."""
        import torch

        if uses_cuda(trainer):
            torch.cuda.empty_cache()


class MemoryCap(Fault):
    """So little memory that the allocator must free everything and try again."""

    name: ClassVar[str] = "memory-cap"
    code: ClassVar[str] = "TA403"
    about: ClassVar[str] = "after the warm-up memory is capped just above what a step needs, and shapes vary a little"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={"multi_scale": 0.1, "model": "yolo11m.yaml", "batch": 32, "workers": 12},
        run={"memory": True, "warm_up": 24},
    )
    headroom: ClassVar[float] = 1.12

    def after_warm_up(self, trainer: Any) -> None:
        """Cap at the warm-up's peak of allocated memory and a little."""
        import torch

        if uses_cuda(trainer):
            total = torch.cuda.get_device_properties(trainer.device).total_memory
            peak = torch.cuda.max_memory_allocated(trainer.device)
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(min(peak * self.headroom / total, 1.0), trainer.device)

    def undo(self) -> None:
        """Lift the cap."""
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(1.0)


class Fragmentation(Fault):
    """Blocks of all sizes, every other one freed."""

    name: ClassVar[str] = "fragmentation"
    code: ClassVar[str] = "TA404"
    about: ClassVar[str] = "each step keeps one in two of many odd-sized blocks for a while: memory full of holes"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = _WITH_MEMORY

    def prepare(self, trainer: Any) -> None:
        """Seed the sizes."""
        self._random = random.Random(7)
        self._kept: list[Any] = []

    def each_step(self, trainer: Any) -> None:
        """Make blocks, drop every other one, and drop the oldest of those kept."""
        import torch

        blocks = [
            torch.empty(self._random.randrange(1, 40) * _MIB + 512 * index, dtype=torch.uint8, device=trainer.device)
            for index in range(60 if uses_cuda(trainer) else 2)
        ]
        self._kept.append(blocks[::2])
        if len(self._kept) > 12:
            del self._kept[self._random.randrange(0, 6)]

    def undo(self) -> None:
        """Let go of everything."""
        self._kept = []


class Creep(Fault):
    """Something is kept from every step."""

    name: ClassVar[str] = "creep"
    code: ClassVar[str] = "TA406"
    about: ClassVar[str] = "every step's loss is appended to a list with its graph, and so is an input image"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = _WITH_MEMORY

    def prepare(self, trainer: Any) -> None:
        """Start the list."""
        self._kept: list[Any] = []

    def on_batch(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Keep a copy of the input on the device."""
        self._kept.append(batch["img"].to(trainer.device, copy=True))

    def each_step(self, trainer: Any) -> None:
        """Keep the loss."""
        self._kept.append(trainer.loss)

    def undo(self) -> None:
        """Let go of everything."""
        self._kept = []


FAULTS: tuple[type[Fault], ...] = (EmptyCache, MemoryCap, Fragmentation, Creep)
