"""Write the table of what each damaged file is answered.

python -m tests.tools.make_answers > tests/robustness/README.md
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.shared_data import ROOT, shared_files

HEAD = """# Answers to damaged input

What `traceanalyzer analyze FILE` answers to each damaged file of `shared/bad_inputs`: exit code, verdict, busy time of
the first device, what was left out, and the first note (or the line of the refusal). Written by
`python -m tests.tools.make_answers`; `tests/robustness/test_damaged_files.py` holds the expected values and fails when
this page is out of date.

| file | exit | verdict | GPU activities | busy | left out | first note or refusal |
| --- | --: | --- | --: | --: | --- | --- |
"""


def answer_row(path: Path) -> str:
    """Analyse one file through the command line and return its row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "traceanalyzer", "analyze", path.name, "--json", str(target)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, env=environment, check=False)
        if not target.exists():
            return _row(path.name, done.returncode, "unusable", "–", "–", "–", done.stderr.strip())
        rank = json.loads(target.read_text())["ranks"][0]
    integrity = rank["integrity"]
    left_out = "; ".join(f"{entry['count']} × {entry['reason']}" for entry in integrity["dropped"])
    busy = f"{rank['devices'][0]['busy_ns']:,} ns" if rank["devices"] else "–"
    return _row(
        path.name,
        done.returncode,
        integrity["verdict"],
        integrity["gpu_activities"],
        busy,
        left_out or "–",
        next(iter(integrity["notes"]), "–"),
    )


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def table() -> str:
    """Return the whole page; the damaged files must be beside the checkout."""
    with ThreadPoolExecutor(2) as pool:
        return HEAD + "".join(pool.map(answer_row, sorted(shared_files("bad_inputs/*"))))


if __name__ == "__main__":
    sys.stdout.write(table())
