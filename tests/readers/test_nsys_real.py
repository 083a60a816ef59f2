"""A program profiled with a real Nsight Systems reads as nsys itself sums it up.

The program is unpacked by ``tests/tools/install_nsys.py`` into the folder ``TRACEANALYZER_TEST_NSYS`` names
(``~/.cache/traceanalyzer-tests/nsys`` without it) the first time, which downloads about 190 MB.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.nsys_exports import as_values
from tests.tools.install_nsys import InstallError, install, install_nvtx
from traceanalyzer.measures.range_projection import project_ranges, sum_ranges
from traceanalyzer.model.schema import SliceKind
from traceanalyzer.readers import nsys_arrow, nsys_rep, nsys_sqlite

pytestmark = pytest.mark.nsys

PROGRAM = """
import threading
import time

import nvtx


def batch(number):
    with nvtx.annotate("step"):
        with nvtx.annotate("data"):
            time.sleep(0.002)
        with nvtx.annotate("forward", domain="model"):
            sum(range(20000))
            with nvtx.annotate(f"layer {number % 2}"):
                sum(range(2000))
        handle = nvtx.start_range("transfer")
        time.sleep(0.001)
        nvtx.end_range(handle)


for number in range(7):
    batch(number)
worker = threading.Thread(target=batch, args=(1,))
worker.start()
worker.join()
"""


@pytest.fixture(scope="module")
def nsys() -> tuple[Path, Path]:
    """The nsys program and the folder of the nvtx module it can record."""
    named = os.environ.get("TRACEANALYZER_TEST_NSYS")
    cache = Path(named) if named else Path.home() / ".cache" / "traceanalyzer-tests" / "nsys"
    try:
        return install(cache), install_nvtx(cache)
    except (InstallError, OSError) as error:
        pytest.skip(f"no real nsys here: {error}")


@pytest.fixture(scope="module")
def report(nsys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of the program above."""
    folder = tmp_path_factory.mktemp("nsys")
    (folder / "program.py").write_text(PROGRAM)
    run(
        *(str(nsys[0]), "profile", "--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none"),
        *(f"--output={folder / 'run'}", sys.executable, str(folder / "program.py")),
        environment={"PYTHONPATH": str(nsys[1])},
    )
    return folder / "run.nsys-rep"


def run(*command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_ranges_equal_nsys_stats(
    nsys: tuple[Path, Path], report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (trace,) = nsys_rep.read(report, nsys=nsys[0]).traces
    sums = {(s.domain, s.name): (s.time_ns, s.count) for s in sum_ranges(trace, project_ranges(trace))}

    said = run(
        *(str(nsys[0]), "stats", "--report=nvtx_sum", "--format=csv", "--force-export=true"),
        *(f"--sqlite={tmp_path / 'stats.sqlite'}", str(report)),
    )
    table = said[said.index("Time (%)") :]
    want = {}
    for row in csv.DictReader(io.StringIO(table)):
        domain, _, name = row["Range"].rpartition(":")
        want[domain, name] = (int(row["Total Time (ns)"]), int(row["Instances"]))
    assert sums == want
    assert {key: count for key, (_, count) in want.items()} == {
        ("", "step"): 8,
        ("", "data"): 8,
        ("model", "forward"): 8,
        ("", "layer 0"): 4,
        ("", "layer 1"): 4,
        ("", "transfer"): 8,
    }


def test_ranges_nest_on_the_threads_that_opened_them(nsys: tuple[Path, Path], report: Path, tmp_path: Path) -> None:
    export = tmp_path / "export.sqlite"
    run(str(nsys[0]), "export", "--type=sqlite", f"--output={export}", str(report))
    (trace,) = nsys_sqlite.read(export).traces
    ranges = trace.slices.take(trace.slices.kind == SliceKind.ANNOTATION)
    names = [trace.names[code] for code in ranges.name.tolist()]
    rows = list(zip(names, ranges.thread.tolist(), ranges.start_ns.tolist(), ranges.end_ns.tolist(), strict=True))
    steps = [row for row in rows if row[0] == "step"]
    assert len({thread for _, thread, _, _ in steps}) == 2
    for name, thread, start, end in rows:
        inside = [s for s in steps if s[1] == thread and s[2] <= start and end <= s[3]]
        assert name == "step" or len(inside) == 1
    assert any((trace.slices.kind == SliceKind.OS_CALL).tolist())


def test_every_export_format_gives_the_same_trace(nsys: tuple[Path, Path], report: Path, tmp_path: Path) -> None:
    for kind, name in (("sqlite", "a.sqlite"), ("parquetdir", "parquet"), ("arrowdir", "arrow")):
        run(str(nsys[0]), "export", f"--type={kind}", f"--output={tmp_path / name}", str(report))
    database = as_values(nsys_sqlite.read(tmp_path / "a.sqlite"))
    assert as_values(nsys_arrow.read(tmp_path / "parquet")) == database
    assert as_values(nsys_arrow.read(tmp_path / "arrow")) == database


def test_an_export_with_every_table_empty_where_nothing_happened_is_read(
    nsys: tuple[Path, Path], report: Path, tmp_path: Path
) -> None:
    export = tmp_path / "all.sqlite"
    run(str(nsys[0]), "export", "--type=sqlite", "--lazy=false", f"--output={export}", str(report))
    (trace,) = nsys_sqlite.read(export).traces
    assert "The recording holds no GPU activity." in trace.integrity.notes
    assert trace.devices == ()
