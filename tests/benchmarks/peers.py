"""What other tools name on the labelled recordings, beside what this one names.

    python -m tests.benchmarks.peers [--scratch FOLDER] [--markdown FILE]

Each tool is installed from the package index in a virtual environment of its own below FOLDER (kept between runs) and
run as its users would run it; nothing of it is copied here. Printed is what it says, in its own words, and whether
those words name the true cause (the patterns below are generous: any mention counts).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.score_labels import GIVEN, LABELLED, SHARED, Label, labels, score_one

TIMEOUT_S = 180

# what a tool must mention to have named a cause
NAMED = {
    "TA101": r"data ?loader|input|num_workers",
    "TA102": r"data ?loader|input|num_workers",
    "TA104": r"data ?loader|input|persistent|epoch",
    "TA105": r"data ?loader|input|augment|transform",
    "TA202": r"shape|plan|cudnn|autotun|heuristic",
    "TA205": r"garbage|\bgc\b",
    "TA207": r"anomaly",
    "TA301": r"pageable|pinned|pin_memory|h2d|host.to.device|cop(y|ies)",
    "TA304": r"h2d|host.to.device|small (copies|transfers)|copy_bound|tiny",
    "TA402": r"empty_cache|cudafree|emptied|alloc",
    "TA403": r"retr(y|ies)|alloc|out.of.memory|oom|memory (cap|limit)",
    "TA404": r"fragment|expandable|alloc",
    "TA501": r"sync|\.item",
    "TA601": r"tensor core|tf32|mixed precision|\bamp\b|fp32",
    "TA604": r"optimizer|fused",
    "TA801": r"validat",
    "TA802": r"checkpoint|\bsav(e|ing)\b",
    "TA803": r"\blog(ging)?\b",
    "TA201": r"launch|small.?batch|small.kernel|kernel.size|tiny kernel|cuda graph|overhead",
}


@dataclass(frozen=True)
class Peer:
    """Another tool.

    Attributes:
        name: Package and version.
        requirements: What to install.
        reads: Endings of recordings it reads.
        command: Command line for a recording, given the environment's ``bin`` and a scratch folder.
        words: What it says, most important first, from its output.
        is_breakdown: It divides time and names no causes.
    """

    name: str
    requirements: tuple[str, ...]
    reads: tuple[str, ...]
    command: Callable[[Path, Path, Path], list[str]]
    words: Callable[[str], list[str]]
    is_breakdown: bool = False


_TENSORBOARD = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from torch_tb_profiler.profiler.data import RunProfileData
profile = RunProfileData.parse("host_1", 1, sys.argv[1], sys.argv[2])
profile = profile[0] if isinstance(profile, tuple) else profile
print(json.dumps(profile.recommendations))
"""
_INSIGHT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
frame, _ = TraceAnalysis(trace_files={0: sys.argv[1]}).get_idle_time_breakdown(ranks=[0], visualize=False)
idle = frame.groupby("idle_category")["idle_time"].sum().sort_values(ascending=False)
print(json.dumps([f"{name} {int(time)} us" for name, time in idle.items() if time > 0]))
"""


def _script(text: str) -> Callable[[Path, Path, Path], list[str]]:
    return lambda binaries, recording, scratch: [str(binaries / "python"), "-c", text, str(recording), str(scratch)]


def _fournex(binaries: Path, recording: Path, scratch: Path) -> list[str]:
    folder = scratch / "run" / "profiler"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(recording, folder / "profiler_trace.json")
    return [str(binaries / "frx"), "analyze", str(folder.parent), "--json"]


def _last_json(text: str) -> Any:
    return json.loads(text[min(i for i in (text.find("{"), text.find("[")) if i >= 0) :])


def _nsys_ai_words(text: str) -> list[str]:
    """Titles of its findings, with the part that differs between instances of one finding cut off."""
    order = {"critical": 0, "warning": 1}
    findings = sorted(_last_json(text)["findings"], key=lambda f: order.get(f["severity"], 2))
    return [re.split(r"[:(]", f["label"])[0].strip() for f in findings]


PEERS = (
    Peer(
        "gpu-idle 0.1.0",
        ("gpu-idle==0.1.0",),
        (".json",),
        lambda binaries, recording, _: [str(binaries / "gpu-idle"), "--json", str(recording)],
        lambda text: [f"{f['cause']}" for f in _last_json(text)["findings"]],
    ),
    Peer(
        "fournex 0.3.1",
        ("fournex==0.3.1",),
        (".json",),
        _fournex,
        lambda text: [b["label"] for b in _last_json(text)["result"]["run"]["bottlenecks"]],
    ),
    Peer(
        "torch-tb-profiler 0.4.3",
        ("torch-tb-profiler==0.4.3",),
        (".json",),
        _script(_TENSORBOARD),
        lambda text: [re.sub(r"<[^>]*>", "", one).split(". ")[0] for one in _last_json(text)],
    ),
    Peer(
        "nsys-ai 0.3.0",
        ("nsys-ai==0.3.0",),
        (".sqlite",),
        lambda binaries, recording, _: [str(binaries / "nsys-ai"), "diagnose", str(recording), "--format", "json"],
        _nsys_ai_words,
    ),
    Peer(
        "traceinsight 0.6.1",
        ("traceinsight==0.6.1", "pandas==2.3.3"),
        (".json",),
        _script(_INSIGHT),
        _last_json,
        is_breakdown=True,
    ),
)


@dataclass(frozen=True)
class Said:
    """What a tool said about one recording.

    Attributes:
        words: In its own words, each once.
        count: How many findings that were.
        error: Why it said nothing, or empty.
        is_breakdown: It divides time and names no causes.
    """

    words: tuple[str, ...]
    count: int = 0
    error: str = ""
    is_breakdown: bool = False

    def shows(self, label: Label) -> str:
        """Mark whether the true cause is named, first, later or not at all."""
        if self.error:
            return self.error
        wanted = label.expected or label.limiter
        if wanted is None and self.is_breakdown:
            return "breakdown only"
        if wanted is None:
            return "nothing, right" if not self.count else f"{self.count} false alarms"
        hits = [at for at, word in enumerate(self.words) if re.search(NAMED[wanted], word, re.IGNORECASE)]
        where = "not named" if not hits else "first" if hits[0] == 0 else f"as no. {hits[0] + 1}"
        said = "; ".join(self.words[:2]) + ("; …" if len(self.words) > 2 else "")
        return f"{where} ({self.count}): {said}" if self.count else "nothing said"


def install(peer: Peer, scratch: Path) -> Path | None:
    """Install a tool where that was not done before; None where it cannot be."""
    folder = scratch / peer.name.replace(" ", "-")
    binaries = folder / "bin"
    if (folder / "installed").exists():
        return binaries
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(binaries / "pip"), "install", "--quiet", "--disable-pip-version-check", *peer.requirements]
    if subprocess.run(pip, check=False, capture_output=True, timeout=900).returncode:
        return None
    (folder / "installed").touch()
    return binaries


def ask(peer: Peer, binaries: Path, recording: Path, scratch: Path) -> Said:
    """Run a tool over one recording."""
    if not recording.name.endswith(peer.reads):
        return Said((), error="does not read it")
    try:
        done = subprocess.run(
            peer.command(binaries, recording, scratch),
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=scratch,
        )
        words = peer.words(done.stdout)
    except subprocess.TimeoutExpired:
        return Said((), error=f"not done in {TIMEOUT_S} s")
    except (ValueError, KeyError, TypeError):
        return Said((), error="fails")
    return Said(tuple(dict.fromkeys(words)), len(words), is_breakdown=peer.is_breakdown)


def unpacked(path: Path, scratch: Path) -> Path:
    """Write a recording uncompressed, as every tool reads it."""
    source = path
    if path.is_dir():
        source = next(f for f in sorted(path.iterdir()) if f.name.endswith(".gz") and "memory" not in f.name)
    target = scratch / ("recording.sqlite" if ".sqlite" in source.name else "recording.pt.trace.json")
    for old in scratch.glob("recording.*"):
        old.unlink()
    target.write_bytes(gzip.decompress(source.read_bytes()))
    return target


def recordings() -> list[tuple[str, Path, Label]]:
    """Every labelled recording that is at hand as one compressed file."""
    made = [(name, LABELLED / name, label) for name, label in labels(LABELLED / "labels.json").items()]
    given = [(name, SHARED / name, label) for name, label in labels(GIVEN).items() if name.endswith(".gz")]
    return made + [
        ("given: " + name.split("/")[-1].split(".")[0], path, label) for name, path, label in given if path.exists()
    ]


def table(scratch: Path, rows: Sequence[tuple[str, Path, Label]]) -> list[str]:
    """Run everything; returns Markdown lines."""
    ready = [(peer, install(peer, scratch)) for peer in PEERS]
    head = ["recording", "true cause", "traceanalyzer", *(peer.name for peer in PEERS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    right = dict.fromkeys(["traceanalyzer", *(peer.name for peer in PEERS)], 0)
    asked = dict(right)
    extra = dict(right)
    work = scratch / "work"
    work.mkdir(exist_ok=True)
    for name, path, label in rows:
        ours = score_one(path, name, label)
        named = ours.faults or ours.limiters
        said = [Said(named, len(named))]
        cells = [", ".join(named) or "nothing"]
        recording = unpacked(path, work)
        for peer, binaries in ready:
            answer = ask(peer, binaries, recording, work) if binaries else Said((), error="does not install")
            said.append(answer)
            cells.append(answer.shows(label))
        wanted = label.expected or label.limiter
        for tool, answer, is_own in zip(right, said, [True] + [False] * len(PEERS), strict=True):
            if answer.error == "does not read it" or (answer.is_breakdown and not wanted):
                continue
            asked[tool] += 1
            hit = ours.is_right if is_own else answer.shows(label).startswith(("first", "as no.", "nothing, right"))
            right[tool] += hit
            extra[tool] += answer.count - (1 if hit and wanted else 0) if not is_own else len(ours.false_alarms)
        cause = f"{wanted or 'none'}: {label.cause}"
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in (name, cause, *cells)) + " |")
        print(lines[-1], flush=True)
    totals = [f"{right[tool]} of {asked[tool]}" for tool in right]
    lines.append("| **names the true cause** (or is rightly silent) | | " + " | ".join(totals) + " |")
    others = [str(extra[tool]) for tool in right]
    lines.append("| **findings beside it** | | " + " | ".join(others) + " |")
    return lines


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "traceanalyzer-peers")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    rows = [row for row in recordings() if not arguments.only or row[0] in arguments.only]
    lines = table(arguments.scratch, rows)
    print("\n".join(lines[-2:]))
    if arguments.markdown:
        text = [
            "# What other tools name",
            "",
            "Made by `python -m tests.benchmarks.peers`. Each tool runs on the same labelled recordings, as its users",
            "would run it. A cell says whether any of its findings mentions the true cause (first, later or not at",
            "all), how many findings it gave, and the first two in its own words. traceinsight divides idle time into",
            "three classes and names no causes; on healthy recordings that is no false alarm. For a launch-bound",
            "recording mentioning launches, small kernels or a small batch is enough.",
            "",
            *lines,
            "",
        ]
        arguments.markdown.write_text("\n".join(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
