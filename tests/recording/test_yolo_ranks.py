"""Ultralytics' trainer in several processes, each recorded.

Its own start of distributed training needs one GPU per process; here that start is exchanged for gloo on the CPU, and
everything after it is the trainer's: the wrapped model, the distributed sampler, the ranks' different duties.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("ultralytics")

from traceanalyzer.cli.app import run as traceanalyzer
from traceanalyzer.readers.run_folder import read_run_folder

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
STEPS = 2
ON_CPU = """
import sys
import torch
from torch import distributed, nn
from ultralytics.engine.trainer import BaseTrainer
from traceanalyzer.recording.command import main

class OnCpu(nn.parallel.DistributedDataParallel):
    def __init__(self, module, device_ids=None, **settings):
        super().__init__(module, **settings)

def start(trainer):
    distributed.init_process_group("gloo")

def build(trainer, *arguments, **settings):
    original(trainer, *arguments, **settings)
    trainer.world_size = 2

nn.parallel.DistributedDataParallel = OnCpu
original, BaseTrainer.__init__, BaseTrainer._setup_ddp = BaseTrainer.__init__, build, start
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training in two processes, recorded into one folder."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "on_cpu.py").write_text(ON_CPU)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(folder / "on_cpu.py"), "yolo", f"--out={folder / 'RUN'}", "--imgsz=64", "--batch=4", "--no-trials"]
    command += [f"--steps={STEPS}", "--workers=1", "--set=nbs=4", "--device=cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert finished.returncode == 0, finished.stderr
    return folder / "RUN"


def test_every_rank_leaves_its_recording_and_says_which_it_is(run: Path) -> None:
    recordings = read_run_folder(run).recordings
    assert [(one.path.name, one.rank, one.recorder["ddp"]) for one in recordings] == [
        ("rank0.pt.trace.json.gz", 0, {"rank": 0, "world_size": 2}),
        ("rank1.pt.trace.json.gz", 1, {"rank": 1, "world_size": 2}),
    ]


def test_each_rank_trains_on_its_share_of_the_batch(run: Path) -> None:
    for one in read_run_folder(run).recordings:
        configuration = one.recorder["configuration"]
        assert (configuration["batch"], configuration["world_size"]) == (4, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_wrapped_models_phases_are_named_on_every_rank(run: Path, rank: int) -> None:
    events = json.loads(gzip.decompress((run / f"rank{rank}.pt.trace.json.gz").read_bytes()))["traceEvents"]
    names = Counter(event["name"] for event in events if event.get("cat") == "user_annotation")
    for phase in ("step", "data", "h2d", "forward", "loss", "backward", "optimizer", "ema"):
        assert names[phase] == STEPS, phase
    # only the first rank shows progress
    assert names["log"] == (STEPS if rank == 0 else 0)


def test_the_folder_is_analysed_with_both_ranks(run: Path) -> None:
    assert traceanalyzer(["analyze", str(run), "--json", str(run / "report.json")]) == 0
    document = json.loads((run / "report.json").read_text())
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
