"""Logging to Weights & Biases, against a stand-in for the package."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from traceanalyzer.recording.recorder import Recorder
from traceanalyzer.recording.schedule import Schedule
from traceanalyzer.recording.yolo import UltralyticsCallback, log_to_wandb

pytestmark = pytest.mark.torch


class FakeWandb(ModuleType):
    """The part of the package that is used: ``run`` and ``log``."""

    def __init__(self, run: object | None) -> None:
        super().__init__("wandb")
        self.run = run
        self.logged: list[dict[str, float]] = []

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)


def measure(out: Path) -> Recorder:
    """Run three bare steps with one phase each."""
    with Recorder(
        out, schedule=Schedule(warm_up=1, unprofiled=3, recorded=0), profiler="none", sample_gpu=False
    ) as recorder:
        for _ in recorder.steps(range(6)):
            with recorder.phase("forward"):
                sum(range(1000))
    return recorder


def test_an_active_run_gets_the_mean_times_that_the_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = FakeWandb(run=object())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log_to_wandb(measure(tmp_path / "RUN"))
    [values] = wandb.logged
    [one] = json.loads((tmp_path / "RUN" / "run.json").read_text())["passes"]
    bare = one["unprofiled"]
    assert values["traceanalyzer/unprofiled_step_ms"] == pytest.approx(statistics.mean(bare["step_ns"]) / 1e6)
    assert values["traceanalyzer/unprofiled_forward_ms"] == pytest.approx(
        statistics.mean(bare["phase_ns"]["forward"]) / 1e6
    )


def test_without_an_active_run_nothing_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb(run=None)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log_to_wandb(measure(tmp_path / "RUN"))
    assert wandb.logged == []


def test_the_package_is_not_imported_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    log_to_wandb(measure(tmp_path / "RUN"))
    assert "wandb" not in sys.modules


def test_the_callback_logs_when_its_recording_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb(run=object())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("traceanalyzer.recording.yolo.attach", lambda trainer, recorder: None)
    recorder = Recorder(
        tmp_path / "RUN",
        schedule=Schedule(warm_up=0, unprofiled=2, recorded=0),
        profiler="none",
        sample_gpu=False,
    )
    endings: list[Any] = []
    trainer = SimpleNamespace(add_callback=lambda name, function: endings.append(function))
    UltralyticsCallback(recorder)(trainer)
    for _ in recorder.steps(range(4)):
        pass
    for ending in endings:
        ending(trainer)
    [values] = wandb.logged
    assert values["traceanalyzer/unprofiled_step_ms"] > 0
