"""What the rules about memory share: which evidence there is, and findings that cost room rather than time."""

from __future__ import annotations

from collections.abc import Mapping

from traceanalyzer.measures import Measures
from traceanalyzer.measures.memory_snapshot import main_device
from traceanalyzer.results.finding import Evidence
from traceanalyzer.results.memory import DeviceMemory

HISTORY = "a memory snapshot with history (torch.cuda.memory._record_memory_history, then _dump_snapshot)"
EVENTS = "allocator events (profile_memory=True) or a memory snapshot"


def device_memory(measures: Measures, *, with_history: bool = False) -> DeviceMemory | None:
    """Return the allocator of the GPU that held most; None without a snapshot, or without the history asked for."""
    memory = measures.memory
    if memory is None or (with_history and not memory.has_history):
        return None
    return main_device(memory)


def device_bytes(measures: Measures, device: DeviceMemory | None) -> int | None:
    """Return how much memory the device has, as snapshot, recording or recorder say."""
    if device is not None and device.device_bytes:
        return device.device_bytes
    known = [d.memory_bytes for d in measures.trace_devices if d.memory_bytes]
    if known:
        return max(known)
    gpus = measures.recorder.get("gpus")
    sizes = [g.get("memory_bytes") for g in gpus if isinstance(g, Mapping)] if isinstance(gpus, list) else []
    return max((s for s in sizes if isinstance(s, int)), default=None)


def moment(time_ns: int | None, what: str, where: str | None = None) -> list[Evidence]:
    """Make evidence of a moment; none where its time is not known."""
    if time_ns is None or time_ns < 0:
        return []
    return [Evidence(start_ns=time_ns, end_ns=time_ns + 1, what=what, where=where)]
