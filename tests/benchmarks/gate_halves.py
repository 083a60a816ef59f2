"""The halves of one long recording through ``compare``, as recorded and with known changes in the second's tables.

    python -m tests.benchmarks.gate_halves EXPORT.sqlite[.gz|.xz] [--skip 0]

Prints, for every change and for its reverse, the exit code, what was named first and the processor seconds that
comparing the two documents took. The export needs range markers named ``step``. 300 steps take about two minutes.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.tools import edit_nsys
from traceanalyzer.results.comparison import Comparison


def _unpacked(path: Path, folder: Path) -> Path:
    if path.suffix not in (".gz", ".xz"):
        return path
    opener = gzip.open if path.suffix == ".gz" else lzma.open
    target = folder / "whole.sqlite"
    with opener(path) as source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    return target


def _run(*words: str) -> tuple[int, str, float]:
    begun = os.times()
    done = subprocess.run([sys.executable, "-m", "traceanalyzer", *words], capture_output=True, text=True, check=False)
    ended = os.times()
    spent = ended.children_user + ended.children_system - begun.children_user - begun.children_system
    return done.returncode, done.stderr.strip(), spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("export", type=Path)
    parser.add_argument("--skip", type=int, default=0, help="steps to leave out at the start")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole = _unpacked(arguments.export, folder)
        with closing(edit_nsys.opened(whole)) as connection:
            steps = len(edit_nsys.step_starts(connection))
            turns = np.bincount(edit_nsys.find_launches(connection).turn)
        middle = int(np.flatnonzero(turns >= 0.9 * steps)[-1]) // 2
        changes: dict[str, tuple[str, Callable[[Path], object]]] = {
            "slow": ("every host time + 5 %", lambda p: edit_nsys.slow_host(p, 50)),
            "gap": (f"+ 50 µs before launch {middle + 1}", lambda p: edit_nsys.add_gap(p, middle, 50_000)),
            "kernels": ("every kernel + 5 %", lambda p: edit_nsys.stretch_kernels(p, 50)),
            "copy": ("one more H2D copy per step", lambda p: edit_nsys.add_copy(p, middle // 4)),
            "cpu": ("no GPU activity", edit_nsys.drop_gpu),
        }
        half = (steps - arguments.skip) // 2
        edit_nsys.cut_steps(whole, folder / "first.sqlite", arguments.skip, arguments.skip + half)
        edit_nsys.cut_steps(whole, folder / "second.sqlite", arguments.skip + half, arguments.skip + 2 * half)
        for name, (_, change) in changes.items():
            edit_nsys.edited(folder / "second.sqlite", folder / f"{name}.sqlite", change)
        for name in ("first", "second", *changes):
            _run("analyze", str(folder / f"{name}.sqlite"), "--json", str(folder / f"{name}.json"))
        rows = [("first half → second", "first", "second"), ("second half → first", "second", "first")]
        rows.append(("second half → itself with every host time + 5 %", "second", "slow"))
        for name, (title, _) in changes.items():
            rows += [(f"first half → second with {title}", "first", name), ("the reverse", name, "first")]
        print(f"{half} steps a side\n\n| compared | exit code | verdict, first named | host | CPU s |")
        print("| --- | ---: | --- | --- | ---: |")
        for title, base, candidate in rows:
            out = folder / "out.json"
            out.unlink(missing_ok=True)
            sides = (str(folder / f"{side}.json") for side in (base, candidate))
            code, error, seconds = _run("compare", *sides, "--json", str(out))
            said, host = error, ""
            if out.exists():
                comparison = Comparison.from_json(out.read_bytes())
                host = f"{100 * ((comparison.host.ratio or 1.0) - 1):+.1f} %"
                named = [t for t in comparison.tests if t.verdict is comparison.verdict]
                said = f"{comparison.verdict.value}: {named[0].detail if named else ''}"
                changed = [t for t in named if t.verdict.value in ("regression", "improvement")]
                said += f" ({len(changed)} named)" if changed else ""
            print(f"| {title} | {code} | {said.replace(str(folder), '…')} | {host} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
