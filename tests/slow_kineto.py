"""A second, slow reading of Kineto files, used only to check the fast one and the measures.

Nothing is repaired or dropped: it is for sound recordings.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from traceanalyzer.model.calls import classify, strip_version
from traceanalyzer.model.schema import (
    Activities,
    ActivityKind,
    Calls,
    CopyDirection,
    MemoryKind,
    Overheads,
    SliceKind,
    Slices,
    WaitKind,
    Waits,
)
from traceanalyzer.model.trace import Device, Thread, Trace

_ACTIVITY = {
    "kernel": ActivityKind.KERNEL,
    "gpu_memcpy": ActivityKind.COPY,
    "gpu_memset": ActivityKind.MEMSET,
}
_SLICE = {
    "cpu_op": SliceKind.OPERATOR,
    "operator": SliceKind.OPERATOR,
    "user_annotation": SliceKind.ANNOTATION,
    "python_function": SliceKind.PYTHON,
}
_OLD = {"memcpy": "gpu_memcpy", "memset": "gpu_memset", "runtime": "cuda_runtime"}
_DIRECTION = {
    "HtoD": CopyDirection.H2D,
    "DtoH": CopyDirection.D2H,
    "DtoD": CopyDirection.D2D,
    "PtoP": CopyDirection.P2P,
}


def to_ns(text: str | int) -> int:
    """Read decimal microseconds exactly, rounding below a nanosecond as decimal text says."""
    whole, _, fraction = str(text).partition(".")
    sign = -1 if whole.startswith("-") else 1
    digits = (fraction + "0000")[:4]
    return int(whole) * 1000 + sign * ((int(digits) + 5) // 10)


def read(path: Path) -> Trace:
    """Read a Kineto file with the standard library's parser."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    document = json.loads(raw, parse_float=str)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    names: dict[str, int] = {}
    threads: dict[tuple[Any, Any], int] = {}
    tables: dict[str, list[dict[str, int]]] = {"a": [], "c": [], "s": [], "o": [], "w": []}
    for e in events:
        cat = str(e.get("cat", "")).lower()
        cat = _OLD.get(cat, cat)
        args = e.get("args", {})
        start = to_ns(e["ts"])
        row = {
            "start_ns": start,
            "end_ns": start + to_ns(e.get("dur", 0)),
            "name": names.setdefault(e["name"], len(names)),
        }
        if cat in _ACTIVITY:
            title = e["name"]
            kind = _ACTIVITY[cat]
            copy = kind == ActivityKind.COPY
            row |= {
                "kind": kind,
                "device": int(args.get("device", 0)),
                "stream": int(args.get("stream", -1)),
                "correlation": int(args.get("correlation", 0)) or -1,
                "size_bytes": int(args.get("bytes", -1)),
                "direction": next((v for k, v in _DIRECTION.items() if k in title), 5) if copy else 0,
                "host_memory": (
                    MemoryKind.PAGEABLE if "Pageable" in title else MemoryKind.PINNED if "Pinned" in title else 0
                )
                if copy
                else 0,
            }
            tables["a"].append(row)
        elif cat in ("cuda_runtime", "cuda_driver"):
            row["name"] = names.setdefault(strip_version(e["name"]), len(names))
            row |= {
                "thread": threads.setdefault((e["pid"], e["tid"]), len(threads)),
                "kind": classify(e["name"]),
                "correlation": int(args.get("correlation", 0)) or -1,
            }
            tables["c"].append(row)
        elif cat in _SLICE:
            row |= {"thread": threads.setdefault((e["pid"], e["tid"]), len(threads)), "kind": _SLICE[cat]}
            tables["s"].append(row)
        elif cat == "overhead":
            tables["o"].append(row | {"is_module_load": int("Loading" in e["name"])})
        elif cat == "cuda_sync":
            del row["name"]
            tables["w"].append(row | {"kind": WaitKind.OTHER})
    origin = min(r["start_ns"] for rows in tables.values() for r in rows)
    for rows in tables.values():
        for r in rows:
            r["start_ns"] -= origin
            r["end_ns"] -= origin

    def columns(rows: list[dict[str, int]]) -> dict[str, list[int]]:
        return {key: [r[key] for r in rows] for key in rows[0]} if rows else {}

    return Trace.build(
        names=list(names),
        origin_ns=int(document.get("baseTimeNanoseconds", 0)) + origin,
        threads=[Thread(0, i) for i in range(len(threads))],
        devices=[Device(d["id"], d.get("name", "")) for d in document.get("deviceProperties", [])],
        activities=Activities.build(**columns(tables["a"])),
        calls=Calls.build(**columns(tables["c"])),
        slices=Slices.build(**columns(tables["s"])),
        overheads=Overheads.build(**columns(tables["o"])),
        waits=Waits.build(**columns(tables["w"])),
    )
