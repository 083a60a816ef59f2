"""The data loader as the training loop sees it: every call of its ``next``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.arithmetic import windows_of
from traceanalyzer.measures.steps import Steps
from traceanalyzer.model.schema import ByteArray, CodeArray, IntArray, SliceKind, distinct_codes
from traceanalyzer.model.trace import Trace

# PyTorch's own range, the ranges people put around the loader, and the loader's Python frame
_NEXT = re.compile(
    r"^enumerate\(DataLoader\)#.*__next__|^(phase:)?(data|dataload(er|ing)?|data_loading|load_data|next_batch)$"
    r"|(^|[/\\])dataloader\.py\(\d+\): __next__$",
    re.IGNORECASE,
)
_SINGLE_PROCESS = re.compile(r"_SingleProcessDataLoaderIter|_utils[/\\]fetch\.py\(\d+\): fetch")
_WORKER_PROCESSES = re.compile(
    r"_MultiProcessingDataLoaderIter|(^|[/\\])dataloader\.py\(\d+\): (_try_get_data|_get_data|_process_data)$"
)
_VALIDATION = re.compile(r"^(phase:)?(validate|validation|val)$|[/\\]validator\.py\(\d+\): __call__$", re.IGNORECASE)
_WORKER_THREAD = re.compile(r"pt_data_worker|DataLoader worker|dataloader_worker", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class InputSupply:
    """One row per call of a loader's ``next`` (outermost), in time order.

    Attributes:
        start_ns: Start.
        end_ns: End.
        window: Step window it began in; -1 none.
        thread: Thread index.
        slice_row: Row of ``Trace.slices``.
        in_main_process: 1 single-process iterator, 0 worker processes, -1 not known from the name.
        in_validation: 1 inside a validate range.
        worker_processes: Loader worker processes seen in the recording, or None when it cannot show them.
    """

    start_ns: IntArray
    end_ns: IntArray
    window: CodeArray
    thread: CodeArray
    slice_row: IntArray
    in_main_process: ByteArray
    in_validation: ByteArray
    worker_processes: int | None


def measure_input_supply(trace: Trace, steps: Steps) -> InputSupply:
    """Find every call of a loader's ``next``."""
    slices = trace.slices
    candidates = np.flatnonzero(slices.kind != SliceKind.OS_CALL)
    codes = [c for c in distinct_codes(slices.name[candidates]).tolist() if c >= 0]

    def rows_named(pattern: re.Pattern[str]) -> IntArray:
        chosen = [c for c in codes if pattern.search(trace.names[c])]
        return candidates[np.isin(slices.name[candidates], chosen)]

    rows = _outermost(trace, rows_named(_NEXT))
    main_process = np.full(len(rows), -1, dtype=np.int8)
    main_process[_holds(trace, rows, rows_named(_WORKER_PROCESSES))] = 0
    main_process[_holds(trace, rows, rows_named(_SINGLE_PROCESS))] = 1
    validation = _outermost(trace, rows_named(_VALIDATION))
    return InputSupply(
        start_ns=slices.start_ns[rows],
        end_ns=slices.end_ns[rows],
        window=windows_of(slices.start_ns[rows], steps),
        thread=slices.thread[rows],
        slice_row=rows,
        in_main_process=main_process,
        in_validation=_inside(trace, rows, validation).astype(np.int8),
        worker_processes=_worker_processes(trace),
    )


def _outermost(trace: Trace, rows: IntArray) -> IntArray:
    """Keep the rows that no other of them encloses on the same thread."""
    slices = trace.slices
    keep: list[int] = []
    reach: dict[int, int] = {}
    for row in rows.tolist():
        thread, end = int(slices.thread[row]), int(slices.end_ns[row])
        if slices.start_ns[row] >= reach.get(thread, -(1 << 62)):
            keep.append(row)
        reach[thread] = max(reach.get(thread, end), end)
    return np.array(keep, dtype=np.int64)


def _holds(trace: Trace, outer: IntArray, inner: IntArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """For each outer row, whether one of the inner rows lies in it on the same thread (or is itself)."""
    slices = trace.slices
    result = np.zeros(len(outer), dtype=np.bool_)
    for thread in np.unique(slices.thread[outer]).tolist():
        mine = np.flatnonzero(slices.thread[outer] == thread)
        starts = np.sort(slices.start_ns[inner[slices.thread[inner] == thread]])
        low = np.searchsorted(starts, slices.start_ns[outer[mine]], side="left")
        high = np.searchsorted(starts, slices.end_ns[outer[mine]], side="left")
        result[mine] = high > low
    return result


def _inside(trace: Trace, rows: IntArray, outer: IntArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """For each row, whether one of the disjoint outer rows is open on its thread when it begins."""
    slices = trace.slices
    result = np.zeros(len(rows), dtype=np.bool_)
    for thread in np.unique(slices.thread[outer]).tolist():
        mine = np.flatnonzero(slices.thread[rows] == thread)
        enclosing = outer[slices.thread[outer] == thread]
        last = np.searchsorted(slices.start_ns[enclosing], slices.start_ns[rows[mine]], side="right") - 1
        safe = enclosing[np.maximum(last, 0)]
        result[mine] = (last >= 0) & (slices.start_ns[rows[mine]] < slices.end_ns[safe])
    return result


def _worker_processes(trace: Trace) -> int | None:
    """Count the loader's worker processes by the thread names an Nsight recording of the process tree holds."""
    workers = {thread.pid for thread in trace.threads if _WORKER_THREAD.search(thread.name)}
    # an Nsight reader that saw the list of processes states their number, even when it is 0
    stated = trace.metadata.get("loader_workers")
    return len(workers) or (int(stated) if stated is not None else None)
