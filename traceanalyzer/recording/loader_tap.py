"""Batches for trials, taken from a training's own loader, and served to the training again afterwards."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from traceanalyzer.recording.training_state import random_state, set_random_state

_MOST_BYTES = 16 << 30
_MEMORY_SHARE = 0.25


class OutOfBatches(Exception):  # noqa: N818 - it ends trials, as StopIteration ends a loop
    """No further batch may be kept for the training."""


class _Served:
    """An iterator that gives kept batches first; everything else is the iterator's own.

    Args:
        kept: Batches in the order they were taken.
        inner: The loader's iterator.
    """

    def __init__(self, kept: deque[Any], inner: Any) -> None:
        self.kept = kept
        self.inner = inner

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.kept.popleft() if self.kept else next(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "kept"):
            raise AttributeError(name)
        return getattr(self.inner, name)


class LoaderTap:
    """Takes batches from a loader that keeps its iterator from epoch to epoch (Ultralytics' does).

    With worker processes the batches taken are kept and served again; a loader without workers is put back to where it
    was, because its batches depend on random numbers the training draws from too.

    Args:
        loader: The loader; its ``iterator`` exists.
        keep: Whether the training goes on afterwards. Otherwise batches are not kept.
        limit_bytes: Bytes that may be kept; by default a quarter of the free memory, at most 16 GiB.
    """

    def __init__(self, loader: Any, *, keep: bool, limit_bytes: int | None = None) -> None:
        self._loader = loader
        self._iterator = loader.iterator
        self._in_process = not getattr(loader, "num_workers", 0)
        self._keep = keep and not self._in_process
        self._left = _free_share() if limit_bytes is None else limit_bytes
        self._kept: deque[Any] = deque()
        self._rewind = _remember(self._iterator, loader.dataset) if keep and self._in_process else None

    def fetch(self) -> Any:
        """Return the next batch.

        Raises:
            OutOfBatches: Too much would have to be kept.
        """
        if self._keep and self._left <= 0:
            raise OutOfBatches("the batches to be served again would fill the memory set aside for them")
        batch = next(self._iterator)
        if self._keep:
            # The step may put other things into the dict; what lies in it stays as the loader made it.
            self._kept.append(copy.copy(batch))
            self._left -= size_of(batch)
        return batch

    def ready(self) -> int:
        """Return the number of batches that wait to be taken; 0 where that cannot be known."""
        queue = getattr(self._iterator, "_data_queue", None)
        try:
            waiting = queue.qsize() if queue is not None else 0
        except NotImplementedError:  # macOS has no way to count a process queue
            return 0
        early = getattr(self._iterator, "_task_info", {})
        return waiting + sum(len(entry) > 1 for entry in list(early.values()))

    def drain(self, wanted: int) -> None:
        """Take batches until no more wait than before."""
        for _ in range(self.ready() - wanted):
            self.fetch()

    def give_back(self) -> None:
        """Let the training have the batches."""
        if self._rewind is not None:
            self._rewind()
        elif self._kept:
            self._loader.iterator = _Served(self._kept, self._iterator)


def _remember(iterator: Any, dataset: Any) -> Callable[[], None]:
    """Return what puts an in-process iterator and its data set back to where they are now."""
    lists = {name: list(value) for name, value in vars(dataset).items() if isinstance(value, list)}
    random = random_state()
    draw = iterator._next_index
    drawn: deque[Any] = deque()

    def remembering() -> Any:
        drawn.append(draw())
        return drawn[-1]

    def again() -> Any:
        return drawn.popleft() if drawn else draw()

    iterator._next_index = remembering

    def rewind() -> None:
        iterator._next_index = again
        for name, values in lists.items():
            getattr(dataset, name)[:] = values
        set_random_state(random)

    return rewind


def _free_share() -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4 << 30
    return min(int(_MEMORY_SHARE * free), _MOST_BYTES)


def size_of(batch: Any) -> int:
    """Return the bytes of a batch's tensors."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else (batch,)
    return sum(value.numel() * value.element_size() for value in values if hasattr(value, "element_size"))
