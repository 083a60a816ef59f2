"""The damaged files at hand, through the command line: what each is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.answers import CommandLine
from tests.shared_data import ROOT, shared, shared_files
from tests.tools.make_answers import table
from traceanalyzer import cli

pytestmark = pytest.mark.shared

UNREADABLE_TIME = "event whose time is not finite or beyond 64 bits"
LOST = "1 kernel launches have no GPU activity in the recording; time they ran may look idle."

# file → verdict, GPU activities, busy ns, note that must be there, reason for which records were left out
ANSWERS: dict[str, tuple[str, int, int, str, str]] = {
    "00_ok.json": ("complete", 60, 750_000, "", ""),
    "01_truncated.json": ("partial", 42, 525_000, "truncated after 215 events", "event cut off at the end of the file"),
    "02_quote_in_name.json": ("complete", 60, 750_000, "1 event held unescaped quotes and was repaired", ""),
    "02b_backslash.json": ("complete", 60, 750_000, "1 event held unescaped backslashes and was repaired", ""),
    "03_nonutf8.json": ("complete", 60, 750_000, "1 event held bytes that are not UTF-8 and was repaired", ""),
    "04_hugeint.json": ("complete", 60, 750_000, "", ""),
    "05_nan_dur.json": ("partial", 59, 737_500, LOST, UNREADABLE_TIME),
    "06_negdur.json": ("partial", 59, 737_500, LOST, "event with a negative duration"),
    "08_overflow_dur.json": ("partial", 59, 737_500, LOST, UNREADABLE_TIME),
    "10_ts_string.json": ("complete", 60, 750_000, "some times are written as text; they were read as numbers", ""),
    "12_no_correlation.json": (
        "partial",
        60,
        750_000,
        "2 of 60 GPU activities have no launch in the recording; idle before them is unknown.",
        "",
    ),
    "13_no_ph.json": ("partial", 60, 750_000, "", "event without a phase or duration (ac2g)"),
    "15_no_steps.json": ("complete", 60, 750_000, "", ""),
    "17_bare_array.json": ("complete", 60, 750_000, "", ""),
    "20_cudagraph_shared_corr.json": (
        "partial",
        60,
        750_000,
        "9 kernel launches have no GPU activity in the recording; time they ran may look idle.",
        "",
    ),
    "22_gz_named_json.json": ("complete", 60, 750_000, "", ""),
    "24_bom.json": ("complete", 60, 750_000, "", ""),
}
REFUSALS = {"16_only_meta.json": "no usable events", "18_empty.json": "no events"}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_damaged_file_is_analysed_as_far_as_it_goes(command_line: CommandLine, name: str) -> None:
    verdict, activities, busy_ns, note, reason = ANSWERS[name]
    rank = command_line.analysed(shared(f"bad_inputs/{name}")).ranks[0]
    assert (rank.integrity.verdict, rank.integrity.gpu_activities) == (verdict, activities)
    assert rank.devices[0].busy_ns == busy_ns
    assert [entry.reason for entry in rank.integrity.dropped] == ([reason] if reason else [])
    assert note in rank.integrity.notes or (not note and not rank.integrity.notes)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_file_without_events_is_refused(command_line: CommandLine, name: str) -> None:
    assert REFUSALS[name] in command_line.refused(shared(f"bad_inputs/{name}"))


def test_every_file_has_its_answer() -> None:
    files = {path.name for path in shared_files("bad_inputs/*")}
    if not files:
        pytest.skip("the damaged files are not beside the checkout")
    assert files == ANSWERS.keys() | REFUSALS.keys()


def test_the_page_of_answers_is_up_to_date() -> None:
    if not shared_files("bad_inputs/*"):
        pytest.skip("the damaged files are not beside the checkout")
    assert (ROOT / "tests/robustness/README.md").read_text() == table()


COMMANDS: dict[str, list[str]] = {
    "analyze": [
        "analyze",
        "FILE",
        "--html",
        "a.html",
        "--markdown",
        "a.md",
        "--perfetto",
        "p.json",
        "--sarif",
        "a.sarif",
    ],
    "report": ["report", "FILE"],
    "compare": ["compare", "FILE", "FILE"],
    "redact": ["redact", "FILE", "-o", "copy"],
    "baseline update": ["baseline", "update", "baseline.json", "FILE"],
    "baseline check": ["baseline", "check", "baseline.json", "FILE"],
    "trend": ["trend", "FILE", "FILE"],
    "explain": ["explain", "FILE"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_answers_every_damaged_file_or_refuses_it_on_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(ANSWERS.keys() | REFUSALS.keys()):
        file = shared(f"bad_inputs/{name}")
        swap = {"FILE": str(file), "copy": f"copy-{number}.json"}
        code = cli.main([swap.get(word, word) for word in COMMANDS[command]])
        error = capsys.readouterr().err
        assert code in (0, 2), name
        assert error.count("\n") == (1 if code == 2 else 0), (name, error)
        assert code == 0 or error.startswith("traceanalyzer: "), (name, error)
        # what is a recording with events is never refused by the commands that read recordings
        if command in ("analyze", "redact", "baseline update", "compare"):
            assert (code == 2) == (name in REFUSALS and command != "redact"), name
