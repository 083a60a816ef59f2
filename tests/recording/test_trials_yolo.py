"""Trials inside Ultralytics' trainer leave no trace in the training."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ultralytics")

import torch

from traceanalyzer.recording.options import YoloOptions
from traceanalyzer.recording.recorder import Recorder
from traceanalyzer.recording.schedule import Schedule
from traceanalyzer.recording.trial_plan import TrialPlan
from traceanalyzer.recording.yolo import UltralyticsCallback, _make_trainer, _workplace

pytestmark = pytest.mark.torch

TRIED = (
    "reused_batch",
    "callbacks_off",
    "channels_last",
    "fused_optimizer",
    "larger_batch",
    "gc_frozen",
    "item_removed",
)


def train(out: Path, trials: TrialPlan | None, *settings: str, workers: int) -> dict[str, Any]:
    """Train two epochs of four batches and return what the training ended with."""
    options = YoloOptions(
        batch=2, imgsz=32, workers=workers, batches_per_epoch=4, set=("epochs=2", "deterministic=true", *settings)
    )
    with _workplace(options) as place:
        trainer = _make_trainer(options, [], place)
        seen: list[float] = []
        trainer.add_callback("on_train_batch_end", lambda it: seen.append(it.loss.item()))
        recorder = Recorder(
            out, schedule=Schedule(warm_up=1, unprofiled=1, recorded=0), profiler="none", sample_gpu=False
        )
        trainer.add_callback("on_pretrain_routine_end", UltralyticsCallback(recorder, trials))
        trainer.train()
        trainer.train_loader.close()
    return {
        "model": trainer.model.state_dict(),
        "ema": trainer.ema.ema.state_dict(),
        "updates": trainer.ema.updates,
        "optimizer": trainer.optimizer.state_dict(),
        "losses": seen,
        "random": (random.random(), float(np.random.rand()), float(torch.rand(1))),
    }


def flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return every leaf of nested dicts and lists with its path."""
    if isinstance(value, dict):
        return [leaf for key, part in value.items() for leaf in flat(part, f"{name}/{key}")]
    if isinstance(value, list | tuple):
        return [leaf for key, part in enumerate(value) for leaf in flat(part, f"{name}/{key}")]
    return [(name, value)]


@pytest.mark.parametrize(
    ("workers", "settings"),
    [
        (0, ("optimizer=SGD", "nbs=2", "multi_scale=0.5")),
        (2, ("optimizer=AdamW", "nbs=4")),
    ],
)
def test_weights_after_trials_are_what_they_would_have_been_bit_for_bit(
    tmp_path: Path, workers: int, settings: tuple[str, ...]
) -> None:
    plain = train(tmp_path / "plain", None, *settings, workers=workers)
    plan = TrialPlan(names=TRIED, seconds=0.1, steps_per_block=1)
    tried = train(tmp_path / "tried", plan, *settings, workers=workers)
    document = json.loads((tmp_path / "tried" / "run.json").read_text())
    states = {trial["name"]: trial["status"] for trial in document["trials"]}
    assert states["reused_batch"] == states["fused_optimizer"] == states["channels_last"] == "measured", document
    for name in ("model", "ema", "updates", "optimizer", "random"):
        for (path, before), (_, after) in zip(flat(plain[name]), flat(tried[name]), strict=True):
            same = torch.equal(before, after) if isinstance(before, torch.Tensor) else before == after
            assert same, f"{name}{path}"
    # The callback ran in the trials too; the training's own losses are the first two and the last six.
    assert tried["losses"][:2] + tried["losses"][-6:] == plain["losses"]
