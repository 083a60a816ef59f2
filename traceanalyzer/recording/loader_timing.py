"""How long loader workers work on a batch, and on what, timed where the work happens.

The numbers travel through a block of shared memory made before the workers start: each worker adds to its own row, so
there are no locks and the batch itself is not touched. Within a batch they are kept in the parts themselves, because a
part is called hundreds of times. A part's time excludes the parts inside it (mosaic loads further images; those count
as ``load_image``).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any

MAX_WORKERS = 256
MAX_PARTS = 30
_HISTORY = 512  # batch times kept per worker
_BATCHES, _TOTAL = 0, 1
_PARTS_START = 2
_HISTORY_START = _PARTS_START + 2 * MAX_PARTS  # per part: time and calls
_ROW = _HISTORY_START + _HISTORY
_now = time.perf_counter_ns


class LoaderClock:
    """Shared counters, one row per worker; all times in nanoseconds.

    Attributes:
        parts: Names of the timed parts, by index.
    """

    def __init__(self) -> None:
        self.cells: Any = multiprocessing.RawArray(ctypes.c_int64, MAX_WORKERS * _ROW)
        self.parts: list[str] = []
        self._seen = [0] * (MAX_WORKERS * _ROW)

    def part(self, name: str) -> int:
        """Return the index of a part, adding it; parts must be named before workers start."""
        if name not in self.parts:
            if len(self.parts) == MAX_PARTS:
                raise ValueError(f"more than {MAX_PARTS} loader parts")
            self.parts.append(name)
        return self.parts.index(name)

    def take(self) -> dict[str, Any]:
        """Return what the workers did since the last call.

        Returns:
            ``batches``; ``worker_ns``, summed over them; ``batch_ns``, the most recent ones' times; ``parts``: name →
            ``ns`` and ``calls``.
        """
        _write_parts()
        now = list(self.cells)
        before, self._seen = self._seen, now
        batches = total = 0
        times: list[int] = []
        part_ns = [0] * len(self.parts)
        part_calls = [0] * len(self.parts)
        for row in range(0, MAX_WORKERS * _ROW, _ROW):
            if now[row : row + _HISTORY_START] == before[row : row + _HISTORY_START]:
                continue
            fresh = now[row + _BATCHES] - before[row + _BATCHES]
            batches += fresh
            total += now[row + _TOTAL] - before[row + _TOTAL]
            for index in range(len(self.parts)):
                cell = row + _PARTS_START + 2 * index
                part_ns[index] += now[cell] - before[cell]
                part_calls[index] += now[cell + 1] - before[cell + 1]
            last = now[row + _BATCHES]
            recent = range(last - min(fresh, _HISTORY), last)
            times.extend(now[row + _HISTORY_START + number % _HISTORY] for number in recent)
        return {
            "batches": batches,
            "worker_ns": total,
            "batch_ns": times,
            "parts": {
                name: {"ns": part_ns[index], "calls": part_calls[index]}
                for index, name in enumerate(self.parts)
                if part_calls[index]
            },
        }


_nested: list[int] = []
"""Per process: time already charged to parts inside each open part."""
_used: list[TimedPart] = []
"""Per process: parts called since their numbers were last written."""


def _row_start() -> int:
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    return 0 if worker is None else (int(worker.id) % MAX_WORKERS) * _ROW


def _write_parts() -> None:
    """Add what the parts called in this process hold to the shared counters."""
    if not _used:
        return
    row = _row_start()
    for part in _used:
        cell = row + part.cell
        part.cells[cell] += part.own_ns
        part.cells[cell + 1] += part.calls
        part.own_ns = part.calls = 0
    _used.clear()


class TimedPart:
    """A callable whose own time is charged to a part; everything else is the wrapped object's.

    Args:
        inner: The callable.
        clock: Shared counters.
        part: Index of the part.
    """

    def __init__(self, inner: Callable[..., Any], clock: LoaderClock, part: int) -> None:
        self.inner = inner
        self.cells = clock.cells
        self.cell = _PARTS_START + 2 * part
        self.own_ns = self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the wrapped object and charge the time."""
        start = _now()
        _nested.append(0)
        try:
            return self.inner(*arguments, **named)
        finally:
            spent = _now() - start
            self.own_ns += spent - _nested.pop()
            if _nested:
                _nested[-1] += spent
            if not self.calls:
                _used.append(self)
            self.calls += 1

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.inner, name)


class TimedFetch:
    """A dataset's ``__getitems__``: fetches one batch's samples and opens the batch's time.

    Args:
        dataset: A map-style dataset.
        clock: Shared counters.
        fetch: The dataset's own ``__getitems__``, where it has one.
    """

    def __init__(self, dataset: Any, clock: LoaderClock, fetch: Callable[..., Any] | None) -> None:
        self.dataset = dataset
        self.cells = clock.cells
        self.fetch = fetch

    def __call__(self, indices: Sequence[int]) -> Any:
        """Return the samples."""
        start = time.perf_counter_ns()
        samples = self.fetch(indices) if self.fetch is not None else [self.dataset[index] for index in indices]
        _open_batch(self.cells, time.perf_counter_ns() - start)
        return samples


class TimedCollate:
    """A collate function that closes the batch's time.

    Args:
        inner: The collate function.
        clock: Shared counters.
        part: Index of the part the collation is charged to.
    """

    def __init__(self, inner: Callable[[Any], Any], clock: LoaderClock, part: int) -> None:
        self.timed = TimedPart(inner, clock, part)
        self.cells = clock.cells

    def __call__(self, samples: Any) -> Any:
        """Collate and add the batch to this worker's row."""
        start = time.perf_counter_ns()
        batch = self.timed(samples)
        _write_parts()
        row = _row_start()
        number = self.cells[row + _BATCHES]
        spent = _pending_ns.pop() if _pending_ns else 0
        spent += time.perf_counter_ns() - start
        self.cells[row + _HISTORY_START + number % _HISTORY] = spent
        self.cells[row + _TOTAL] += spent
        self.cells[row + _BATCHES] = number + 1
        return batch


_pending_ns: list[int] = []
"""Per process: fetch time of the batch that is about to be collated."""


def _open_batch(cells: Any, fetch_ns: int) -> None:
    _pending_ns[:] = [fetch_ns]


def time_loader(loader: Any, clock: LoaderClock) -> str | None:
    """Time a DataLoader's batches; its workers must not have started.

    Args:
        loader: A ``torch.utils.data.DataLoader``.
        clock: Shared counters.

    Returns:
        Why it cannot be timed, or None when it is.
    """
    from torch.utils.data import IterableDataset

    dataset = getattr(loader, "dataset", None)
    if dataset is None or getattr(loader, "collate_fn", None) is None:
        return "the loader is not a DataLoader: worker seconds are not measured"
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return "an iterable data set fetches no batches by index: worker seconds are not measured"
    if isinstance(loader.collate_fn, TimedCollate):
        return None
    if getattr(loader, "_iterator", None) is not None or getattr(loader, "iterator", None) is not None:
        return "the loader's workers had already started: worker seconds are not measured"
    try:
        dataset.__getitems__ = TimedFetch(dataset, clock, getattr(dataset, "__getitems__", None))
    except AttributeError:
        return "the data set takes no attributes: worker seconds are not measured"
    loader.collate_fn = TimedCollate(loader.collate_fn, clock, clock.part("collate"))
    return None


def time_transforms(dataset: Any, clock: LoaderClock) -> None:
    """Time an Ultralytics data set's image loading and each of its transforms.

    Args:
        dataset: A data set with ``load_image`` and a composed ``transforms``.
        clock: Shared counters.
    """
    if hasattr(dataset, "load_image") and not isinstance(dataset.load_image, TimedPart):
        dataset.load_image = TimedPart(dataset.load_image, clock, clock.part("load_image"))
    _time_composed(getattr(dataset, "transforms", None), clock)


def _time_composed(composed: Any, clock: LoaderClock) -> None:
    steps = getattr(composed, "transforms", None)
    if not isinstance(steps, list):
        return
    for index, step in enumerate(steps):
        # one that never acts is called for every sample all the same; timing it would cost more than it does
        if isinstance(step, TimedPart) or getattr(step, "p", None) == 0:
            continue
        if isinstance(getattr(step, "transforms", None), list):
            _time_composed(step, clock)
            continue
        _time_composed(getattr(step, "pre_transform", None), clock)
        steps[index] = TimedPart(step, clock, clock.part(type(step).__name__))
