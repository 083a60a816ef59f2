"""Recording under Nsight Systems, with a program that behaves like it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from tests.shared_data import shared
from traceanalyzer.errors import UsageError
from traceanalyzer.readers.run_folder import read_run_folder
from traceanalyzer.recording.nsys import find_importer, find_nsys, nsys_version, profile_command
from traceanalyzer.recording.nsys_export import clean_export
from traceanalyzer.recording.options import YoloOptions

ROOT = Path(__file__).parents[2]
TRAIN = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset
print("SECRET" in os.environ, file=open(sys.argv[1], "w"))
data = TensorDataset(torch.randn(64, 8))
model = torch.nn.Linear(8, 1)
for epoch in range(50):
    for (x,) in DataLoader(data, batch_size=8):
        model(x).sum().backward()
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return path


def fake_nsys(folder: Path, *, report: bool = True) -> Path:
    """Write a program that runs what it is told to profile and leaves a report (or a stream, as some do)."""
    suffix = ".nsys-rep" if report else ".qdstrm"
    return program(
        folder / "target-linux-x64" / "nsys",
        f"""
        import shutil, sqlite3, subprocess, sys
        words = sys.argv[1:]
        if words == ["--version"]:
            print("NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0")
        elif words[0] == "profile":
            output = words[words.index("-o") + 1]
            start = next(i for i, word in enumerate(words) if word.endswith("python") or "/python" in word)
            open(output + ".words", "w").write(" ".join(words[:start]))
            code = subprocess.run(words[start:]).returncode
            open(output + "{suffix}", "w").write("report")
            sys.exit(code)
        elif words[0] == "export":
            output = words[words.index("-o") + 1]
            database = sqlite3.connect(output)
            database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            database.execute("INSERT INTO StringIds VALUES (1, 'PASSWORD=hunter2')")
            database.commit()
        """,
    )


def test_a_capture_range_is_asked_for_only_where_something_can_start_it(tmp_path: Path) -> None:
    options = YoloOptions(nsys_trace="cuda,nvtx")
    words = profile_command(Path("nsys"), tmp_path / "r", options, ["python", "x.py"], cuda=True)
    assert words[:4] == ["nsys", "profile", "-t", "cuda,nvtx"]
    assert "--capture-range=cudaProfilerApi" in words
    assert words[-2:] == ["python", "x.py"]
    without = profile_command(Path("nsys"), tmp_path / "r", options, ["python"], cuda=False)
    assert not any("capture-range" in word for word in without)


def test_an_option_passed_through_replaces_the_default() -> None:
    options = YoloOptions(nsys_option=("--cpuctxsw=process-tree", "--gpu-metrics-devices=0"))
    words = profile_command(Path("nsys"), Path("r"), options, ["python"], cuda=True)
    assert [word for word in words if "cpuctxsw" in word] == ["--cpuctxsw=process-tree"]
    assert "--gpu-metrics-devices=0" in words


def test_the_version_is_the_programs_own(tmp_path: Path) -> None:
    assert nsys_version(fake_nsys(tmp_path)) == "2025.3.2.474"


def test_a_missing_nsys_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="not on the PATH; install it, or name the program with --nsys"):
        find_nsys(None)
    with pytest.raises(UsageError, match="no such program"):
        find_nsys(tmp_path / "nsys")


def test_the_importer_is_found_beside_the_target_half(tmp_path: Path) -> None:
    nsys = fake_nsys(tmp_path)
    importer = program(tmp_path / "host-linux-x64" / "QdstrmImporter", "")
    assert find_importer(nsys) == importer


def record(folder: Path, nsys: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "traceanalyzer.recording", "script", "--out", str(folder / "RUN"), "--steps=2"]
    command += ["--nsys", str(nsys), *words, "--", "python", str(folder / "train.py"), str(folder / "seen")]
    environment = {**os.environ, "SECRET": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


@pytest.mark.torch
def test_one_pass_leaves_a_cleaned_export_and_the_report(tmp_path: Path) -> None:
    finished = record(tmp_path, fake_nsys(tmp_path / "nsys"), "--profiler=nsys")
    assert finished.returncode == 0, finished.stderr
    run = read_run_folder(tmp_path / "RUN")
    [recording] = run.recordings
    assert (recording.path.name, recording.format, recording.profiler) == ("nsys.sqlite", "nsys_sqlite", "nsys")
    assert (tmp_path / "RUN" / "nsys.nsys-rep").exists()
    assert b"hunter2" not in recording.path.read_bytes()
    assert run.document["versions"]["nsys"] == "2025.3.2.474"
    assert run.document["recordings"][0]["steps"] == 2


@pytest.mark.torch
def test_both_is_two_passes_in_one_folder(tmp_path: Path) -> None:
    finished = record(tmp_path, fake_nsys(tmp_path / "nsys"), "--profiler=both")
    assert finished.returncode == 0, finished.stderr
    run = read_run_folder(tmp_path / "RUN")
    assert [(recording.profiler, recording.pass_index) for recording in run.recordings] == [("torch", 0), ("nsys", 1)]
    first, second = run.document["passes"]
    assert (first["profiler"], second["profiler"]) == ("torch", "nsys")
    assert first["unprofiled"] != second["unprofiled"]
    # The pass without Nsight Systems around it is the witness of the undisturbed step.
    assert run.recordings[1].recorder["unprofiled"] == first["unprofiled"]
    assert run.recordings[1].recorder["profiled"] == second["profiled"]


@pytest.mark.torch
def test_a_stream_is_imported_where_an_importer_lies_beside_nsys(tmp_path: Path) -> None:
    nsys = fake_nsys(tmp_path / "nsys", report=False)
    program(
        tmp_path / "nsys" / "host-linux-x64" / "QdstrmImporter",
        """
        import shutil, sys
        words = sys.argv[1:]
        shutil.copy(words[words.index("-i") + 1], words[words.index("-o") + 1])
        """,
    )
    finished = record(tmp_path, nsys, "--profiler=nsys")
    assert finished.returncode == 0, finished.stderr
    names = {entry.name for entry in (tmp_path / "RUN").iterdir()}
    assert names == {"run.json", "nsys.nsys-rep", "nsys.sqlite"}


@pytest.mark.torch
def test_a_stream_without_an_importer_is_kept_and_said(tmp_path: Path) -> None:
    record(tmp_path, fake_nsys(tmp_path / "nsys", report=False), "--profiler=nsys")
    document = json.loads((tmp_path / "RUN" / "run.json").read_text())
    assert any("no QdstrmImporter" in note for note in document["notes"])
    assert (tmp_path / "RUN" / "nsys.qdstrm").exists()


def build_export(path: Path) -> None:
    """Write an export that holds one kernel, one range, and everything private there is."""
    process, thread, stranger = 1 << 24, (1 << 24) + 7, (9 << 24) + 3
    strings = {
        1: "kernel_a", 2: "step", 3: "cudaLaunchKernel", 4: "python3", 5: "kworker/0:1", 6: "HOME=/root\0TOKEN=abc",
        7: "/home/someone/train.py printed this", 8: "stdout.log",
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, demangledName INT, correlationId INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, nameId INT, correlationId INT);
            CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, globalTid INT, textId INT);
            CREATE TABLE ThreadNames (nameId INT, priority INT, globalTid INT);
            CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT);
            CREATE TABLE ANALYSIS_FILE (id INT, filename TEXT, contentId INT, globalPid INT);
            CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, devStateName TEXT, name TEXT, nameEnum INT, value TEXT);
            CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            CREATE TABLE DIAGNOSTIC_EVENT (timestamp INT, text TEXT);
            CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, uuid TEXT);
            """
        )
        rows = {
            "StringIds": list(strings.items()),
            "CUPTI_ACTIVITY_KIND_KERNEL": [(10, 20, 1, 6)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [(5, 8, thread, 3, 6)],
            "NVTX_EVENTS": [(0, 30, None, thread, 2)],
            "ThreadNames": [(4, 20, thread), (5, 20, stranger)],
            "ProcessStreams": [(process, 8, 7)],
            "ANALYSIS_FILE": [(1, "environ", 6, process)],
            "PROCESSES": [(process, 1, "/home/someone/python3")],
            "TARGET_INFO_SYSTEM_ENV": [(0, "x", "Hostname", 1, "box"), (0, "x", "NvDriverVersion", 2, "580.1")],
            "META_DATA_CAPTURE": [
                ("DEVICE_DISPLAY_NAME", "box"),
                ("COMMAND_LINE", "/home/someone/x"),
                ("RATE_HZ", "0"),
            ],
            "META_DATA_EXPORT": [("EXPORT_HOST", "box"), ("EXPORT_PRODUCT_VERSION", "2025.3")],
            "DIAGNOSTIC_EVENT": [(1, "Loaded /home/someone/libcupti.so, fine"), (2, "Not all events")],
            "TARGET_INFO_GPU": [(0, "NVIDIA H200", "GPU-1234")],
        }
        for table, values in rows.items():
            marks = ",".join("?" * len(values[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        database.commit()


def test_a_cleaned_export_keeps_the_recording_and_nothing_private(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    build_export(path)
    clean_export(path)
    content = path.read_bytes()
    for secret in (b"someone", b"TOKEN", b"HOME=", b"box", b"kworker", b"GPU-1234", b"stdout.log"):
        assert secret not in content
    with closing(sqlite3.connect(path)) as database:
        assert dict(database.execute("SELECT id, value FROM StringIds")) == {
            1: "kernel_a", 2: "step", 3: "cudaLaunchKernel", 4: "python3",
        }  # fmt: skip
        assert database.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(10, 20)]
        assert database.execute("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [
            ("NvDriverVersion", "580.1")
        ]
        assert database.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall() == [
            ("Loaded …, fine",), ("Not all events",),
        ]  # fmt: skip
        assert dict(database.execute("SELECT name, value FROM META_DATA_CAPTURE"))["RATE_HZ"] == "0"


@pytest.mark.shared
def test_a_real_export_keeps_every_name_it_refers_to(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "nsys.sqlite"
    path.write_bytes(gzip.decompress(shared("traces/h200/nsys_good.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as database:
        query = "SELECT value, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = id GROUP BY 1"
        kernels = database.execute(query).fetchall()
        clean_export(path)
        assert database.execute(query).fetchall() == kernels
        for table, column in (("NVTX_EVENTS", "textId"), ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId")):
            unknown = f"{column} IS NOT NULL AND {column} NOT IN (SELECT id FROM StringIds)"
            lost = f"SELECT count(*) FROM {table} WHERE {unknown}"
            assert database.execute(lost).fetchone() == (0,)
    assert b"LD_LIBRARY_PATH=" not in path.read_bytes()
    assert b"OLDPWD=" not in path.read_bytes()
