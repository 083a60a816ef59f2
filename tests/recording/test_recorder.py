"""Recording any loop: what is left behind in every case."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from traceanalyzer.errors import UsageError  # noqa: E402
from traceanalyzer.readers.run_folder import read_run_folder  # noqa: E402
from traceanalyzer.recording.recorder import Recorder, default_command  # noqa: E402
from traceanalyzer.recording.schedule import Schedule  # noqa: E402

pytestmark = pytest.mark.torch

SHORT = Schedule(warm_up=1, unprofiled=3, profiler_warm_up=1, recorded=2, settle=1, unprofiled_after=2)


def annotations(trace: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("cat") == "user_annotation"]


def train(recorder: Recorder, batches: int = 30, trouble: dict[int, BaseException] | None = None) -> int:
    """Train a tiny model; at the given steps something goes wrong. Returns the number of batches seen."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder.instrument(model, optimizer)
    seen = 0
    for number, batch in enumerate(recorder.steps([torch.ones(2, 4)] * batches)):
        seen += 1
        if trouble and number in trouble:
            raise trouble[number]
        with recorder.phase("loss"):
            loss = model(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return seen


def test_a_loop_is_measured_and_recorded_with_its_phases(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder)
    run = read_run_folder(tmp_path / "RUN")
    assert run.state == "complete"
    [recording] = run.recordings
    assert recording.path.name == "rank0.pt.trace.json.gz"
    unprofiled: Any = recording.recorder["unprofiled"]
    profiled: Any = recording.recorder["profiled"]
    assert len(unprofiled["step_ns"]) == 3 + 2
    assert len(profiled["step_ns"]) == 2
    for times in (unprofiled, profiled):
        phases = times["phase_ns"]
        assert set(phases) == {"data", "forward", "loss", "backward", "optimizer", "other"}
        for step, total in enumerate(times["step_ns"]):
            assert sum(values[step] for values in phases.values()) == total


def test_each_recorded_step_holds_its_phases_in_order(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder)
    found = annotations(tmp_path / "RUN" / "rank0.pt.trace.json.gz")
    steps = sorted((event for event in found if event["name"] == "step"), key=lambda event: event["ts"])
    markers = sorted(event["name"] for event in found if event["name"].startswith("ProfilerStep#"))
    # One warm-up, three unprofiled and one profiler warm-up step come before.
    assert markers == ["ProfilerStep#5", "ProfilerStep#6"]
    assert len(steps) == 2
    for step in steps:
        inside = [
            event["name"]
            for event in sorted(found, key=lambda event: (event["ts"], -event["dur"]))
            if step["ts"] <= event["ts"] < step["ts"] + step["dur"]
        ]
        named = [name for name in inside if name in ("data", "loss", "forward", "backward", "optimizer")]
        assert named == ["data", "loss", "forward", "backward", "optimizer"]


def test_unrecorded_batches_pass_through_and_the_wrappers_are_gone(tmp_path: Path) -> None:
    backward = torch.Tensor.backward
    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        assert train(recorder, batches=30) == 30
        assert torch.Tensor.backward is backward
    assert recorder.step_number == SHORT.total


def test_the_loop_can_be_ended_with_the_schedule(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=SHORT, stop_when_done=True) as recorder:
        assert train(recorder, batches=30) == SHORT.total


def test_a_crash_while_recording_leaves_the_steps_recorded_so_far(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder, trouble={6: RuntimeError("boom in /home/someone/x.py")})
    run = read_run_folder(tmp_path / "RUN")
    assert run.state == "failed"
    assert run.document["error"] == "RuntimeError: boom in x.py"
    assert any("ended early" in note for note in run.notes)
    names = {event["name"] for event in annotations(run.recordings[0].path)}
    assert "ProfilerStep#5" in names


def test_a_crash_before_recording_says_what_happened(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError), Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder, trouble={2: torch.OutOfMemoryError("CUDA out of memory")})
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert document["state"] == "failed"
    assert document["error"] == "OutOfMemoryError: CUDA out of memory"
    assert document["recordings"] == []
    assert len(document["passes"][0]["unprofiled"]["step_ns"]) == 1


def test_an_interrupt_is_not_a_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder, trouble={6: KeyboardInterrupt()})
    assert read_run_folder(tmp_path / "RUN").state == "interrupted"


def test_a_full_disk_at_the_export_leaves_a_readable_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("traceanalyzer.recording.torch_trace.compress_trace", full)
    with pytest.raises(OSError, match="No space"), Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder)
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert document["state"] == "failed"
    assert "No space left" in document["error"]
    assert len(document["passes"][0]["unprofiled"]["step_ns"]) == 3
    assert [entry.name for entry in (tmp_path / "RUN").iterdir()] == ["run.json"]


def test_a_killed_run_is_still_readable(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, signal
        from traceanalyzer.recording import Recorder
        from traceanalyzer.recording.schedule import Schedule
        recorder = Recorder({str(tmp_path / "RUN")!r}, schedule=Schedule(warm_up=1, unprofiled=2))
        with recorder:
            for number in recorder.steps(range(9)):
                if number == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    finished = subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[2])
    assert finished.returncode == -signal.SIGKILL
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert document["state"] == "running"
    assert len(document["passes"][0]["unprofiled"]["step_ns"]) == 2


def test_a_loop_shorter_than_the_schedule_says_so(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder, batches=3)
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert any("ended after 3 of 10 steps" in note for note in document["notes"])


def test_a_step_left_by_break_is_not_counted(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=Schedule(warm_up=0, unprofiled=9, recorded=0)) as recorder:
        for number in recorder.steps(range(5)):
            if number == 3:
                break
    assert recorder.step_number == 3


def test_epochs_are_one_sequence_of_steps_and_what_lies_between_is_an_episode(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=Schedule(warm_up=0, unprofiled=6, recorded=0)) as recorder:
        for _ in range(2):
            for _ in recorder.steps(range(3)):
                pass
            with recorder.phase("validate"):
                pass
    own = json.loads((tmp_path / "RUN" / "run.json").read_text())["passes"][0]
    assert len(own["unprofiled"]["step_ns"]) == 6
    assert [episode["phase"] for episode in own["episodes"]] == ["validate", "validate"]


def test_an_iterator_without_length_ends_without_an_empty_step(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=Schedule(warm_up=0, unprofiled=9, recorded=0)) as recorder:
        assert list(recorder.steps(iter("abc"))) == ["a", "b", "c"]
    assert recorder.step_number == 3


def test_garbage_collections_are_ranges_and_sums(tmp_path: Path) -> None:
    import gc

    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        for _ in recorder.steps(range(20)):
            gc.collect()
    own = json.loads((tmp_path / "RUN" / "run.json").read_text())["passes"][0]
    assert own["garbage_collection"]["unprofiled"]["count"] >= 3
    assert own["garbage_collection"]["unprofiled"]["ns"] > 0
    names = [event["name"] for event in annotations(tmp_path / "RUN" / "rank0.pt.trace.json.gz")]
    assert names.count("garbage_collection") >= 2
    assert not any("_on_collection" in repr(callback) for callback in gc.callbacks)


def test_nothing_private_is_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "d0n0tl00k")
    command = default_command(["record", "script", "--", "/home/someone/train.py", "--data=/mnt/secret/coco.yaml"])
    with Recorder(tmp_path / "RUN", schedule=SHORT, command=command) as recorder:
        train(recorder)
    texts = [(tmp_path / "RUN" / "run.json").read_text()]
    texts.append(gzip.decompress((tmp_path / "RUN" / "rank0.pt.trace.json.gz").read_bytes()).decode())
    for text in texts:
        for secret in ("d0n0tl00k", "/home/someone", "/mnt/secret", str(tmp_path), f'"{os.uname().nodename}"'):
            assert secret not in text
    assert json.loads(texts[0])["command"] == "record script -- train.py --data=coco.yaml"


def test_a_used_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with Recorder(tmp_path / "RUN", schedule=SHORT) as recorder:
        train(recorder)
    with pytest.raises(UsageError, match="--overwrite"):
        Recorder(tmp_path / "RUN", schedule=SHORT)
