"""The CUDA allocator's history and state, without the folders the code lies in."""

from __future__ import annotations

import pickle
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

_MAX_ENTRIES = 500_000
_LIBRARY = re.compile(r"^.*/(?:site-packages|dist-packages|python3\.\d+)/")


def start_history() -> None:
    """Begin to record allocator events with their Python stacks (native ones cost far more than they tell)."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=_MAX_ENTRIES, stacks="python")


def save_snapshot(path: Path) -> None:
    """Write the snapshot and stop recording.

    Args:
        path: Pickle file to write, as ``torch.cuda.memory._dump_snapshot`` does.
    """
    import torch

    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    snapshot["device_counters"] = [_counters(device) for device in range(torch.cuda.device_count())]
    shorten_paths(snapshot)
    with path.open("wb") as file:
        pickle.dump(snapshot, file)


def _counters(device: int) -> dict[str, int]:
    """Count what a history that began later cannot show: retries and errors since the program began."""
    import torch

    stats = torch.cuda.memory_stats(device)
    total = int(torch.cuda.get_device_properties(device).total_memory)
    counters = {
        "num_alloc_retries": int(stats.get("num_alloc_retries", 0)),
        "num_ooms": int(stats.get("num_ooms", 0)),
        "total_memory_bytes": total,
    }
    share = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # older torch cannot tell
    if share is not None:
        counters["limit_bytes"] = round(share(device) * total)
    return counters


def shorten_paths(snapshot: dict[str, Any]) -> None:
    """Cut every ``filename`` of a snapshot down to what names the code: the package's path, or the file's name.

    Args:
        snapshot: ``segments`` with ``blocks``, and ``device_traces``, as the allocator gives them; changed in place.
    """
    segments = snapshot.get("segments", [])
    owners = [*segments, *(block for segment in segments for block in segment.get("blocks", []))]
    owners += [entry for trace in snapshot.get("device_traces", []) for entry in trace]
    # A stack is shared by many events; shortening it again would only cost time.
    done: set[int] = set()
    for owner in owners:
        for stack in (owner.get("frames"), *(past.get("frames") for past in owner.get("history", []))):
            if stack and id(stack) not in done:
                done.add(id(stack))
                for frame in stack:
                    frame["filename"] = short_path(frame["filename"])


@lru_cache(maxsize=65_536)
def short_path(name: str) -> str:
    """Return ``torch/nn/modules/module.py`` for a library's file and the bare name for any other."""
    if "/" not in name:
        return name
    inside, found = _LIBRARY.subn("", name)
    return inside if found else name.rsplit("/", 1)[-1]
