"""Facts of an Nsight Systems export beside its timeline: clock, versions, devices, and what was not recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from traceanalyzer.model.trace import Device, Integrity
from traceanalyzer.readers.nsys_tables import RawTable

_TIMED = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY")
_SECOND_NS = 1_000_000_000
_FOREVER_NS = 1 << 62
_WEEK_NS = 7 * 86_400 * 1_000_000_000

# What each table holds and the `nsys profile` option that records it. The others are only made when something
# happened (a memset, a whole graph), so their absence says nothing.
_OPTIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"), "kernels", "--trace=cuda"),
    (("CUPTI_ACTIVITY_KIND_RUNTIME",), "CUDA API calls", "--trace=cuda"),
    (("NVTX_EVENTS", "NVTX_EVENTS_V2", "NVTX_EVENTS_V3"), "NVTX ranges", "--trace=nvtx"),
    (("OSRT_API",), "OS calls", "--trace=osrt"),
    (("SCHED_EVENTS",), "thread scheduling", "--cpuctxsw=process-tree"),
    (("CUDA_GPU_MEMORY_USAGE_EVENTS",), "device memory usage", "--cuda-memory-usage=true"),
)

_LOSS = re.compile(r"lost|dropped|not all|incomplete|missing|overflow|out of order", re.IGNORECASE)
_NOT_ALL = re.compile(r"Not all (.+) events might have been collected")
_PATH = re.compile(r"(?:[A-Za-z]:)?[/\\][^\s'\"]+")
WARNING = 2  # DIAGNOSTIC_EVENT.severity from which on a message can mean lost data

# Environment, command lines, user and host names are recorded too; only these are ever read.
_SYSTEM_FACTS = {"NvDriverVersion": "driver", "CudaDriverVersion": "cuda_driver"}
_CAPTURE_FACTS = {
    "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "cuda_graph_trace",
    "PROCESS_0:COLLECT_GPU_MEMORY_USAGE": "cuda_memory_usage",
}
_EXPORT_FACTS = (
    "EXPORT_PRODUCT_NAME",
    "EXPORT_PRODUCT_VERSION",
    "EXPORT_SCHEMA_VERSION",
    "EXPORT_PARAM_TIME_SHIFT",
    "EXPORT_PARAM_TIME_NORMALIZE",
)
KEPT_FACTS = frozenset({*_SYSTEM_FACTS, *_CAPTURE_FACTS, *_EXPORT_FACTS})


def pairs(raw: RawTable | None) -> dict[str, str]:
    """Return a name/value table as a dictionary (the first row of a name wins)."""
    if raw is None:
        return {}
    names, name_texts = raw.texts("name")
    values, value_texts = raw.texts("value")
    result: dict[str, str] = {}
    for name, value in zip(names.tolist(), values.tolist(), strict=True):
        if name >= 0:
            result.setdefault(name_texts[name], value_texts[value] if value >= 0 else "")
    return result


def session_clock(raw: Mapping[str, RawTable]) -> tuple[int, int]:
    """Work out the clock of the export.

    Timestamps count from the session's start unless the export was asked to shift them or to write epoch time.

    Returns:
        Epoch ns of relative 0 (0 when the export does not say), and the export's own time at relative 0.
    """
    start = raw.get("TARGET_INFO_SESSION_START_TIME")
    epoch = int(start.integers("utcEpochNs", 0)[0]) if start is not None and len(start) else 0
    options = pairs(raw.get("META_DATA_EXPORT"))
    shift = options.get("EXPORT_PARAM_TIME_SHIFT", "0")
    shift_ns = int(shift) if re.fullmatch(r"-?\d+", shift) else 0
    if options.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true":
        shift_ns += epoch
    return epoch, shift_ns


def longest_duration_ns(raw: Mapping[str, RawTable]) -> int:
    """Longest plausible duration of a GPU activity or call: the capture's length, or a week when unknown."""
    details = raw.get("ANALYSIS_DETAILS")
    if details is None or not len(details):
        return _WEEK_NS
    length = int(details.integers("duration", 0).max())
    return min(length, _WEEK_NS) if length > 0 else _WEEK_NS


def believable_starts(raw: Mapping[str, RawTable], longest_ns: int) -> tuple[int, int]:
    """Earliest and latest believable start in the export's clock: around the median of calls and GPU activities."""
    tables = [raw[name] for name in _TIMED if name in raw and len(raw[name])]
    starts = [table.integers("start", 0) for table in tables]
    if not starts:
        return -_FOREVER_NS, _FOREVER_NS
    middle = int(np.median(np.concatenate([start[:: max(1, len(start) // 10_000)] for start in starts])))
    # nothing begins further from the middle than the capture is long; the rest is room for clocks that drift
    reach = 2 * longest_ns + _SECOND_NS
    return middle - reach, middle + reach


def producer(raw: Mapping[str, RawTable]) -> str:
    """Tool and version that wrote the export; empty for exports too old to say."""
    options = pairs(raw.get("META_DATA_EXPORT"))
    return f"{options.get('EXPORT_PRODUCT_NAME', '')} {options.get('EXPORT_PRODUCT_VERSION', '')}".strip()


def describe_recording(raw: Mapping[str, RawTable], devices: Iterable[Device]) -> dict[str, str]:
    """Collect the recording's facts for ``Trace.metadata``; never environment, command lines, users or hosts."""
    export = pairs(raw.get("META_DATA_EXPORT"))
    facts = {
        "profiler": "nsys",
        "nsys": export.get("EXPORT_PRODUCT_VERSION", ""),
        "nsys_schema": export.get("EXPORT_SCHEMA_VERSION", ""),
    }
    system = pairs(raw.get("TARGET_INFO_SYSTEM_ENV"))
    # a machine without a GPU reports version 0
    facts |= {key: system.get(name, "").removeprefix("0") for name, key in _SYSTEM_FACTS.items()}
    capture = pairs(raw.get("META_DATA_CAPTURE"))
    facts |= {key: capture.get(name, "") for name, key in _CAPTURE_FACTS.items()}
    facts["gpu"] = ", ".join(sorted({device.name for device in devices if device.name}))
    return {key: value for key, value in facts.items() if value}


def describe_devices(raw: Mapping[str, RawTable], pid: int, used: list[int]) -> tuple[Device, ...]:
    """Describe the devices a process used.

    Args:
        raw: The export's tables.
        pid: The process; devices are numbered per process where ``CUDA_VISIBLE_DEVICES`` differs.
        used: Device ids of its activities.
    """
    table = raw.get("TARGET_INFO_GPU")
    if table is None or not len(table):
        return tuple(Device(device) for device in used)
    ids = table.integers("id").tolist()
    ordinals = table.integers("cuDevice").tolist()
    mapping = raw.get("TARGET_INFO_CUDA_DEVICE")
    own: dict[int, int] = {}
    if mapping is not None:
        columns = (mapping.integers("cudaId"), mapping.integers("gpuId"), mapping.integers("pid", pid))
        own = {cuda: gpu for cuda, gpu, owner in zip(*(c.tolist() for c in columns), strict=True) if owner == pid}
    result = []
    for device in used:
        if own.get(device) in ids:
            row = ids.index(own[device])
        elif device in ordinals:
            row = ordinals.index(device)
        elif device in ids:
            row = ids.index(device)
        else:
            result.append(Device(device))
            continue
        result.append(_device(table, row, device))
    return tuple(result)


def _device(table: RawTable, row: int, device: int) -> Device:
    codes, names = table.texts("name")

    def fact(column: str) -> int | None:
        value = int(table.integers(column)[row])
        return value if value >= 0 else None

    major, minor = fact("computeMajor"), fact("computeMinor")
    warps, width = fact("maxWarpsPerSm"), fact("threadsPerWarp")
    return Device(
        device_id=device,
        name=names[int(codes[row])] if codes[row] >= 0 else "",
        memory_bytes=fact("totalMemory"),
        multiprocessors=fact("smCount"),
        compute_capability=(major, minor) if major is not None and minor is not None else None,
        max_threads_per_multiprocessor=warps * width if warps is not None and width is not None else None,
    )


def note_missing_tables(raw: Mapping[str, RawTable], integrity: Integrity) -> None:
    """Say what the recording does not hold, with the option that would have recorded it, and what nsys lost."""
    missing = [
        f"{what} ({option})"
        for tables, what, option in _OPTIONS
        if not any(table in raw and len(raw[table]) for table in tables)
    ]
    if missing:
        integrity.note(f"Not in the recording: {', '.join(missing)}.")
    faults = [
        ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CPU"),
        ("CUDA_UM_GPU_PAGE_FAULT_EVENTS", "GPU"),
    ]
    for table, side in faults:
        if table in raw and len(raw[table]):
            integrity.note(f"{len(raw[table])} unified-memory page-fault records of the {side}.")
    messages = raw.get("DIAGNOSTIC_EVENT")
    if messages is not None:
        codes, texts = messages.texts("text")
        severe = messages.integers("severity") >= WARNING
        said = [texts[code] for code in sorted(set(codes[severe].tolist()) - {-1}) if _LOSS.search(texts[code])]
        # nsys warns like this whenever a program is still running when recording stops
        kinds = [found.group(1) for text in said if (found := _NOT_ALL.match(text))]
        if kinds:
            integrity.note(f"nsys warns that not all events might have been collected: {', '.join(kinds)}.")
        for text in said:
            if not _NOT_ALL.match(text):
                integrity.note(f"nsys says: {_PATH.sub('…', text).strip()[:200]}")
