"""Hand-written memory snapshots: pickles as torch writes them, in its old and new layouts. Times are microseconds."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
EPOCH_US = 1_796_000_000_000_000


def frame(function: str, line: int = 1, file: str = "train.py") -> dict[str, Any]:
    """One frame of a stack."""
    return {"name": function, "filename": file, "line": line}


def block(size: int, state: str = "active_allocated", function: str | None = None, **more: Any) -> dict[str, Any]:
    """One block of a segment."""
    made = {"size": size, "requested_size": size, "state": state, "frames": [frame(function)] if function else []}
    return made | more


def segment(address: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """One segment whose sums are right; blocks lie one behind the other."""
    at = address
    for each in blocks:
        each.setdefault("address", at)
        at += each["size"]
    made = {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": blocks,
    }
    return made | more


@dataclass
class History:
    """Collects the events of one device."""

    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, time_us: float, action: str, address: int, size: int, function: str | None = None, **more: Any
    ) -> None:
        """Add an event."""
        made = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": EPOCH_US + round(time_us)}
        self.entries.append(made | {"frames": [frame(function)] if function else []} | more)

    def free(self, time_us: float, address: int, size: int) -> None:
        """Free a block at once."""
        self.add(time_us, "free_requested", address, size)
        self.add(time_us, "free_completed", address, size)


def snapshot(segments: list[dict[str, Any]], *histories: History, **settings: Any) -> dict[str, Any]:
    """The document of a recent torch."""
    return {
        "segments": segments,
        "device_traces": [history.entries for history in histories],
        "allocator_settings": {"expandable_segments": False, "garbage_collection_threshold": 0.0} | settings,
    }


def write(path: Path, document: Any, protocol: int = 4) -> Path:
    """Write a pickle."""
    path.write_bytes(pickle.dumps(document, protocol=protocol))
    return path
