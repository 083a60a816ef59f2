"""Private recordings: names of people and machines leave, every number stays."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

import traceanalyzer
from tests import snapshots
from tests.readers.nsys_exports import GLOBAL_PID, Export
from tests.robustness.invariants import assert_plausible
from tests.robustness.recordings import event, kineto_document, kineto_events, nsys_export
from traceanalyzer import cli
from traceanalyzer.readers.memory_snapshot import load_document
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.redaction import Redactor

CONTAINER_ID = "3f2a9c81d07e"
SECRETS = (
    "mallory",
    "vault-17",
    "skunkworks",
    CONTAINER_ID,
    "hunter2",
    "eve@corp.example",
    "Ann Smith",
    "trainer-6d4b75cb6d-hx8ks",
)


def private_events() -> list[dict[str, Any]]:
    """A sound loop whose names say who ran it, where, and in which container."""
    events = kineto_events()
    for made in events:
        if made["name"] == "train.py(12): step":
            made["name"] = "/home/mallory/skunkworks/train.py(12): step"
        elif made["name"] == "aten::conv2d":
            made["args"]["Call stack"] = "/mnt/skunkworks/model.py(3): forward"
    t = 1_000_000
    events += [
        event("user_annotation", f"save vault-17 {CONTAINER_ID} for mallory, eve@corp.example", t + 720, 20),
        event("python_function", r"C:\Users\Ann Smith\new\tool.py(1): f", t + 715, 30, **{"Python id": 99}),
        event("user_annotation", "pod trainer-6d4b75cb6d-hx8ks", t + 716, 2),
        event("python_function", "/opt/skunkworks/lib/python3.11/site-packages/torch/nn/conv.py(7): g", t + 717, 1),
    ]
    return events


def private_trace(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "vault-17_4242.1700000000.pt.trace.json.gz"
    document = kineto_document(
        private_events(), traceName="/home/mallory/skunkworks/vault-17.json", hostname="vault-17"
    )
    path.write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    return path


def private_export() -> Export:
    export = nsys_export()
    export.nvtx("/home/mallory/skunkworks/epoch", 1_000_100, 3_000_000)
    export.add("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value="580.1")
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="vault-17")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:COMMAND", value="/home/mallory/run --password hunter2")
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENV", value="TOKEN=hunter2")
    export.add("PROCESSES", globalPid=GLOBAL_PID, pid=475, name="/usr/bin/mail eve@corp.example")
    export.add("PROCESSES", globalPid=GLOBAL_PID + (1 << 24), pid=476, name="pt_data_worker")
    export.add(
        "ProcessStreams", globalPid=GLOBAL_PID, filenameId=export.string("/tmp/out"), contentId=export.string("hunter2")
    )
    export.add("DIAGNOSTIC_EVENT", severity=1, text="launched by mallory on vault-17")
    return export


def assert_silent(text: str | bytes) -> None:
    found = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    assert [secret for secret in SECRETS if secret.lower() in found.lower()] == []


def numbers(value: Any) -> Any:
    """The structure of a document with every number in its place and every text left out."""
    if isinstance(value, dict):
        # a slice's name is a place in a list of texts, which may be in another order once they are other texts
        return [[] if name == "name" else numbers(member) for name, member in value.items()]
    if isinstance(value, list):
        return [numbers(member) for member in value]
    return "" if isinstance(value, str) else value


def test_reports_of_a_redacted_analysis_name_nobody_and_keep_every_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = private_trace(tmp_path / "mallory")
    outputs = {name: tmp_path / f"out.{name}" for name in ("html", "json", "markdown")}
    options = [word for name, path in outputs.items() for word in (f"--{name}", str(path))]
    assert cli.main(["analyze", str(trace), "--redact", *options]) == 0
    for path in outputs.values():
        assert_silent(path.read_bytes())
    assert_silent(capsys.readouterr().out.split("Reports:")[0])
    plain, redacted = traceanalyzer.analyze(trace), Analysis.from_json(outputs["json"].read_bytes())
    assert numbers(msgspec.to_builtins(redacted)) == numbers(msgspec.to_builtins(plain))
    assert_plausible(redacted)
    assert [finding.code for finding in redacted.findings] == [finding.code for finding in plain.findings]


def test_a_kept_analysis_is_redacted_when_it_is_rendered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    kept.write_bytes(traceanalyzer.analyze(private_trace(tmp_path / "run")).to_json())
    assert b"mallory" in kept.read_bytes()
    assert cli.main(["report", str(kept), "--redact", "--html", str(tmp_path / "a.html")]) == 0
    assert_silent((tmp_path / "a.html").read_bytes())
    assert_silent(capsys.readouterr().out.split("Reports:")[0])


@pytest.mark.parametrize("name", ["copy.json", "copy.json.gz"])
def test_a_redacted_trace_analyses_to_the_same_numbers(tmp_path: Path, name: str) -> None:
    source, copy = private_trace(tmp_path / "run"), tmp_path / name
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    data = copy.read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    assert_silent(text)
    assert len(json.loads(text)["traceEvents"]) == len(private_events())
    before, after = traceanalyzer.analyze(source), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))
    assert [(f.code, f.status) for f in after.findings] == [(f.code, f.status) for f in before.findings]


def test_a_redacted_database_holds_no_environment_command_or_output(tmp_path: Path) -> None:
    source, copy = private_export().sqlite(tmp_path / "a.sqlite"), tmp_path / "b.sqlite"
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    assert_silent(copy.read_bytes())
    before, after = traceanalyzer.analyze(source), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))
    tables = {row[0] for row in sqlite3.connect(copy).execute("SELECT name FROM sqlite_master")}
    assert "ProcessStreams" not in tables
    assert after.configuration == before.configuration


def test_a_redacted_folder_of_tables_analyses_to_the_same_numbers(tmp_path: Path) -> None:
    source, copy = private_export().folder(tmp_path / "a", "parquet"), tmp_path / "b"
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    for file in copy.iterdir():
        assert_silent(str(pyarrow.parquet.read_table(file).to_pylist()))
    before, after = traceanalyzer.analyze(source), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))


def test_a_redacted_folder_of_arrow_files_stays_one_and_analyses_to_the_same_numbers(tmp_path: Path) -> None:
    source, copy = private_export().folder(tmp_path / "a", "arrow"), tmp_path / "b"
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    files = sorted(copy.iterdir())
    assert files
    assert {file.suffix for file in files} == {".arrow"}
    for file in files:
        assert_silent(file.read_bytes())
    before, after = traceanalyzer.analyze(source), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))


@pytest.mark.parametrize(("name", "compress"), [("a.sqlite.gz", gzip.compress), ("a.sqlite.xz", lzma.compress)])
def test_a_compressed_database_is_redacted_as_a_plain_one(
    tmp_path: Path, name: str, compress: Callable[[bytes], bytes]
) -> None:
    plain = private_export().sqlite(tmp_path / "plain.sqlite")
    source, copy = tmp_path / name, tmp_path / "copy.sqlite.gz"
    source.write_bytes(compress(plain.read_bytes()))
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    assert_silent(gzip.decompress(copy.read_bytes()))
    before, after = traceanalyzer.analyze(plain), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))


def private_snapshot(path: Path) -> Path:
    """A snapshot whose stacks and settings say who ran it, and where."""
    history = snapshots.History()
    history.add(1, "alloc", 4096, 2 * snapshots.MIB, "forward")
    history.add(2, "segment_alloc", 1 << 30, 20 * snapshots.MIB, "backward")
    for entry in history.entries:
        entry["frames"].append({"name": "f", "filename": "/home/mallory/skunkworks/model.py", "line": 7})
    document = snapshots.snapshot(
        [snapshots.segment(4096, [snapshots.block(2 * snapshots.MIB, function="forward")])], history
    )
    document["user_metadata"] = "eve@corp.example on vault-17, /home/Ann Smith/x, pod trainer-6d4b75cb6d-hx8ks"
    document["external_annotations"] = [{"name": f"{CONTAINER_ID} of mallory", "hostname": "vault-17"}]
    return snapshots.write(path, document)


@pytest.mark.parametrize("name", ["copy.pickle", "copy.pickle.gz"])
def test_a_redacted_snapshot_names_nobody_and_holds_the_same_numbers(tmp_path: Path, name: str) -> None:
    source, copy = private_snapshot(tmp_path / "a.pickle"), tmp_path / name
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    data = copy.read_bytes()
    assert_silent(gzip.decompress(data) if name.endswith(".gz") else data)
    before, after = pickle.loads(source.read_bytes()), load_document(copy)
    assert numbers(after) == numbers(before)
    assert after["device_traces"][0][0]["frames"][-1] == {"name": "f", "filename": "/redacted/model.py", "line": 7}
    ranks = [msgspec.to_builtins(traceanalyzer.analyze(path).ranks) for path in (source, copy)]
    assert numbers(ranks[0]) == numbers(ranks[1])


def test_a_redacted_run_folder_keeps_its_recordings_and_leaves_other_files_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, copy = tmp_path / "run", tmp_path / "copy"
    private_trace(source).rename(source / "rank0.pt.trace.json.gz")
    private_snapshot(source / "memory.pickle")
    (source / "notes.txt").write_text("mallory was here")
    (source / "gpu.csv").write_text("timestamp, name, utilization.gpu [%]\n2026/01/01 00:00:00.000, vault-17, 50 %\n")
    document = {
        "schema": "traceanalyzer.run/1",
        "state": "complete",
        "command": "record script -- python /home/mallory/skunkworks/train.py",
        "notes": ["ran on vault-17"],
        "configuration": {"batch": 16, "data": "/home/mallory/skunkworks/data.yaml", "hostname": "vault-17"},
        "passes": [{"profiler": "torch", "unprofiled": {"step_ns": [1_000_000, 1_000_100], "phase_ns": {}}}],
        "files": {"memory_snapshot": "memory.pickle", "gpu_samples": "gpu.csv"},
        "recordings": [
            {"file": "rank0.pt.trace.json.gz", "format": "kineto", "profiler": "torch", "pass": 0, "rank": 0}
        ],
    }
    (source / "run.json").write_text(json.dumps(document))
    assert cli.main(["redact", str(source), "-o", str(copy)]) == 0
    assert "left behind: notes.txt" in capsys.readouterr().out
    assert sorted(path.name for path in copy.iterdir()) == [
        "gpu.csv",
        "memory.pickle",
        "rank0.pt.trace.json.gz",
        "run.json",
    ]
    for path in copy.iterdir():
        assert_silent(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    before, after = traceanalyzer.analyze(source), traceanalyzer.analyze(copy)
    assert numbers(msgspec.to_builtins(after.ranks)) == numbers(msgspec.to_builtins(before.ranks))
    assert [(f.code, f.status) for f in after.findings] == [(f.code, f.status) for f in before.findings]


def test_a_closed_format_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from traceanalyzer.readers import nsys_rep, redacted_copy

    monkeypatch.setattr(redacted_copy, "find_reader", lambda _: nsys_rep)
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"closed")
    assert cli.main(["redact", str(path), "-o", str(tmp_path / "b")]) == 2
    assert "holds the whole environment; export it" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_copy_inside_its_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = private_export().folder(tmp_path / "a", "parquet")
    assert cli.main(["redact", str(source), "-o", str(source / "copy")]) == 2
    assert "name a place outside" in capsys.readouterr().err
    assert not (source / "copy").exists()


def test_an_existing_copy_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = private_trace(tmp_path)
    assert cli.main(["redact", str(source), "-o", str(source)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["void at::native::vectorized_elementwise_kernel<4, float*, (lambda)#1>(int, float)", "h2d/d2h", "GPU busy / idle",
     "aten::conv2d", "ProfilerStep#12", "train.py(12): step", "ampere_sgemm_128x64_tn", "cutlass_80_tensorop_f16",
     "123456789012", "5 ms/step", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"],
)  # fmt: skip
def test_what_names_nobody_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/srv/x/y/train.py(12): f", "/redacted/train.py(12): f"),
        ("/opt/venv/lib/python3.11/site-packages/torch/nn/a.py(1): f", "/redacted/site-packages/torch/nn/a.py(1): f"),
        (r"D:\work\a b\train.py", "/redacted/train.py"),
        ("s3://bucket/team/run.json.gz", "/redacted/run.json.gz"),
        ("mail eve@corp.example now", "mail redacted-user@redacted-host now"),
        (f"in {CONTAINER_ID}", "in redacted-container"),
    ],
)
def test_folders_addresses_and_containers_are_replaced(text: str, redacted: str) -> None:
    assert Redactor().text(text) == redacted
