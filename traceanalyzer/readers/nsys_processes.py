"""Sharing the rows of an Nsight Systems export out among its processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.schema import Calls, IntArray, MemoryEvents, Overheads, Schedules, Slices, Waits
from traceanalyzer.model.trace import Dropped, Integrity, Thread
from traceanalyzer.readers.nsys_activities import Decoded, Decoder
from traceanalyzer.readers.nsys_host import TID_BITS, TID_MASK, process_of
from traceanalyzer.readers.nsys_names import StringTable
from traceanalyzer.readers.nsys_tables import RawTable
from traceanalyzer.units import format_ns

_Threaded = TypeVar("_Threaded", Calls, Slices, Overheads, Schedules)
_Owned = TypeVar("_Owned", Waits, MemoryEvents)

LOADER_WORKER = "pt_data_worker"  # how PyTorch names the processes of its loader
_READING = ("read", "pread", "fread", "open", "fopen", "mmap", "stat", "fstat", "lseek", "close", "fclose")


@dataclass(slots=True)
class HostRows:
    """Host rows of the whole export, each table with the ``globalTid`` of its rows."""

    calls: tuple[Calls, IntArray] | None = None
    ranges: list[tuple[Slices, IntArray]] = field(default_factory=list)
    os_calls: tuple[Slices, IntArray] | None = None
    overheads: list[tuple[Overheads, IntArray]] = field(default_factory=list)
    schedules: tuple[Schedules, IntArray] | None = None

    def is_empty(self) -> bool:
        """Whether no host table holds a row."""
        tables = [self.calls, *self.ranges, self.os_calls, *self.overheads, self.schedules]
        return not any(len(table[0]) for table in tables if table is not None)

    def busiest_process(self) -> int:
        """``globalPid`` with the most calls, else ranges, else OS calls; 0 without any."""
        for table in (self.calls, *self.ranges, self.os_calls, self.schedules):
            if table is not None and len(table[1]):
                processes, count = np.unique(process_of(table[1]), return_counts=True)
                return int(processes[np.argmax(count)])
        return 0


class ProcessShare:
    """The host rows of one process, their thread columns pointing into its own thread list.

    OS calls and scheduling are kept for the threads that make CUDA calls (or, without any, open ranges): those of
    the many idle helper threads of a process would only cost memory.

    Args:
        process: ``globalPid``.
        rows: Host rows of the whole export.
    """

    def __init__(self, process: int, rows: HostRows) -> None:
        self.process = process
        self._rows = rows
        self._calls = self._mine(rows.calls)
        ranges = [part for part in map(self._mine, rows.ranges) if part is not None]
        working = np.unique(np.concatenate([np.zeros(0, np.int64), *(p[1] for p in (self._calls,) if p is not None)]))
        if not len(working):
            working = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[1] for part in ranges)]))
        os_calls = self._mine(rows.os_calls, working if len(working) else None)
        self._slices = [*ranges, *([os_calls] if os_calls is not None else [])]
        self._schedules = self._mine(rows.schedules, working if len(working) else None)
        self._overheads = [part for part in map(self._mine, rows.overheads) if part is not None]
        used = [p[1] for p in (self._calls, *self._slices, self._schedules, *self._overheads) if p is not None]
        self._threads: IntArray = np.unique(np.concatenate([np.zeros(0, np.int64), *map(np.unique, used)]))

    def _mine(
        self, table: tuple[_Threaded, IntArray] | None, working: IntArray | None = None
    ) -> tuple[_Threaded, IntArray] | None:
        if table is None:
            return None
        rows, threads = table
        mask = process_of(threads) == self.process if working is None else np.isin(threads, working)
        return table if bool(mask.all()) else (rows.take(mask), threads[mask])

    def _placed(self, table: tuple[_Threaded, IntArray]) -> _Threaded:
        rows, threads = table
        place = np.searchsorted(self._threads, threads).astype(np.int32)
        return type(rows)(**{**rows.columns(), "thread": place})

    def threads(self, raw: dict[str, RawTable], strings: StringTable) -> tuple[Thread, ...]:
        """The process's threads that appear in its rows, with the names the export gives them."""
        names: dict[int, str] = {}
        table = raw.get("ThreadNames")
        if table is not None:
            pairs = zip(table.integers("globalTid").tolist(), table.integers("nameId").tolist(), strict=True)
            names = {thread: strings.text(name) or "" for thread, name in pairs}
        return tuple(
            Thread(process_id(thread), thread & TID_MASK, names.get(thread, "")) for thread in self._threads.tolist()
        )

    def calls(self) -> Calls:
        """The process's calls."""
        return self._placed(self._calls) if self._calls is not None else Calls.build()

    def slices(self) -> Slices:
        """The process's ranges and OS calls."""
        return Slices.concat(self._placed(part) for part in self._slices)

    def overheads(self) -> Overheads:
        """The profiler's work inside the process."""
        return Overheads.concat(self._placed(part) for part in self._overheads)

    def schedules(self) -> Schedules:
        """Stretches the process's working threads were off their cores."""
        return self._placed(self._schedules) if self._schedules is not None else Schedules.build()


def process_id(global_id: int) -> int:
    """The operating system's process id inside a ``globalPid`` or ``globalTid``."""
    return (global_id >> TID_BITS) & TID_MASK


def of_process(table: Decoded[_Owned] | None, process: int, processes: list[int], empty: _Owned) -> _Owned:
    """Rows of one process; rows that do not name theirs belong to the only one there is."""
    if table is None:
        return empty
    mask: npt.NDArray[np.bool_] = table.process == process
    if len(processes) == 1:
        mask = mask | (table.process < 0)
    return table.rows if bool(mask.all()) else table.rows.take(mask)


def copy_integrity(shared: Integrity) -> Integrity:
    """Return an Integrity of a trace's own, holding what was found while reading the whole export."""
    return Integrity(
        dropped={key: Dropped(d.reason, d.count, d.example) for key, d in shared.dropped.items()},
        notes=list(shared.notes),
        is_truncated=shared.is_truncated,
        cut_ns=list(shared.cut_ns),
        truncated_at_ns=shared.truncated_at_ns,
    )


def describe_workers(
    raw: dict[str, RawTable], decoder: Decoder, rows: HostRows, processes: list[int]
) -> dict[str, str]:
    """Recognise data-loader workers, and what they spent in the operating system where that was recorded.

    Args:
        raw: The export's tables.
        decoder: Its names and notes; what is left out is noted there.
        rows: Host rows of the whole export.
        processes: ``globalPid`` of every process that gets a trace.

    Returns:
        Facts for the traces' metadata: ``loader_workers`` (how many processes) and, with OS calls of theirs,
        ``loader_worker_read_ns`` and ``loader_worker_os_call_ns``.
    """
    workers: set[int] = set()
    table = raw.get("PROCESSES")
    if table is not None:
        codes, texts = table.texts("name")
        pairs = zip(table.integers("globalPid").tolist(), codes.tolist(), strict=True)
        workers = {pid for pid, code in pairs if code >= 0 and texts[code].startswith(LOADER_WORKER)}
    # a process list without workers says that there were none: nsys lists forked children it does not trace, too
    facts: dict[str, str] = {"loader_workers": str(len(workers))} if table is not None else {}
    elsewhere = sum(int((~np.isin(process_of(threads), processes)).sum()) for _, threads in rows.ranges)
    if elsewhere:
        decoder.integrity.note(f"{elsewhere} NVTX ranges belong to processes without GPU activity and are left out.")
    if workers and rows.os_calls is not None:
        calls, threads = rows.os_calls
        mine = calls.take(np.isin(process_of(threads), sorted(workers)))
        if len(mine):
            lengths = mine.end_ns - mine.start_ns
            reading = [code for code, name in enumerate(decoder.names.values) if name.rstrip("64") in _READING]
            read_ns = int(lengths[np.isin(mine.name, reading)].sum())
            facts |= {"loader_worker_read_ns": str(read_ns), "loader_worker_os_call_ns": str(int(lengths.sum()))}
            decoder.integrity.note(
                f"{len(workers)} data-loader workers spent {format_ns(read_ns)} in file calls and "
                f"{format_ns(int(lengths.sum()))} in recorded OS calls altogether."
            )
        else:
            decoder.integrity.note(
                f"{len(workers)} data-loader workers ran, but none of their OS calls was recorded "
                "(nsys traces forked children only with `--trace-fork-before-exec=true`)."
            )
    return facts
