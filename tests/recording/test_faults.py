"""The faults that can be reproduced."""

from __future__ import annotations

import re

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.faults import catalogue, make_faults

NAMES = (
    "single-process-loader", "slow-storage", "few-workers", "low-prefetch", "no-persistence", "heavy-mosaic",
    "pageable", "blocking", "tiny-copies", "item-per-step", "device-sync", "print-tensor", "anomaly-mode",
    "empty-cache", "multi-scale", "memory-cap", "fragmentation", "creep", "amp-off", "batch-small",
    "channels-last-off", "unfused-optimizer", "gc-storm", "validate-every-step", "checkpoint-every-step",
    "log-every-step", "lazy-loading", "healthy",
)  # fmt: skip


def test_every_fault_is_there_under_its_name() -> None:
    assert set(catalogue()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_names_the_cause_it_reproduces(name: str) -> None:
    [fault] = make_faults((name,))
    assert re.fullmatch(r"TA\d{3}", fault.code)
    assert fault.about


def test_an_unknown_fault_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown fault 'slow'; known are .*slow-storage"):
        make_faults(("slow",))


def test_a_slow_read_counts_as_reading() -> None:
    from types import SimpleNamespace

    from traceanalyzer.recording.loader_timing import LoaderClock, time_transforms

    clock = LoaderClock()
    dataset = SimpleNamespace(load_image=lambda index: index, transforms=None)
    time_transforms(dataset, clock)
    [fault] = make_faults(("slow-storage",))
    fault.prepare(SimpleNamespace(train_loader=SimpleNamespace(dataset=dataset)))
    assert dataset.load_image(7) == 7
    assert clock.take()["parts"]["load_image"]["ns"] >= 25_000_000


def test_an_optimizer_built_fused_steps_under_a_gradient_scaler_without_its_fused_kernels() -> None:
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    [fault] = make_faults(("unfused-optimizer",))
    fault.prepare(SimpleNamespace(optimizer=optimizer))
    plain = torch.nn.Parameter(torch.ones(3))
    expected = torch.optim.AdamW([plain], lr=0.1, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    scaler.scale((weight * torch.arange(3.0)).sum()).backward()
    scaler.step(optimizer)
    (plain * torch.arange(3.0)).sum().backward()
    expected.step()

    assert torch.equal(weight, plain)
