"""What a trace says about itself: devices, versions, rank. Never user, host or path names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from traceanalyzer.model.schema import ByteArray, SliceKind
from traceanalyzer.model.trace import Device, Integrity

_RANK = re.compile(r"rank[-_ ]?(\d+)(?:[-_ ]?of[-_ ]?(\d+))?", re.IGNORECASE)
# names under which exporters have written versions → the name used here
_VERSIONS = {
    "torch_version": "torch",
    "pytorch_version": "torch",
    "cuda_driver_version": "cuda_driver_version",
    "cuda_runtime_version": "cuda_runtime_version",
    "cupti_version": "cupti_version",
    "hip_driver_version": "hip_driver_version",
    "hip_runtime_version": "hip_runtime_version",
    "roctracer_version": "roctracer_version",
}
_SWITCHES = ("with_stack", "profile_memory", "record_shapes", "with_flops", "with_modules")


def describe_recording(metadata: Mapping[str, Any], slice_kinds: ByteArray) -> dict[str, str]:
    """Return the facts about a recording that may be shown.

    Args:
        metadata: Members of the trace's top-level object.
        slice_kinds: ``SliceKind`` of the slices read, to tell stacks from their absence in old traces.
    """
    facts = {
        ours: str(metadata[theirs]) for theirs, ours in _VERSIONS.items() if isinstance(metadata.get(theirs), int | str)
    }
    for switch in _SWITCHES:
        if str(metadata.get(switch, "")).lower() in ("1", "true"):
            facts[switch] = "1"
    if bool((slice_kinds == SliceKind.PYTHON).any()):
        facts["with_stack"] = "1"
    return facts


def base_ns(metadata: Mapping[str, Any]) -> int:
    """Return the epoch nanoseconds that the times of the file count from; 0 where they are absolute."""
    base = metadata.get("baseTimeNanoseconds")
    if isinstance(base, str) and base.isdecimal():
        base = int(base)
    return base if isinstance(base, int) and not isinstance(base, bool) else 0


def producer(metadata: Mapping[str, Any]) -> str:
    """Name the tool that wrote the trace."""
    version = metadata.get("torch_version", metadata.get("pytorch_version"))
    return f"PyTorch profiler {version}" if isinstance(version, str) else "PyTorch profiler"


def devices(metadata: Mapping[str, Any], integrity: Integrity) -> list[Device]:
    """Return the devices that ``deviceProperties`` describes."""
    described = metadata.get("deviceProperties")
    found: dict[int, Device] = {}
    for entry in described if isinstance(described, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), int):
            integrity.drop("device description without an id", str(entry)[:80])
            continue
        major, minor = _whole(entry, "computeMajor"), _whole(entry, "computeMinor")
        found[entry["id"]] = Device(
            device_id=entry["id"],
            name=str(entry.get("name", "")),
            memory_bytes=_whole(entry, "totalGlobalMem"),
            multiprocessors=_whole(entry, "numSms"),
            compute_capability=(major, minor) if major is not None and minor is not None else None,
            max_threads_per_multiprocessor=_whole(entry, "maxThreadsPerMultiprocessor"),
        )
    return list(found.values())


def rank_and_world_size(metadata: Mapping[str, Any], file_name: str) -> tuple[int | None, int | None]:
    """Return rank and number of ranks: as the trace says, else as its file name says, else None."""
    info = metadata.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world_size = _whole(info, "rank"), _whole(info, "world_size")
    if rank is None and (match := _RANK.search(file_name)) is not None:
        rank = int(match.group(1))
        if world_size is None and match.group(2) is not None:
            world_size = int(match.group(2))
    return rank, world_size


def _whole(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
