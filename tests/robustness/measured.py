"""What a command costs: run in a process of its own, whose highest memory and processor time are read at its end."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.shared_data import ROOT

LARGEST_FACTOR = 4
LARGEST_BASE_BYTES = 300_000_000
LONGEST_CPU_SECONDS = 10.0
# VmHWM begins anew with the program; ru_maxrss of a child begins with its parent's, and this parent may be large
_SCRIPT = """
import json, os, re, sys
from pathlib import Path
from traceanalyzer.cli import main
code = main(sys.argv[2:])
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
times = os.times()
Path(sys.argv[1]).write_text(json.dumps([code, peak, times.user + times.system]))
"""


@dataclass(frozen=True)
class Cost:
    """What one run of the command line answered and needed.

    Attributes:
        code: Exit code.
        error: Standard error.
        peak_bytes: Highest resident memory.
        cpu_seconds: Processor time of the process, its start included.
    """

    code: int
    error: str
    peak_bytes: int
    cpu_seconds: float


def run_measured(folder: Path, *arguments: str) -> Cost:
    """Run the command line in a new process.

    Args:
        folder: Where the measurement may be written.
        arguments: What follows ``traceanalyzer``.
    """
    told = folder / "cost.json"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(told), *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert told.exists(), done.stderr
    code, peak, seconds = json.loads(told.read_text())
    return Cost(code, done.stderr, peak, seconds)


def most_bytes(uncompressed: int) -> int:
    """Return the memory that an input of so many uncompressed bytes may take."""
    return LARGEST_FACTOR * uncompressed + LARGEST_BASE_BYTES
