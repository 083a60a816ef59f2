"""Print how much longer each phase took under a profiler, from the run folders of the recorder, as Markdown.

    python tests/tools/inflation_table.py RUN [RUN ...]

One row per pass that measured steps both bare and profiled. Each cell is the median of the profiled times over the
median of the bare ones (before and after recording together), on the host's clock; the number of steps stands beside
the bare step time. Waiting for data is not work that a profiler stretches, so its mean times stand there instead of
their ratio. Where one training was recorded several times, a last row holds the medians of its passes' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

PHASES = ("h2d", "forward", "loss", "backward", "optimizer", "ema", "log")
SHORTEST_NS = 50_000  # below this, the clock's own granularity and a single preemption decide the ratio


def rows(folder: Path) -> list[list[str]]:
    """Return one row of cells per usable pass of a run folder."""
    document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    configuration = document["configuration"]
    training = f"{Path(configuration['model']).stem}, batch {configuration['batch']}"
    if faults := [fault["name"] for fault in document["faults"] if fault["name"] != "healthy"]:
        training += ", " + ", ".join(faults)
    found = []
    for one in document["passes"]:
        bare, profiled = gather(one, "unprofiled", "unprofiled_after"), gather(one, "profiled")
        if not bare.get("step") or not profiled.get("step"):
            continue
        step_ms = statistics.median(bare["step"]) / 1e6
        cells = [ratio(bare.get(phase, []), profiled.get(phase, [])) for phase in ("step", *PHASES)]
        counts = f"{len(bare['step'])} / {len(profiled['step'])}"
        waits = " → ".join(f"{statistics.mean(side['data']) / 1e6:.1f}" for side in (bare, profiled))
        found.append([folder.name, training, one["profiler"], f"{step_ms:.1f}", counts, *cells, waits])
    return found


def gather(one: dict[str, Any], *sides: str) -> dict[str, list[int]]:
    """Join the step and phase times of some parts of a pass; ``step`` holds the step times."""
    joined: dict[str, list[int]] = {}
    for side in sides:
        part = one.get(side) or {}
        for name, times in {"step": part.get("step_ns", []), **part.get("phase_ns", {})}.items():
            joined.setdefault(name, []).extend(times)
    return joined


def ratio(bare: list[int], profiled: list[int]) -> str:
    """Return the ratio of the medians; a dash where there is nothing to divide, or too little."""
    if not bare or not profiled or statistics.median(bare) < SHORTEST_NS:
        return "–"
    return f"{statistics.median(profiled) / statistics.median(bare):.2f}"


def medians(table: list[list[str]]) -> list[list[str]]:
    """Return one row per training and profiler that has several rows: the medians of their ratios."""
    kinds: dict[tuple[str, str], list[list[str]]] = {}
    for row in table:
        kinds.setdefault((row[1], row[2]), []).append(row)
    found = []
    for (training, profiler), members in kinds.items():
        if len(members) > 1:
            columns = zip(*(row[5:-1] for row in members), strict=True)
            cells = ["–" if "–" in column else f"{statistics.median(map(float, column)):.2f}" for column in columns]
            found.append([f"**median of {len(members)}**", training, profiler, "", "", *cells, ""])
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print the profilers' inflation per phase as Markdown.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN")
    table = [row for folder in parser.parse_args().folders for row in rows(folder)]
    head = ["run", "training", "profiler", "bare step, ms", "steps bare / profiled", "step", *PHASES]
    head.append("data wait bare → profiled, ms")
    lines = [head, ["---"] * 3 + ["---:"] * (len(head) - 3), *table, *medians(table)]
    sys.stdout.write("".join("| " + " | ".join(line) + " |\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
