"""``reports/`` is what the tool says today, and says the right thing about every sample."""

from __future__ import annotations

import re

import pytest

from tests.shared_data import ROOT
from tests.tools.make_reports import SAMPLES, reports

FIRST_FINDING = {
    # what was done to each recording when it was made (sample_traces/README.md)
    "good": "TA201",
    "single-process-loader": "TA101",
    "pageable": "TA301",
    "empty-cache": "TA402",
    "validate-every-step": "TA801",
    "multi-scale": "TA202",
    "unfused-optimizer": "TA604",
}


def steady_parts(text: str) -> str:
    """Leave out the figures, whose bytes depend on the drawing library's version."""
    return re.sub(r"<svg.*?</svg>", "", text, flags=re.S)


def test_reports_are_what_the_tool_says_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = dict(reports())
    kept = {path.name for path in (ROOT / "reports").iterdir() if path.suffix in {".md", ".html"}} - {"README.md"}
    assert set(made) == kept
    stale = [
        name
        for name, text in made.items()
        if steady_parts(text) != steady_parts((ROOT / "reports" / name).read_text(encoding="utf-8"))
    ]
    assert not stale, "regenerate with: python -m tests.tools.make_reports"


@pytest.mark.parametrize("sample", SAMPLES)
def test_first_finding_is_what_was_done_to_the_recording(sample: str) -> None:
    text = (ROOT / "reports" / f"{sample}.md").read_text(encoding="utf-8")
    first = re.search(r"^\| (TA\d+) \|", text, re.M)
    assert first is not None
    assert first.group(1) == FIRST_FINDING[sample]


def test_every_recording_is_small_enough_for_the_repository() -> None:
    files = list((ROOT / "sample_traces" / "labelled").rglob("*.gz"))
    assert len(files) >= len(SAMPLES)
    assert all(path.stat().st_size <= 2_000_000 for path in files)
