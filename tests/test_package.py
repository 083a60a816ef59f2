"""What is installed: metadata, the sample of the demo, and a wheel that works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import traceanalyzer
from tests.shared_data import ROOT
from traceanalyzer.cli.demo import sample_path

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_version_is_stated_once_and_the_same() -> None:
    assert PROJECT["project"]["version"] == traceanalyzer.__version__


def test_package_says_it_is_typed() -> None:
    assert (ROOT / "traceanalyzer" / "py.typed").exists()


def test_public_names_resolve() -> None:
    for name in traceanalyzer.__all__:
        assert getattr(traceanalyzer, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = traceanalyzer.no_such_name


def test_demo_finds_its_sample_in_a_checkout() -> None:
    assert sample_path() == ROOT / "sample_traces" / "labelled" / "single-process-loader"


def test_core_needs_no_torch() -> None:
    assert not any(name.startswith(("torch", "ultralytics")) for name in PROJECT["project"]["dependencies"])


def test_wheel_holds_the_sample_and_everything_that_is_not_python(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    script = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        inside = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")
    files = [path.relative_to(ROOT) for path in (ROOT / "traceanalyzer").rglob("*") if path.is_file()]
    expected = {str(path) for path in files if "__pycache__" not in path.parts}
    assert expected <= inside
    assert "traceanalyzer/samples/single-process-loader/run.json" in inside
    assert not any(name.startswith(("tests/", "shared/", "reports/")) for name in inside)

    where = "from traceanalyzer.cli.demo import sample_path; print(sample_path())"
    found = subprocess.run(
        [sys.executable, "-c", where], capture_output=True, text=True, cwd=tmp_path / "installed", check=True
    )
    assert Path(found.stdout.strip()) == tmp_path / "installed" / "traceanalyzer/samples/single-process-loader"
