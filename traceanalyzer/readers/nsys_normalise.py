"""From the tables of an Nsight Systems export to one trace per process: the path all its file formats share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import (
    Activities,
    CallKind,
    Calls,
    IntArray,
    MemoryEvents,
    Waits,
)
from traceanalyzer.model.trace import Integrity, Recording, Source, Trace
from traceanalyzer.readers import nsys_activities as gpu
from traceanalyzer.readers import nsys_host as host
from traceanalyzer.readers.base import Progress
from traceanalyzer.readers.heap import return_memory
from traceanalyzer.readers.nsys_facts import (
    believable_starts,
    describe_devices,
    describe_recording,
    longest_duration_ns,
    note_missing_tables,
    producer,
    session_clock,
)
from traceanalyzer.readers.nsys_names import Names, StringTable
from traceanalyzer.readers.nsys_processes import (
    HostRows,
    ProcessShare,
    copy_integrity,
    describe_workers,
    of_process,
    process_id,
)
from traceanalyzer.readers.nsys_source import fingerprint, size_on_disk
from traceanalyzer.readers.nsys_tables import RawTable, TableSource, read_table


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Columns to read of one table (see ``read_table``)."""

    table: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()


KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
NVTX_TABLES = ("NVTX_EVENTS", "NVTX_EVENTS_V2", "NVTX_EVENTS_V3")
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

_GPU_NEEDED = ("start", "end", "deviceId", "streamId", "correlationId")
_GPU_OPTIONAL = ("contextId", "globalPid", "graphNodeId")
_ENUM = ("id", "name")

# the largest tables first, so that two readers finish together
_WANTED: tuple[_Wanted, ...] = (
    _Wanted(RUNTIME, ("start", "end", "nameId", "globalTid"), ("correlationId",)),
    _Wanted(
        KERNEL,
        _GPU_NEEDED,
        (
            *_GPU_OPTIONAL,
            "registersPerThread",
            *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
            *("staticSharedMemory", "dynamicSharedMemory"),
        ),
        (("demangledName", "shortName"),),
    ),
    _Wanted("OSRT_API", ("start", "end", "nameId", "globalTid")),
    *(
        _Wanted(table, ("start", "end", "eventType", "globalTid"), ("domainId",), (("text", "textId"),))
        for table in NVTX_TABLES
    ),
    _Wanted(
        MEMCPY,
        (*_GPU_NEEDED, "copyKind", "bytes"),
        (*_GPU_OPTIONAL, "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"),
    ),
    _Wanted(MEMSET, _GPU_NEEDED, (*_GPU_OPTIONAL, "bytes")),
    _Wanted(GRAPH, _GPU_NEEDED, (*_GPU_OPTIONAL, "graphId")),
    _Wanted("SCHED_EVENTS", ("start", "isSchedIn", "globalTid"), ("threadState",)),
    _Wanted(MEMORY, ("start", "bytes", "memoryOperationType"), ("globalPid", "deviceId", "address", "memKind")),
    _Wanted(
        SYNC,
        ("start", "end", "syncType"),
        ("globalPid", "deviceId", "streamId", "correlationId", "eventId", "eventSyncId"),
    ),
    _Wanted(CUDA_EVENT, ("correlationId",), ("globalPid", "eventId", "eventSyncId")),
    *(_Wanted(table, ("start", "end", "globalTid"), ("nameId", "overheadType")) for table in OVERHEAD_TABLES),
    _Wanted("CUDA_UM_CPU_PAGE_FAULT_EVENTS", ("start",), ("globalPid",)),
    _Wanted("CUDA_UM_GPU_PAGE_FAULT_EVENTS", ("start",), ("globalPid", "numberOfPageFaults")),
    _Wanted("StringIds", ("id", "value")),
    _Wanted("ThreadNames", ("nameId", "globalTid")),
    _Wanted("PROCESSES", ("globalPid", "name"), ("pid",)),
    _Wanted("META_DATA_EXPORT", ("name", "value")),
    _Wanted("META_DATA_CAPTURE", ("name", "value")),
    _Wanted("ANALYSIS_DETAILS", ("duration",), ("startTime", "stopTime")),
    _Wanted("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)),
    _Wanted("TARGET_INFO_SYSTEM_ENV", ("name", "value")),
    _Wanted(
        "TARGET_INFO_GPU",
        ("id", "name"),
        ("cuDevice", "totalMemory", "smCount", "computeMajor", "computeMinor", "maxWarpsPerSm", "threadsPerWarp"),
    ),
    _Wanted("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId"), ("pid",)),
    _Wanted("DIAGNOSTIC_EVENT", ("severity", "text")),
    *(
        _Wanted(table, _ENUM)
        for table in (
            "ENUM_CUDA_MEMCPY_OPER",
            "ENUM_CUDA_MEM_KIND",
            "ENUM_CUPTI_SYNC_TYPE",
            "ENUM_CUDA_DEV_MEM_EVENT_OPER",
            "ENUM_CUPTI_OVERHEAD_TYPE",
        )
    ),
)

_RECORDED = (KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, *NVTX_TABLES, "OSRT_API", "SCHED_EVENTS", MEMORY)


def build_recording(source: TableSource, path: Path, format_name: str, progress: Progress | None = None) -> Recording:
    """Read an export into one trace per process with GPU activity (one trace where there is none).

    Args:
        source: The export's tables.
        path: The input, file or folder.
        format_name: Reader name for the document.
        progress: Told how many of the wanted tables are read.

    Raises:
        TraceFormatError: It is no Nsight Systems export, it recorded nothing, or a needed column is absent.
    """
    if not any(table in source.tables() for table in (*_RECORDED, "StringIds")):
        raise TraceFormatError(
            source.path,
            "none of the tables of an Nsight Systems export is in it",
            "make one with `nsys export --type sqlite FILE.nsys-rep`",
        )
    raw = _fetch(source, progress)
    described = Source(
        path=source.path,
        format=format_name,
        size_bytes=size_on_disk(path),
        fingerprint=fingerprint(path),
        producer=producer(raw),
    )
    traces = _Export(source.path, raw).traces()
    raw.clear()
    # both allocators would keep what the raw tables took, on top of what the analysis needs later
    pa.default_memory_pool().release_unused()
    return_memory()
    return Recording(described, traces)


def wanted_columns(source: TableSource) -> dict[str, tuple[str, ...]]:
    """Return the tables and columns of an export that the analysis reads."""
    result = {}
    for wanted in _WANTED:
        if wanted.table in source.tables():
            names = (*wanted.needed, *(name for group in wanted.one_of for name in group), *wanted.optional)
            result[wanted.table] = tuple(name for name in source.columns(wanted.table) if name in names)
    return {table: columns for table, columns in result.items() if columns}


def _fetch(source: TableSource, progress: Progress | None) -> dict[str, RawTable]:
    present = [wanted for wanted in _WANTED if wanted.table in source.tables()]
    result: dict[str, RawTable] = {}
    with ThreadPoolExecutor(2) as pool:
        reads = pool.map(lambda w: read_table(source, w.table, w.needed, w.optional, w.one_of), present)
        for number, raw in enumerate(reads, 1):
            result[raw.name] = raw
            if progress is not None:
                progress(number, len(present))
    return result


class _Export:
    """One export while it is being turned into traces."""

    def __init__(self, path: str, raw: dict[str, RawTable]) -> None:
        self._path = path
        self._raw = raw
        self._integrity = Integrity()
        self._origin_ns, shift_ns = session_clock(raw)
        self._decoder = gpu.Decoder(
            names=Names(),
            strings=StringTable(raw.get("StringIds")),
            integrity=self._integrity,
            enums=gpu.Enums.of(raw),
            limit_ns=longest_duration_ns(raw),
            shift_ns=shift_ns,
            start_range_ns=believable_starts(raw, longest_duration_ns(raw)),
        )

    def traces(self) -> tuple[Trace, ...]:
        """Decode every table, then share the rows out among the processes."""
        note_missing_tables(self._raw, self._integrity)
        host_rows = HostRows()
        if RUNTIME in self._raw:
            host_rows.calls = host.decode_calls(self._decoder, self._raw.pop(RUNTIME))
        activities, owner = self._activities(host_rows.calls)
        waits = (
            gpu.decode_waits(self._decoder, self._raw[SYNC], self._raw.get(CUDA_EVENT)) if SYNC in self._raw else None
        )
        memory = gpu.decode_memory(self._decoder, self._raw[MEMORY]) if MEMORY in self._raw else None
        end_ns = self._last_moment(activities, host_rows.calls)
        was_cut = self._host_rows(host_rows, end_ns)
        if not len(activities) and host_rows.is_empty():
            raise TraceFormatError(
                self._path,
                "the export holds no kernel, call, range or OS-call rows",
                "record with `nsys profile --trace=cuda,nvtx,osrt …`",
            )
        self._check_launches(activities, host_rows.calls)
        if was_cut:
            # ends exactly where the capture does: only ranges that were cut there touch this last nanosecond
            self._integrity.cut_ns.append((end_ns - self._decoder.shift_ns - 1, end_ns - self._decoder.shift_ns))
        return self._share_out(activities, owner, waits, memory, host_rows)

    def _activities(self, calls: tuple[Calls, IntArray] | None) -> tuple[Activities, IntArray]:
        decoded = [
            decode(self._decoder, self._raw.pop(table))
            for table, decode in (
                (KERNEL, gpu.decode_kernels),
                (MEMCPY, gpu.decode_copies),
                (MEMSET, gpu.decode_memsets),
                (GRAPH, gpu.decode_graphs),
            )
            if table in self._raw
        ]
        if not decoded:
            return Activities.build(), np.zeros(0, dtype=np.int64)
        rows = Activities.concat(part.rows for part in decoded)
        owner = np.concatenate([part.process for part in decoded])
        if bool((owner < 0).any()):
            owner = self._owners_from_calls(rows, owner, calls)
        return rows, owner

    def _owners_from_calls(self, rows: Activities, owner: IntArray, calls: tuple[Calls, IntArray] | None) -> IntArray:
        """Find the process of GPU rows that do not name it, by way of the call that launched them."""
        if calls is None or not len(calls[0]):
            return np.where(owner < 0, 0, owner)
        process = host.process_of(calls[1])
        distinct = np.unique(process)
        self._integrity.note("GPU rows do not name their process; it is taken from the calls that launched them.")
        if len(distinct) == 1:
            return np.where(owner < 0, distinct[0], owner)
        order = np.argsort(calls[0].correlation, kind="stable")
        ids = calls[0].correlation[order]
        place = np.minimum(np.searchsorted(ids, rows.correlation), len(ids) - 1)
        found = (ids[place] == rows.correlation) & (rows.correlation >= 0)
        return np.where(owner < 0, np.where(found, process[order][place], distinct[0]), owner)

    def _last_moment(self, activities: Activities, calls: tuple[Calls, IntArray] | None) -> int:
        """Last recorded moment in the export's clock: where ranges left open are cut."""
        ends = [int(activities.end_ns.max())] if len(activities) else []
        if calls is not None and len(calls[0]):
            ends.append(int(calls[0].end_ns.max()))
        last = max(ends, default=-1) + self._decoder.shift_ns
        for table in (*NVTX_TABLES, "OSRT_API"):
            if table in self._raw and len(self._raw[table]):
                raw = self._raw[table]
                last = max(last, int(raw.integers("start", 0).max()), int(raw.integers("end", 0).max()))
        return last

    def _host_rows(self, rows: HostRows, end_ns: int) -> bool:
        """Decode the remaining host tables; says whether ranges had to be cut at the capture's end."""
        was_cut = False
        for table in NVTX_TABLES:
            if table in self._raw:
                slices, threads, cut = host.decode_nvtx(self._decoder, self._raw[table], end_ns)
                was_cut |= cut
                if len(slices):
                    rows.ranges.append((slices, threads))
        if "OSRT_API" in self._raw:
            rows.os_calls = host.decode_os_calls(self._decoder, self._raw.pop("OSRT_API"))
        if "SCHED_EVENTS" in self._raw:
            rows.schedules = host.decode_schedules(self._decoder, self._raw.pop("SCHED_EVENTS"))
        loading = self._loading_types()
        for table in OVERHEAD_TABLES:
            if table in self._raw and len(self._raw[table]):
                rows.overheads.append(host.decode_overheads(self._decoder, self._raw[table], loading))
        return was_cut

    def _loading_types(self) -> frozenset[int]:
        raw = self._raw.get("ENUM_CUPTI_OVERHEAD_TYPE")
        if raw is None:
            return frozenset()
        codes, texts = raw.texts("name")
        pairs = zip(raw.integers("id").tolist(), codes.tolist(), strict=True)
        return frozenset(number for number, code in pairs if code >= 0 and texts[code].endswith("_LOADING"))

    def _check_launches(self, activities: Activities, calls: tuple[Calls, IntArray] | None) -> None:
        """Say so where kernels were launched but their rows are missing: idle time would be an invention."""
        launches = int(np.isin(calls[0].kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)).sum()) if calls else 0
        kernels = int(np.isin(activities.kind, (0, 3)).sum())
        if launches and not kernels:
            self._integrity.note(
                f"{launches} kernel launches are recorded but not one kernel: the kernel table ({KERNEL}) is missing "
                "or empty, so busy and idle time of the GPU cannot be judged. Export or record again with --trace=cuda."
            )

    def _share_out(
        self,
        activities: Activities,
        owner: IntArray,
        waits: gpu.Decoded[Waits] | None,
        memory: gpu.Decoded[MemoryEvents] | None,
        rows: HostRows,
    ) -> tuple[Trace, ...]:
        processes = np.unique(owner).tolist()
        if not processes:
            processes = [rows.busiest_process()]
            self._integrity.note("The recording holds no GPU activity.")
        workers = describe_workers(self._raw, self._decoder, rows, processes)
        single = len(processes) == 1
        result = []
        for process in processes:
            integrity = copy_integrity(self._integrity)
            share = ProcessShare(process, rows)
            mine = activities if single else activities.take(owner == process)
            used = np.unique(mine.device).tolist() if len(mine) else []
            devices = describe_devices(self._raw, process_id(process), used)
            metadata = describe_recording(self._raw, devices) | workers
            result.append(
                Trace.build(
                    names=self._decoder.names.values,
                    origin_ns=self._origin_ns,
                    threads=share.threads(self._raw, self._decoder.strings),
                    devices=devices,
                    activities=mine,
                    calls=share.calls(),
                    slices=share.slices(),
                    overheads=share.overheads(),
                    waits=of_process(waits, process, processes, Waits.build()),
                    memory=of_process(memory, process, processes, MemoryEvents.build()),
                    schedules=share.schedules(),
                    metadata=metadata,
                    integrity=integrity,
                )
            )
        return tuple(result)
