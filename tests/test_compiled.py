"""A read-only installation works, whoever runs it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness.recordings import kineto_events, write_kineto
from tests.shared_data import ROOT
from traceanalyzer import compiled

SCAN = """
import sys
from pathlib import Path
from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.kineto_scanner import ScannerParser
from traceanalyzer.readers.kineto_text import TraceText
with Stream(Path(sys.argv[1])) as stream:
    text = TraceText(stream, ScannerParser(Integrity()), Integrity())
    print(sum(chunk.count for chunk in text.chunks()))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder everybody may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        for folder in Path(name).rglob("*"):
            if folder.is_dir():
                folder.chmod(0o755)


def test_compiled_code_stays_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    compiled.place_compiled_code()
    assert compiled.VARIABLE not in os.environ


def test_a_folder_the_user_names_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "_is_writable", lambda _: False)
    monkeypatch.setenv(compiled.VARIABLE, str(tmp_path))
    compiled.place_compiled_code()
    assert os.environ[compiled.VARIABLE] == str(tmp_path)


@pytest.mark.parametrize("planted", ["nothing", "open folder", "link", "file"])
def test_without_a_place_a_private_folder_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, planted: str
) -> None:
    monkeypatch.setattr(compiled, "_is_writable", lambda _: False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(compiled.VARIABLE, "")  # restored afterwards
    monkeypatch.delenv(compiled.VARIABLE)
    place = tmp_path / f"traceanalyzer-{os.getuid()}"
    if planted == "open folder":
        place.mkdir()
        place.chmod(0o777)
    elif planted == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif planted == "file":
        place.write_text("")
    compiled.place_compiled_code()
    used = Path(os.environ[compiled.VARIABLE])
    assert (used == place) == (planted == "nothing")
    assert stat.S_IMODE(used.stat().st_mode) == 0o700


def test_a_read_only_installation_without_a_home_reads_a_recording(place: Path) -> None:
    nobody: list[str] = []
    if os.getuid() == 0:  # whom permissions do not stop
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to be somebody else than root")
        nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    place.chmod(0o755)
    installed = place / "installed"
    shutil.copytree(ROOT / "traceanalyzer", installed / "traceanalyzer", ignore=shutil.ignore_patterns("__pycache__"))
    temporary = place / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)
    recording = write_kineto(place / "a.json")
    for folder in (installed, *(each for each in installed.rglob("*") if each.is_dir())):
        folder.chmod(0o555)
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "HOME": "/nonexistent", "TMPDIR": str(temporary),
    }  # fmt: skip
    done = subprocess.run(
        [*nobody, sys.executable, "-c", SCAN, str(recording)],
        capture_output=True,
        text=True,
        check=False,
        cwd=temporary,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == len(kineto_events())
    assert not list(installed.rglob("__pycache__"))
    assert list(temporary.rglob("*.nbi"))
