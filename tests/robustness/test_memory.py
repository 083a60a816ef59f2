"""Hostile input costs no more than its size allows: four times its bytes and 300 MB, ten seconds of processor time."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness.measured import LONGEST_CPU_SECONDS, most_bytes, run_measured
from tests.robustness.recordings import event, kineto_document, kineto_events, write_kineto
from tests.shared_data import shared
from traceanalyzer.readers.files import _EXPANSION_CHECKED_FROM_BYTES

T = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile once what is compiled on first use: that time belongs to the installation, not to an input."""
    folder = tmp_path_factory.mktemp("compiled")
    assert run_measured(folder, "analyze", str(_plain(folder / "input.json"))).code == 0


def _plain(path: Path) -> Path:
    return write_kineto(path)


def _megabyte_names(path: Path) -> Path:
    events = [{**e, "name": f"{i}" + "x" * 1_000_000} for i, e in enumerate(kineto_events(2))]
    return write_kineto(path, events)


def _distinct_names(path: Path) -> Path:
    return write_kineto(path, [event("kernel", f"kernel_{i}", T + i, 0.5, tid=7) for i in range(200_000)])


def _deep(path: Path) -> Path:
    nested = "[" * 1_000_000 + "]" * 1_000_000
    path.write_text(json.dumps(kineto_document()).replace('"Input Dims": [[16, 3]]', f'"Input Dims": {nested}', 1))
    return path


def _deep_objects(path: Path) -> Path:
    nested = '{"a":' * 500_000 + "1" + "}" * 500_000
    path.write_text(json.dumps(kineto_document()).replace('"Input Dims": [[16, 3]]', f'"Input Dims": {nested}', 1))
    return path


def _open_brackets(path: Path) -> Path:
    path.write_text('{"traceEvents": [' + "{" * 5_000_000)
    return path


def _one_string(path: Path) -> Path:
    path.write_text('{"traceEvents": [{"name": "' + "x" * 20_000_000)
    return path


HOSTILE: dict[str, tuple[Callable[[Path], Path], int]] = {
    "sound": (_plain, 0),
    "names of a megabyte": (_megabyte_names, 0),
    "200,000 distinct names": (_distinct_names, 0),
    "a million nested lists": (_deep, 0),
    "half a million nested objects": (_deep_objects, 0),
    "five million opened objects": (_open_brackets, 2),
    "a string of 20 MB that never ends": (_one_string, 2),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_and_time_stay_within_what_the_size_allows(tmp_path: Path, name: str) -> None:
    make, code = HOSTILE[name]
    path = make(tmp_path / "input.json")
    cost = run_measured(tmp_path, "analyze", str(path))
    assert cost.code == code
    assert cost.peak_bytes < most_bytes(path.stat().st_size)
    assert cost.cpu_seconds < LONGEST_CPU_SECONDS


@pytest.mark.parametrize("open_file", [gzip.open, lzma.open], ids=["gzip", "xz"])
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, open_file: Callable[..., object]) -> None:
    path = tmp_path / "bomb"
    with open_file(path, "wb") as file:  # type: ignore[attr-defined]
        file.write(b'{"traceEvents": [')
        for _ in range(400):
            file.write(b" " * (1 << 20))
    cost = run_measured(tmp_path, "analyze", str(path))
    assert cost.code == 2
    assert "expands more than" in cost.error
    # the size that counts is what was unpacked until it was refused
    assert cost.peak_bytes < most_bytes(_EXPANSION_CHECKED_FROM_BYTES)
    assert cost.cpu_seconds < LONGEST_CPU_SECONDS


@pytest.mark.shared
@pytest.mark.parametrize("name", ["01_truncated.json", "02_quote_in_name.json", "05_nan_dur.json", "18_empty.json"])
def test_a_damaged_file_takes_little(tmp_path: Path, name: str) -> None:
    path = shared(f"bad_inputs/{name}")
    cost = run_measured(tmp_path, "analyze", str(path))
    assert cost.peak_bytes < most_bytes(path.stat().st_size)
    assert cost.cpu_seconds < LONGEST_CPU_SECONDS
