"""Cut a Kineto recording down to a few whole steps, to keep as a sample.

    python -m tests.tools.trim_kineto IN.pt.trace.json.gz OUT.pt.trace.json.gz --steps 23:26

Kept: every host event that starts between the first kept step's start and the last one's end, the GPU work those
calls launched (also where it ran later), and everything that describes the recording. Dropped: the launch arrows
(``ac2g``), which repeat what correlation ids say, and two running numbers of each event that nothing refers to.
Numbers keep the digits they have in the source.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

Event = dict[str, Any]

GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"}
CALL_CATEGORIES = {"cuda_runtime", "cuda_driver"}
RUNNING_NUMBERS = ("Ev Idx", "Record function id")
# a recording kept in public must not say whose machine or which folders it came from
PRIVATE = re.compile(rb"/(home|root|Users|tmp|mnt|usr|opt|workspace|data)/|[\w.+-]+@[\w-]+\.[a-z]{2,}|hostname", re.I)
# decimal numbers travel as marked strings through the json module, which would round or reformat them
_MARK = "\x01"
_MARKED = re.compile(r'"\\u0001([^"]*)"')


def trim(document: dict[str, Any], first: int, end: int, name: str) -> dict[str, Any]:
    """Return the document with only steps ``first`` to ``end - 1``.

    Args:
        document: A recording whose decimals are marked strings, as ``load`` returns it.
        first: Number of the first ``ProfilerStep#N`` kept.
        end: Number after the last one.
        name: New ``traceName``.

    Raises:
        SystemExit: A step is not in the recording.
    """
    events: list[Event] = document["traceEvents"]
    wanted = {f"ProfilerStep#{number}" for number in range(first, end)}
    markers = [e for e in events if e.get("cat") == "user_annotation" and e["name"] in wanted]
    if {e["name"] for e in markers} != wanted:
        raise SystemExit(f"steps {first} to {end - 1} are not all in the recording")
    start_ns = min(_start(e) for e in markers)
    end_ns = max(_start(e) + _ns(e["dur"]) for e in markers)

    def inside(event: Event) -> bool:
        return start_ns <= _start(event) < end_ns

    calls = [e for e in events if e.get("cat") in CALL_CATEGORIES and inside(e)]
    launched = {e["args"]["correlation"] for e in calls if "correlation" in e.get("args", {})}
    kept = [e for e in events if _keep(e, inside, launched)]
    last_ns = max(end_ns, *(_start(e) + _ns(e["dur"]) for e in kept if e["ph"] == "X" and e.get("cat") != "Trace"))
    for event in kept:
        for key in RUNNING_NUMBERS:
            event.get("args", {}).pop(key, None)
        if event.get("cat") == "Trace":
            event["ts"], event["dur"] = _us(start_ns), _us(last_ns - start_ns)
        elif event["name"] == "Record Window End":
            event["ts"] = _us(last_ns)
        elif (event["ph"] == "M" and "ts" in event) or event["name"].startswith("Iteration Start"):
            event["ts"] = _us(start_ns)
    return {**document, "traceEvents": kept, "traceName": name}


def _keep(event: Event, inside: Any, launched: set[Any]) -> bool:
    category = event.get("cat")
    if category == "ac2g":
        return False
    if category in GPU_CATEGORIES:
        return event["args"].get("correlation") in launched
    if event["ph"] == "M" or category == "Trace" or event["name"] == "Record Window End":
        return True
    if event["name"].startswith("Iteration Start"):
        return True
    return bool(inside(event))


def load(path: Path) -> dict[str, Any]:
    """Read a recording, decimals as marked strings."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        loaded: dict[str, Any] = json.load(stream, parse_float=lambda digits: _MARK + digits)
    return loaded


def save(document: dict[str, Any], path: Path) -> None:
    """Write a recording, one event a line, with no clock in the gzip header."""
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    lines = [json.dumps(event, separators=(",", ":")) for event in document["traceEvents"]]
    text = json.dumps(head, separators=(",", ":"))[:-1] + ',"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    data = _MARKED.sub(r"\1", text).encode()
    found = PRIVATE.search(data)
    if found:
        raise SystemExit(f"the recording holds something private: {data[found.start() - 40 : found.end() + 40]!r}")
    path.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def _start(event: Event) -> int:
    return _ns(event["ts"])


def _ns(value: Any) -> int:
    whole, _, fraction = str(value).lstrip(_MARK).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])


def _us(value: int) -> str:
    return f"{_MARK}{value // 1000}.{value % 1000:03d}"


def main() -> None:
    """Trim one recording."""
    parser = argparse.ArgumentParser(description="Cut a Kineto recording down to a few whole steps.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", required=True, metavar="A:B", help="ProfilerStep numbers, half open")
    options = parser.parse_args()
    first, end = (int(part) for part in options.steps.split(":"))
    name = options.target.name.removesuffix(".gz")
    save(trim(load(options.source), first, end, name), options.target)


if __name__ == "__main__":
    main()
