"""Recording a script that knows nothing of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from traceanalyzer.errors import UsageError
from traceanalyzer.readers.run_folder import read_run_folder
from traceanalyzer.recording.script import script_words

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
TRAIN = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(int(sys.argv[1])):
    for x, y in DataLoader(data, batch_size=8):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=64):
            model(x)
print("finished")
"""


def record(folder: Path, *words: str, script: str = TRAIN, epochs: str = "50") -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "traceanalyzer.recording", "script", "--out", str(folder / "RUN"), "--steps", "3"]
    command += [*words, "--", "python", str(folder / "train.py"), epochs]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


def test_training_batches_are_steps_and_validation_batches_are_not(tmp_path: Path) -> None:
    finished = record(tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "finished" not in finished.stdout
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert document["state"] == "complete"
    assert document["command"] == "record script -- train.py 50"
    assert document["configuration"]["batch"] == 8
    own = document["passes"][0]
    assert set(own["unprofiled"]["phase_ns"]) == {"data", "backward", "optimizer", "other"}
    trace = json.loads(gzip.decompress((tmp_path / "RUN" / "rank0.pt.trace.json.gz").read_bytes()))
    names = Counter(event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation")
    assert (names["step"], names["data"], names["backward"], names["optimizer"]) == (3, 3, 3, 3)


def test_a_script_may_run_to_its_end(tmp_path: Path) -> None:
    finished = record(tmp_path, "--run-to-end")
    assert finished.returncode == 0, finished.stderr
    assert "finished" in finished.stdout


def test_a_failing_script_leaves_a_readable_folder(tmp_path: Path) -> None:
    finished = record(tmp_path, script="import sys\nsys.exit(3)\n")
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert finished.returncode != 0
    assert document["state"] == "failed"
    assert "exit code 3" in document["error"]


def test_a_script_without_a_training_loop_is_told_so(tmp_path: Path) -> None:
    record(tmp_path, script="print('hello')\n")
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert any("no steps were found" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("python", "-u", __file__, "--x"), [__file__, "--x"]),
        (("/usr/bin/python3.12", __file__), [__file__]),
        ((__file__,), [__file__]),
        (("python", "-m", "package.train", "a"), ["-m", "package.train", "a"]),
    ],
)
def test_the_interpreter_is_left_out(command: tuple[str, ...], words: list[str]) -> None:
    assert script_words(command) == words


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((), "needs a script"),
        (("python",), "needs a script"),
        (("no.py",), "no such script"),
        (("torchrun", "x"), "every rank"),
    ],
)
def test_what_cannot_be_run_is_refused(command: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        script_words(command)


DISTRIBUTED = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
for epoch in range(50):
    for (x,) in DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8):
        model(x).sum().backward()
"""


def test_every_rank_of_a_distributed_run_leaves_its_recording_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "traceanalyzer.recording", "script", "--out", str(tmp_path / "RUN"), "--steps=2"]
    command += ["--", str(tmp_path / "train.py")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert finished.returncode == 0, finished.stderr
    run = read_run_folder(tmp_path / "RUN")
    assert [(recording.path.name, recording.rank) for recording in run.recordings] == [
        ("rank0.pt.trace.json.gz", 0), ("rank1.pt.trace.json.gz", 1),
    ]  # fmt: skip
    assert [recording.recorder["ddp"] for recording in run.recordings] == [
        {"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2},
    ]  # fmt: skip
