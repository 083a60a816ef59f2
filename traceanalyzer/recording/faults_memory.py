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


def cap_memory(trainer: Any, size_bytes: int) -> None:
    """Forbid the allocator to hold more than that of the trainer's device."""
    import torch

    total = torch.cuda.get_device_properties(trainer.device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(size_bytes / total, 1.0), trainer.device)


def lift_cap() -> None:
    """Let the allocator have the whole device again."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0)


def ask_for(trainer: Any, size_bytes: int) -> bool:
    """Allocate one block and drop it; return whether there was room."""
    import torch

    try:
        torch.empty(size_bytes, dtype=torch.uint8, device=trainer.device)
    except torch.cuda.OutOfMemoryError:
        return False
    return True


class MemoryCap(Fault):
    """So little memory that the allocator must free everything and try again."""

    name: ClassVar[str] = "memory-cap"
    code: ClassVar[str] = "TA403"
    about: ClassVar[str] = (
        "after the warm-up memory is capped just above what a step needs, and after each step one large block, larger "
        "each time, is asked for: the cache is given up for it, and has to be built again"
    )
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={"model": "yolo11m.yaml", "batch": 32, "workers": 12}, run={"memory": True}
    )
    headroom: ClassVar[float] = 1.25  # of a step's peak: holes in the allocator's segments need some
    block: ClassVar[float] = 0.4  # of it: more than the headroom, so that it never fits beside a step's cache
    growth_bytes: ClassVar[int] = 8 * _MIB  # a block that did not grow would be served from the last one's segment
    block_bytes: int = 0
    capped: bool = False

    def prepare(self, trainer: Any) -> None:
        """Begin to follow the peak."""
        self._peak = 0

    def after_warm_up(self, trainer: Any) -> None:
        """Cap at the last step's peak of allocated memory and a little."""
        if uses_cuda(trainer):
            cap_memory(trainer, int(self._peak * self.headroom))
            self.block_bytes = int(self._peak * self.block)
            self.capped = True

    def each_step(self, trainer: Any) -> None:
        """Note the step's peak while it is free to grow; afterwards ask for the block."""
        import torch

        if not uses_cuda(trainer):
            return
        if self.capped:
            self.block_bytes += self.growth_bytes
            ask_for(trainer, self.block_bytes)
        else:
            self._peak = torch.cuda.max_memory_allocated(trainer.device)
            torch.cuda.reset_peak_memory_stats(trainer.device)

    def undo(self) -> None:
        """Lift the cap."""
        lift_cap()


class Fragmentation(Fault):
    """Blocks of all sizes, every other one freed."""

    name: ClassVar[str] = "fragmentation"
    code: ClassVar[str] = "TA404"
    about: ClassVar[str] = (
        "each step keeps one in two of many odd-sized blocks for a while, under a cap: memory full of holes, in which "
        "a block of the size of all that is free finds no room"
    )
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(run={"memory": True, "warm_up": 18})
    headroom: ClassVar[float] = 1.15  # of what the allocator held after the warm-up
    cap_bytes: int = 0

    def prepare(self, trainer: Any) -> None:
        """Seed the sizes."""
        self._random = random.Random(7)
        self._kept: list[Any] = []

    def after_warm_up(self, trainer: Any) -> None:
        """Cap what the allocator may hold."""
        import torch

        if uses_cuda(trainer):
            self.cap_bytes = int(torch.cuda.max_memory_reserved(trainer.device) * self.headroom)
            cap_memory(trainer, self.cap_bytes)

    def each_step(self, trainer: Any) -> None:
        """Make blocks, drop every other one and the oldest of those kept; then ask for what should be free."""
        import torch

        blocks: list[Any] = []
        for index in range(60 if uses_cuda(trainer) else 2):
            size = self._random.randrange(1, 40) * _MIB + 512 * index
            try:
                blocks.append(torch.empty(size, dtype=torch.uint8, device=trainer.device))
            except torch.cuda.OutOfMemoryError:
                self._kept = self._kept[2:]
        self._kept.append(blocks[::2])
        if len(self._kept) > 12:
            del self._kept[self._random.randrange(0, 6)]
        del blocks
        if self.cap_bytes:
            ask_for(trainer, int(0.9 * (self.cap_bytes - torch.cuda.memory_allocated(trainer.device))))

    def undo(self) -> None:
        """Let go of everything and lift the cap."""
        self._kept = []
        lift_cap()


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
