"""The workflow for users does what it says: its own commands are run here, on the sample recordings it names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.shared_data import ROOT

yaml = pytest.importorskip("yaml")

WORKFLOW = ROOT / ".github" / "workflows" / "kernel-gaps.yml"
OURS = "sample_traces/labelled/good"
WORSE = "sample_traces/labelled/item-per-step"


@pytest.fixture(scope="module")
def steps() -> list[dict[str, Any]]:
    document = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document["jobs"]["gate"]["steps"]
    return found


def _script(steps: list[dict[str, Any]], name: str) -> str:
    (script,) = [step["run"] for step in steps if step.get("name") == name]
    return str(script)


def _run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does: bash that stops at the first failure, with the package's program on the PATH."""
    program = folder / "bin" / "traceanalyzer"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m traceanalyzer "$@"\n')
        program.chmod(0o755)
        (folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment["HOME"] = str(folder)
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=300,
    )  # fmt: skip


def test_the_gate_passes_and_leaves_the_reports_it_uploads(steps: list[dict[str, Any]], tmp_path: Path) -> None:
    compared = _run(_script(steps, "Compare with the baseline"), tmp_path)
    assert compared.returncode == 0, compared.stderr
    shown = _run(_script(steps, "Show the verdict"), tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("::notice title=kernel gaps::")
    assert (tmp_path / "summary.md").read_text().startswith("### Kernel gaps")
    (upload,) = [step["with"]["path"].split() for step in steps if "upload-artifact" in step.get("uses", "")]
    assert all((tmp_path / name).is_file() for name in upload)
    assert ElementTree.parse(tmp_path / "gaps.xml").getroot().get("failures") == "0"


def test_the_gate_fails_on_a_regression_and_still_shows_it(steps: list[dict[str, Any]], tmp_path: Path) -> None:
    script = _script(steps, "Compare with the baseline")
    first, second = script.split("traceanalyzer baseline check")
    assert OURS in second
    worse = f"{first}traceanalyzer baseline check{second.replace(OURS, WORSE)}"
    compared = _run(worse, tmp_path)
    assert compared.returncode == 1
    shown = _run(_script(steps, "Show the verdict"), tmp_path)
    assert "::error title=" in shown.stdout
    assert "D2H copies per step" in shown.stdout
    assert "❌ regression" in (tmp_path / "summary.md").read_text()


def test_what_runs_after_a_failure_is_marked_to(steps: list[dict[str, Any]]) -> None:
    names = [step.get("name") for step in steps]
    after = steps[names.index("Compare with the baseline") + 1 :]
    assert after
    assert all(step["if"] == "always()" for step in after)


def test_every_action_is_a_published_one_with_a_version(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
