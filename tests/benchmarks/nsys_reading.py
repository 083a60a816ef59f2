"""How long an Nsight Systems export takes, stage by stage, and what pandas takes for the tables alone.

python -m tests.benchmarks.nsys_reading EXPORT.sqlite
"""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, demangledName",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, copyKind, bytes",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, bytes",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid",
    "OSRT_API": "start, end, globalTid, nameId",
}


def read_with_pandas(path: Path) -> None:
    """Load the tables the analysis needs, with the columns it cannot do without, and do nothing with them."""
    import pandas as pd

    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as connection:
        present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        began = time.perf_counter()
        for table, columns in TABLES.items():
            if table in present:
                pd.read_sql(f"SELECT {columns} FROM {table}", connection)
        report("pandas.read_sql", time.perf_counter() - began)


def read_whole(path: Path) -> None:
    """Read the export into a trace."""
    from traceanalyzer.readers import nsys_sqlite

    began = time.perf_counter()
    nsys_sqlite.read(path)
    report("reader", time.perf_counter() - began)


def analyse(path: Path) -> None:
    """Analyse the export twice; the second time nothing has to be compiled."""
    from traceanalyzer.pipeline import analyze

    for turn in ("first", "warm"):
        stages: dict[str, float] = {}
        began = time.perf_counter()
        analyze(path, timings=stages)
        seconds = ", ".join(f"{stage} {value:.2f}" for stage, value in stages.items())
        report(f"analyze, {turn} ({seconds})", time.perf_counter() - began)


def report(what: str, seconds: float) -> None:
    """Print one line: time, and the largest memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"{what}: {seconds:.2f} s, peak {peak} MiB\n")
    sys.stdout.flush()


def main() -> int:
    """Run each measurement in a process of its own, so that peaks do not mix."""
    parts = {"pandas": read_with_pandas, "reader": read_whole, "analyse": analyse}
    if len(sys.argv) == 3 and sys.argv[2] in parts:
        parts[sys.argv[2]](Path(sys.argv[1]))
        return 0
    if len(sys.argv) != 2:
        sys.stderr.write(f"usage: {Path(__file__).name} EXPORT.sqlite\n")
        return 2
    command = [sys.executable, "-m", "tests.benchmarks.nsys_reading", sys.argv[1]]
    return max(subprocess.run([*command, part], check=False).returncode for part in parts)


if __name__ == "__main__":
    raise SystemExit(main())
