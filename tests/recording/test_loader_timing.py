"""Worker time is measured in the workers."""

from __future__ import annotations

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

from traceanalyzer.recording.loader_timing import LoaderClock, TimedPart, time_loader, time_transforms  # noqa: E402

pytestmark = pytest.mark.torch

SAMPLE_S = 0.01


class SlowSamples(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        time.sleep(SAMPLE_S)
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batchs_time_is_the_time_its_samples_took(workers: int) -> None:
    clock = LoaderClock()
    loader = DataLoader(SlowSamples(), batch_size=3, num_workers=workers)
    assert time_loader(loader, clock) is None
    batches = [batch.tolist() for batch in loader]
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    taken = clock.take()
    assert taken["batches"] == 4
    assert len(taken["batch_ns"]) == 4
    assert min(taken["batch_ns"]) >= 3 * SAMPLE_S * 1e9
    assert sum(taken["batch_ns"]) == taken["worker_ns"]
    assert taken["parts"]["collate"]["calls"] == 4


def test_taking_twice_counts_nothing_twice() -> None:
    clock = LoaderClock()
    loader = DataLoader(SlowSamples(), batch_size=6)
    time_loader(loader, clock)
    list(loader)
    assert clock.take()["batches"] == 2
    assert clock.take()["batches"] == 0


def test_an_iterable_data_set_is_said_not_to_be_timed() -> None:
    problem = time_loader(DataLoader(Stream()), LoaderClock())
    assert problem is not None
    assert "iterable" in problem


def test_a_loader_whose_workers_run_already_is_left_alone() -> None:
    loader = DataLoader(SlowSamples(), batch_size=6, num_workers=1, persistent_workers=True)
    list(loader)
    assert "already started" in (time_loader(loader, LoaderClock()) or "")


def test_a_parts_time_excludes_the_parts_inside_it() -> None:
    clock = LoaderClock()
    inner = TimedPart(lambda: time.sleep(0.03), clock, clock.part("inner"))

    def work() -> None:
        time.sleep(0.01)
        inner()

    TimedPart(work, clock, clock.part("outer"))()
    parts = clock.take()["parts"]
    inner_ns, outer_ns = parts["inner"]["ns"], parts["outer"]["ns"]
    assert inner_ns >= 30_000_000
    assert 10_000_000 <= outer_ns < 30_000_000


class Twice:
    def __call__(self, value: int) -> int:
        return 2 * value


class Composed:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, value: int) -> int:
        for transform in self.transforms:
            value = transform(value)
        return value


class Images:
    def __init__(self) -> None:
        self.transforms = Composed([Composed([Twice()]), Twice()])

    def load_image(self, index: int) -> int:
        return index


def test_every_transform_is_timed_and_still_does_its_work() -> None:
    clock = LoaderClock()
    images = Images()
    time_transforms(images, clock)
    time_transforms(images, clock)
    assert images.transforms(images.load_image(3)) == 12
    assert clock.parts == ["load_image", "Twice"]
    parts = clock.take()["parts"]
    assert {name: part["calls"] for name, part in parts.items()} == {"load_image": 1, "Twice": 2}
    assert clock.take()["parts"] == {}


def test_a_transform_that_never_acts_is_left_alone() -> None:
    images, idle = Images(), Twice()
    idle.p = 0.0  # type: ignore[attr-defined]
    images.transforms.transforms.append(idle)
    time_transforms(images, LoaderClock())
    assert images.transforms.transforms[-1] is idle


def test_timing_costs_less_than_a_hundredth_of_a_batch() -> None:
    plain = DataLoader(SlowSamples(), batch_size=3)
    timed = DataLoader(SlowSamples(), batch_size=3)
    clock = LoaderClock()
    time_loader(timed, clock)
    # The sleeping samples hide scheduling noise; what timing adds is the work per batch around them.
    start = time.perf_counter_ns()
    fetch, collate = timed.dataset.__getitems__, timed.collate_fn  # type: ignore[attr-defined]
    for _ in range(2000):
        collate(fetch([]) or [1])
    added_ns = (time.perf_counter_ns() - start) / 2000
    start = time.perf_counter_ns()
    for _ in range(2000):
        plain.collate_fn([1])
    bare_ns = (time.perf_counter_ns() - start) / 2000
    assert added_ns - bare_ns < 0.01 * 3 * SAMPLE_S * 1e9
