"""Input made to hurt: names, sizes, nesting, bombs, odd files, full disks and impatient users."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import traceanalyzer
from tests.robustness.answers import CommandLine, analyse, analyse_events, write_text
from tests.robustness.recordings import event, kineto_document, kineto_events, launched, nsys_export, write_kineto
from tests.shared_data import ROOT
from traceanalyzer import cli
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers import files
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.markdown import render_markdown

T = 1_000_000
NAMES = {
    "markup": "</script><img src=x onerror=alert(1)><!--",
    "template": "{{ 7 * 7 }}{% raw %}${x}",
    "control": "a\x00b\x07c\x1b[31mred\x1b]0;title\x07",
    "bidi": "safe\u202etxt.exe\u2066\u2069\u200b",
    "line separators": "a\u2028b\u2029c\r\nd",
    "surrogate": "half \ud83d of a pair",
    "markdown": "|a|`b`|\n# head\n[x](javascript:alert(1))",
    "formula": '=HYPERLINK("http://evil")',
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_hostile_name_stays_text_in_every_report(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    events = kineto_events()
    for made in events:
        if made["name"] in {"ampere_sgemm_128x64", "train.py(12): step", "aten::conv2d"}:
            made["name"] = name
    path = write_text(tmp_path, json.dumps(kineto_document(events)))
    assert analyse(path).devices == analyse_events(tmp_path, kineto_events()).devices
    path = write_text(tmp_path, json.dumps(kineto_document(events)))
    html, markdown = render_html(traceanalyzer.analyze(path)), render_markdown(traceanalyzer.analyze(path))
    assert "<img src=x" not in html.lower()
    assert "<img src=x" not in re.sub(r"`[^`\n]*`|\\<", "", markdown.lower())  # in backticks or escaped
    assert cli.main(["analyze", str(path), "--html", str(tmp_path / "a.html")]) == 0
    shown = capsys.readouterr().out
    for text in (html, markdown, shown):
        assert not set(text) & {"\x00", "\x07", "\x1b", "\u202e", "\u2066", "\u200b", "\u2028"}
        text.encode()  # no lone surrogate reaches an output


def test_a_megabyte_of_name_is_shortened_for_people_and_changes_no_number(tmp_path: Path) -> None:
    events = [{**e, "name": "x" * 1_000_000} if e["cat"] == "kernel" else e for e in kineto_events(2)]
    path = write_text(tmp_path, json.dumps(kineto_document(events)))
    analysis = traceanalyzer.analyze(path)
    assert analysis.ranks[0].devices[0].busy_ns == 2 * (30_000 + 285_000)
    assert len(render_markdown(analysis)) < 200_000


def test_a_hundred_thousand_distinct_names_are_read_soon(tmp_path: Path) -> None:
    events = [event("kernel", f"kernel_{i}", T + i, 0.5, tid=7) for i in range(100_000)]
    begun = time.monotonic()
    rank = analyse(write_kineto(tmp_path / "a.json", events))
    assert time.monotonic() - begun < 60
    assert rank.kernels.count == 100_000
    assert len(rank.kernels.top) <= 1000


@pytest.mark.parametrize("depth", [500, 100_000])
def test_deep_nesting_costs_at_most_its_own_event(tmp_path: Path, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    text = json.dumps(kineto_document()).replace('"Input Dims": [[16, 3]]', f'"Input Dims": {nested}', 1)
    rank = analyse(write_text(tmp_path, text))
    assert rank.devices[0].busy_ns == 4 * 315_000
    assert sum(entry.count for entry in rank.integrity.dropped) <= 1


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_a_bomb_is_refused_without_unpacking_it(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, compress: object
) -> None:
    monkeypatch.setattr(files, "_EXPANSION_CHECKED_FROM_BYTES", 16 << 20)
    text = b'{"traceEvents": [' + b" " * (64 << 20)
    path = write_text(tmp_path, compress(text), "bomb")  # type: ignore[operator]
    assert "expands more than" in command_line.refused(path)


def test_memory_stays_bounded_on_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(400):
            file.write(b" " * (1 << 20))
    # VmHWM begins anew with the program; ru_maxrss of a child begins with its parent's, and this parent may be large
    script = (
        "import re, sys; from pathlib import Path; from traceanalyzer.cli import main; code = main(sys.argv[1:]); "
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "analyze", str(path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert int(done.stdout) < 700_000  # KiB


def test_a_folder_a_pipe_and_a_loop_of_links_are_one_line_each(tmp_path: Path, command_line: CommandLine) -> None:
    (tmp_path / "folder").mkdir()
    assert "the folder is no recording" in command_line.refused(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in command_line.refused(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop" in command_line.refused(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "no such file" in command_line.refused(tmp_path / "dangling")


def test_a_folder_of_recordings_may_hold_pipes_loops_and_strangers(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "notes.txt").write_text("hello")
    write_kineto(folder / "rank-0.json")
    assert len(traceanalyzer.analyze(folder).ranks) == 1


def test_a_run_folder_whose_file_leads_out_of_it_is_not_followed(tmp_path: Path, command_line: CommandLine) -> None:
    write_kineto(tmp_path / "outside.json")
    run = tmp_path / "run"
    run.mkdir()
    entry = {"file": "../outside.json", "profiler": "torch", "format": "kineto"}
    document = {"schema": "traceanalyzer.run/1", "state": "complete", "recordings": [entry]}
    (run / "run.json").write_text(json.dumps(document))
    assert "holds no recording" in command_line.refused(run)


@pytest.mark.parametrize(
    "document",
    [{"recordings": [{"file": "a.json", "pass": "x"}]}, {"recordings": [{"file": "a.json", "pass": None, "rank": []}]},
     {"recordings": [{"file": "a.json", "pass": -5}], "passes": [7]}, {"recordings": 7}, {"files": [], "notes": {}},
     {"recordings": [{"file": "a.json", "pass": 1e300}]}],
)  # fmt: skip
def test_a_damaged_run_document_is_one_line_or_an_answer(tmp_path: Path, document: dict[str, object]) -> None:
    write_kineto(tmp_path / "a.json")
    (tmp_path / "run.json").write_text(json.dumps({"schema": "traceanalyzer.run/1", "state": "complete", **document}))
    try:
        traceanalyzer.analyze(tmp_path)
    except TraceFormatError as error:
        assert "\n" not in str(error)  # noqa: PT017 - a refusal is as good an answer


def test_a_file_that_vanishes_between_looking_and_reading_is_one_line(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kineto(tmp_path / "a.json")
    look = files.fingerprint

    def vanish(file: Path) -> str:
        file.unlink()
        return look(file)

    monkeypatch.setattr("traceanalyzer.readers.kineto.fingerprint", vanish)
    assert "a.json: No such file or directory" in command_line.refused(path)


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kineto(tmp_path / "a.json")
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 10)
    grown = False

    def grow(*_: object) -> None:
        nonlocal grown
        if not grown:
            grown = True
            with path.open("ab") as file:
                file.write(b"more")

    assert traceanalyzer.analyze(path, progress=grow).ranks[0].devices[0].busy_ns == 4 * 315_000


# outputs


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_kineto(tmp_path / "a.json")
    assert cli.main(["analyze", str(path), "--html", "/dev/full"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "No space left on device" in err


def test_a_file_size_limit_leaves_the_old_report_whole(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "a.json")
    report = tmp_path / "old.html"
    report.write_text("old report")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [sys.executable, "-B", "-m", "traceanalyzer", "analyze", str(path), "--html", str(report)],
        capture_output=True, text=True, cwd=ROOT, preexec_fn=limit, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert report.read_text() == "old report"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "old.html"]


def test_a_rendering_that_fails_leaves_the_old_report_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_kineto(tmp_path / "a.json")
    report = tmp_path / "old.html"
    report.write_text("old report")

    def fail(_: object) -> str:
        raise TraceFormatError("report", "made to fail")

    monkeypatch.setattr("traceanalyzer.renderers.html.render_html", fail)
    assert cli.main(["analyze", str(path), "--html", str(report)]) == 2
    assert report.read_text() == "old report"


def test_an_interrupt_during_a_long_read_is_130_and_one_line_and_the_old_report_stays(tmp_path: Path) -> None:
    events = json.dumps(
        [e for i in range(1500) for e in launched(f"k{i}", (T + i, T + i + 1), (T + i, T + i + 1), i + 1)]
    )
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        for _ in range(150):
            file.write(events[1:-1] + ",\n")
        file.write(events[1:-1] + "]}")
    report = tmp_path / "old.html"
    report.write_text("old report")
    script = (
        "import os, signal, sys\n"
        "from traceanalyzer import cli, pipeline\n"
        "run = pipeline.analyze\n"
        "def analyze(*args, progress, **options):\n"
        "    def told(*call):\n"
        "        progress(*call)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return run(*args, progress=told, **options)\n"
        "pipeline.analyze = analyze\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "analyze", str(path), "--html", str(report)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (130, "traceanalyzer: interrupted\n", "")
    assert report.read_text() == "old report"


# Nsight databases


def test_missing_ends_and_ends_before_starts_are_left_out_and_counted(tmp_path: Path) -> None:
    export = nsys_export()
    rows = export.tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        *rows,
        {**rows[0], "end": None},
        {**rows[1], "end": rows[1]["start"] - 5},
    ]
    rank = analyse(export.sqlite(tmp_path / "a.sqlite"))
    assert {entry.reason: entry.count for entry in rank.integrity.dropped} == {
        "kernels without an end": 1,
        "kernels that end before they start": 1,
    }
    assert rank.devices[0].busy_ns == 4 * 290_000


def test_a_missing_column_is_named(tmp_path: Path, command_line: CommandLine) -> None:
    path = nsys_export().sqlite(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId")
    connection.commit()
    connection.close()
    assert "the needed column streamId is absent" in command_line.refused(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"SQLite format 3\x00" + b"\x00" * 84, "SQLite"), (b"SQLite format 3\x00", "SQLite"),
     (b"PK\x03\x04" + b"\x00" * 50, "zip archive"), (b"not a database", "not a recording")],
)  # fmt: skip
def test_what_is_no_database_is_one_line(tmp_path: Path, command_line: CommandLine, content: bytes, says: str) -> None:
    assert says in command_line.refused(write_text(tmp_path, content, "a.sqlite"))


# plausibility


def test_work_that_starts_before_its_call_is_counted_as_skew(tmp_path: Path) -> None:
    events = launched("early", (T + 100, T + 110), (T + 50, T + 90), 1) + launched(
        "sound", (T + 120, T + 125), (T + 130, T + 140), 2
    )
    rank = analyse_events(tmp_path, events)
    assert rank.launches.clock_skew == 1
    assert rank.devices[0].busy_ns == 50_000


def test_activities_without_launches_are_busy_and_their_idle_has_no_cause(tmp_path: Path) -> None:
    events = [event("kernel", f"k{i}", T + 100 * i, 50, tid=7) for i in range(4)]
    rank = analyse_events(tmp_path, events)
    device = rank.devices[0]
    assert (device.busy_ns, device.idle_ns) == (200_000, 150_000)
    assert device.idle_by_cause_ns["unknown"] == 150_000
    assert rank.integrity.activities_without_launch == 4
    assert rank.integrity.verdict == "partial"


def test_correlation_zero_joins_nothing(tmp_path: Path) -> None:
    rank = analyse_events(tmp_path, launched("k", (T, T + 5), (T + 10, T + 20), 0))
    assert rank.integrity.activities_without_launch == 1
    assert rank.devices[0].busy_ns == 10_000


def test_everything_written_twice_counts_once(tmp_path: Path) -> None:
    events = kineto_events()
    device_and_calls = [e for e in events if e["cat"] in {"kernel", "gpu_memcpy", "cuda_runtime"}]
    twice, once = analyse_events(tmp_path, [*events, *device_and_calls]), analyse_events(tmp_path, events)
    assert twice.devices == once.devices
    assert twice.kernels == once.kernels
    assert twice.integrity.verdict == "partial"
