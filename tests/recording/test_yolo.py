"""Ultralytics' own trainer, recorded from outside."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ultralytics")

from traceanalyzer.readers.run_folder import read_run_folder

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
STEPS = 3


def record(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "traceanalyzer.recording", "yolo", "--out", str(out), "--imgsz", "64"]
    command += ["--batch", "2", "--steps", str(STEPS), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recorded training on the CPU: two workers, an optimizer step in each step, several epochs."""
    out = tmp_path_factory.mktemp("yolo") / "RUN"
    finished = record(out, "--workers", "2", "--set", "nbs=2", "--batches-per-epoch", "6", "--set", "val=true")
    assert finished.returncode == 0, finished.stderr
    return out


def annotations(folder: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress((folder / "rank0.pt.trace.json.gz").read_bytes()))
    return [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]


def within(event: dict[str, Any], found: list[dict[str, Any]], name: str) -> bool:
    """Return whether an event lies inside a range of this name."""
    end = event["ts"] + event["dur"]
    return any(one["ts"] <= event["ts"] and end <= one["ts"] + one["dur"] for one in found if one["name"] == name)


def test_every_phase_is_a_range_in_every_recorded_step(run: Path) -> None:
    found = annotations(run)
    names = Counter(event["name"] for event in found if within(event, found, "step"))
    for name in ("step", "data", "h2d", "forward", "loss", "backward", "optimizer", "ema", "log"):
        assert names[name] == STEPS, name
    markers = {event["name"] for event in found if event["name"].startswith("ProfilerStep#")}
    assert len(markers) == STEPS


def test_phases_nest_as_the_trainer_runs_them(run: Path) -> None:
    found = annotations(run)

    # Between epochs the trainer validates, with a loader of its own.
    found = [event for event in found if within(event, found, "step")]

    def inside(inner: str, outer: str) -> bool:
        return all(within(event, found, outer) for event in found if event["name"] == inner)

    assert inside("loss", "forward")
    assert inside("ema", "optimizer")
    assert inside("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data")
    for phase in ("data", "h2d", "forward", "backward", "optimizer", "log"):
        assert inside(phase, "step")


def test_the_time_between_epochs_is_a_range_outside_the_steps(run: Path) -> None:
    found = annotations(run)
    markers = sorted(event["ts"] for event in found if event["name"].startswith("ProfilerStep#"))
    edges = [event for event in found if event["name"] == "epoch_edge" and event["ts"] >= markers[0]]
    document = json.loads((run / "run.json").read_text())
    recording = document["recordings"][0]
    numbers = range(recording["first_step"], recording["first_step"] + recording["steps"])
    last_of_epoch = [number for number in numbers if number % 6 == 5]
    assert len(edges) == len(last_of_epoch)
    assert not any(within(edge, found, "step") for edge in edges)
    assert all(within(event, found, "epoch_edge") for event in found if event["name"] == "validate")


def test_the_settings_in_effect_are_in_the_document(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    assert document["state"] == "complete"
    settings = document["configuration"]
    expected = {
        "model": "yolo11n.yaml", "batch": 2, "imgsz": 64, "workers": 2, "amp": False, "pin_memory": False,
        "prefetch_factor": 4, "persistent_workers": True, "accumulate": 1, "mosaic": 1.0, "multi_scale": 0.0,
        "channels_last": False, "compile": False, "images": 12, "batches_per_epoch": 6, "last_batch": 2,
        "world_size": 1, "gpu": None, "data": "data.yaml", "val": True,
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_the_host_only_recording_says_what_it_cannot_see(run: Path) -> None:
    assert any("GPU idle time, copies and GPU memory cannot be seen" in note for note in read_run_folder(run).notes)


def test_the_loaders_work_is_timed_in_its_workers(run: Path) -> None:
    loader: Any = read_run_folder(run).recordings[0].recorder["loader"]
    measured = loader["unprofiled"]
    assert measured["batches"] > 0
    assert {"load_image", "Mosaic", "RandomPerspective", "Format", "collate"} <= set(measured["parts"])
    # Mosaic puts four images together, and no transform but it loads any.
    images = measured["parts"]["Format"]["calls"]
    assert measured["parts"]["load_image"]["calls"] == 4 * images
    assert sum(part["ns"] for part in measured["parts"].values()) <= measured["worker_ns"]


def test_validation_between_epochs_is_an_episode(run: Path) -> None:
    document = json.loads((run / "run.json").read_text())
    episodes = [episode["phase"] for episode in document["passes"][0]["episodes"]]
    assert "validate" in episodes


def test_nothing_of_the_machine_is_in_the_document(run: Path) -> None:
    text = (run / "run.json").read_text()
    for word in (str(Path.home()), "/tmp", str(ROOT), os.uname().nodename + '"'):
        assert word not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--model", "nothing.yaml"),
            "error: Ultralytics could not set the training up: 'nothing.yaml'",
        ),
        (("--set", "no_such_setting=1"), "error: Ultralytics refused the settings"),
        (("--data", "missing.yaml"), "error: Ultralytics refused the settings"),
    ],
)
def test_settings_ultralytics_refuses_are_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    finished = record(tmp_path / "RUN", *words)
    assert finished.returncode == 2
    lines = [line for line in finished.stderr.splitlines() if line.startswith("error")]
    assert len(lines) == 1
    assert lines[0].startswith(message)
    assert "Traceback" not in finished.stderr


TWO_LINES = """
import os
from ultralytics import YOLO
from traceanalyzer.recording import record_ultralytics
from traceanalyzer.recording.schedule import Schedule
model = YOLO("yolo11n.yaml")
record_ultralytics(model, out={out!r}, schedule=Schedule(
    warm_up=1, unprofiled=2, profiler_warm_up=1, recorded=2, settle=0, unprofiled_after=1))
model.train(data={data!r}, epochs=3, batch=2, imgsz=64, plots=False, project={project!r}, verbose=False)
print("trained to the end")
"""


def test_two_lines_record_a_users_own_training_and_let_it_finish(tmp_path: Path) -> None:
    from traceanalyzer.recording.synthetic import SyntheticSpec, make_dataset

    data = make_dataset(tmp_path / "data", SyntheticSpec(images=6, validation_images=2, size=64))
    program = TWO_LINES.format(out=str(tmp_path / "RUN"), data=str(data), project=str(tmp_path / "training"))
    config = tmp_path / "config"
    font = config / "Ultralytics" / "Arial.ttf"
    font.parent.mkdir(parents=True)
    import matplotlib

    font.write_bytes((Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf").read_bytes())
    environment = {
        **os.environ, "YOLO_CONFIG_DIR": str(config), "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false",
        "MPLCONFIGDIR": str(tmp_path / "mpl"),
    }  # fmt: skip
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    assert "trained to the end" in finished.stdout, finished.stderr
    found = read_run_folder(tmp_path / "RUN")
    assert found.state == "complete"
    assert found.document["passes"][0]["schedule"]["recorded"] == 2
    assert Counter(event["name"] for event in annotations(tmp_path / "RUN"))["step"] == 2


def test_the_profiler_plugins_own_loader_reads_the_run(run: Path) -> None:
    """Its model says how many steps there are and how long they took; the recorder's markers say the same."""
    pytest.importorskip("torch_tb_profiler")
    program = (
        "import sys, json; from torch_tb_profiler.profiler.data import RunProfileData; "
        "profile = RunProfileData.parse('rank0', None, sys.argv[1], None); "
        "profile.process(); print(json.dumps([list(step) for step in profile.steps_costs and "
        "[(c.costs) for c in profile.steps_costs]]))"
    )
    trace = run / "rank0.pt.trace.json.gz"
    finished = subprocess.run([sys.executable, "-c", program, str(trace)], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    costs = json.loads(finished.stdout.splitlines()[-1])
    assert len(costs) == STEPS


def test_a_real_tensorboard_lists_the_run_and_serves_its_overview(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch_tb_profiler")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}/data/plugin/pytorch_profiler/"

    def ask(page: str, **query: str) -> Any:
        with urllib.request.urlopen(base + page + "?" + urllib.parse.urlencode(query), timeout=30) as answer:
            return json.load(answer)

    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run), "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=log)
    try:
        name = wait_for_run(ask, server)
        assert "Overview" in ask("views", run=name)
        assert ask("workers", run=name, view="Overview") == ["rank0"]
        assert ask("spans", run=name, worker="rank0") == ["default"]
        overview = ask("overview", run=name, worker="rank0", span="default", view="Overview")
        assert len(overview["steps"]["rows"]) == STEPS
    finally:
        server.terminate()
        server.wait()


def wait_for_run(ask: Any, server: subprocess.Popen[bytes]) -> str:
    """Poll until the plugin has loaded the run; return its name."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and server.poll() is None:
        try:
            answer = ask("runs")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            answer = {"runs": [], "loading": True}
        if answer["runs"] and not answer["loading"]:
            return str(answer["runs"][0])
        time.sleep(0.5)
    raise AssertionError("TensorBoard did not list the run")
