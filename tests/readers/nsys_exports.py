"""Small Nsight Systems exports written by hand: what ran when, in nanoseconds, in the schema of a chosen year."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from traceanalyzer.model.trace import Recording, Trace

PID = 475
GLOBAL_PID = (1 << 48) | (PID << 24)
MAIN = GLOBAL_PID | PID
AUTOGRAD = GLOBAL_PID | 682

ENUM_TABLES: dict[str, dict[int, str]] = {
    "ENUM_CUDA_MEM_KIND": {
        0: "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE",
        1: "CUDA_MEMOPR_MEMORY_KIND_PINNED",
        2: "CUDA_MEMOPR_MEMORY_KIND_DEVICE",
        4: "CUDA_MEMOPR_MEMORY_KIND_MANAGED",
    },
    "ENUM_CUDA_MEMCPY_OPER": {
        1: "CUDA_MEMCPY_KIND_HTOD",
        2: "CUDA_MEMCPY_KIND_DTOH",
        8: "CUDA_MEMCPY_KIND_DTOD",
        10: "CUDA_MEMCPY_KIND_PTOP",
        11: "CUDA_MEMCPY_KIND_UVM_HTOD",
    },
    "ENUM_CUPTI_SYNC_TYPE": {
        1: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE",
        2: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT",
        3: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE",
        4: "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE",
    },
}

_TEXT = {"name", "value", "text", "label"}


@dataclass
class Export:
    """Tables of one export as lists of rows; a column a row leaves out is NULL.

    Attributes:
        tables: Rows by table name; tests add, rename and damage them freely.
        strings: ``StringIds`` under construction.
    """

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    _correlation: int = 1000

    def add(self, table: str, **row: Any) -> None:
        """Append a row."""
        self.tables.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        """Return the id of a string, registering it."""
        return self.strings.setdefault(text, 10 + len(self.strings))

    def call(self, name: str, start: int, end: int, *, thread: int = MAIN, correlation: int | None = None) -> int:
        """Add an API call; returns its correlation id."""
        self._correlation += 1
        used = self._correlation if correlation is None else correlation
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            globalTid=thread,
            correlationId=used,
            nameId=self.string(name),
        )
        return used

    def gpu(self, table: str, start: int, end: int, correlation: int, **columns: Any) -> None:
        """Add a row to a GPU table."""
        row = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": GLOBAL_PID, **columns}
        self.add(table, start=start, end=end, correlationId=correlation, **row)

    def kernel(self, name: str, start: int, end: int, *, call: tuple[int, int] | None = None, **columns: Any) -> None:
        """Add a kernel and, when given, its launch call."""
        thread = columns.pop("thread", MAIN)
        correlation = self.call("cudaLaunchKernel_v7000", *call, thread=thread) if call else 0
        names = {"demangledName": self.string(name), "shortName": self.string(name.split("(")[0])}
        self.gpu("CUPTI_ACTIVITY_KIND_KERNEL", start, end, correlation, **{**names, **columns})

    def copy(
        self, start: int, end: int, size: int, kind: int, *, source: int = 2, target: int = 2, **columns: Any
    ) -> None:
        """Add a copy (``kind`` as in ENUM_CUDA_MEMCPY_OPER, ``source`` and ``target`` as in ENUM_CUDA_MEM_KIND)."""
        correlation = self.call("cudaMemcpyAsync_v3020", start - 50, start - 10)
        values = {"bytes": size, "copyKind": kind, "srcKind": source, "dstKind": target, **columns}
        self.gpu("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, correlation, **values)

    def nvtx(
        self, text: str | None, start: int, end: int | None, *, kind: int = 59, thread: int = MAIN, **columns: Any
    ) -> None:
        """Add an NVTX row."""
        row = {"textId": None, "domainId": 0, **columns}
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=thread, **row)

    def enums(self) -> None:
        """Add the ENUM tables newer exports carry."""
        for table, values in ENUM_TABLES.items():
            for number, name in values.items():
                self.add(table, id=number, name=name, label=name.rsplit("_", 1)[-1].title())

    def _finished(self) -> dict[str, list[dict[str, Any]]]:
        strings = [{"id": number, "value": text} for text, number in self.strings.items()]
        return {**({"StringIds": strings} if strings else {}), **self.tables}

    def sqlite(self, path: Path) -> Path:
        """Write the export as a database."""
        connection = sqlite3.connect(path)
        for table, rows in self._finished().items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            declared = ", ".join(f'"{name}" {"TEXT" if name in _TEXT else "INTEGER"}' for name in columns)
            connection.execute(f'CREATE TABLE "{table}" ({declared})')
            marks = ", ".join("?" * len(columns))
            values = [[row.get(name) for name in columns] for row in rows]
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
        connection.commit()
        connection.close()
        return path

    def folder(self, path: Path, kind: str) -> Path:
        """Write the export as a folder of ``parquet`` or ``arrow`` files."""
        path.mkdir()
        for table, rows in self._finished().items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            types = {name: pa.large_string() if name in _TEXT else pa.int64() for name in columns}
            data = pa.table({name: pa.array([row.get(name) for row in rows], types[name]) for name in columns})
            if kind == "parquet":
                pyarrow.parquet.write_table(data, path / f"{table}.parquet")
            else:
                with pa.ipc.new_stream(path / f"{table}.arrow", data.schema) as writer:
                    writer.write_table(data)
        return path


def small_export() -> Export:
    """A sound recording of one step: a copy, two kernels (one launched by the autograd thread) and nested ranges."""
    export = Export()
    export.enums()
    export.nvtx("step", 1000, 9000, kind=60)
    export.nvtx("forward", 1500, 4000)
    export.copy(2000, 2500, 4096, 1, source=1)
    export.kernel("gemm<float>(int)", 3000, 3600, call=(2600, 2700))
    export.kernel("relu(float*)", 6000, 6100, call=(5000, 5050), thread=AUTOGRAD)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_796_072_613_000_000_000)
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.3.2.0")
    export.add("ANALYSIS_DETAILS", duration=20_000, startTime=0, stopTime=20_000)
    return export


def as_values(recording: Recording) -> list[dict[str, object]]:
    """Everything of a recording that must not depend on the file format, names instead of codes."""
    result = []
    for trace in recording.traces:
        values: dict[str, object] = {"threads": trace.threads, "devices": trace.devices, "origin": trace.origin_ns}
        for table in ("activities", "calls", "slices", "waits", "memory", "overheads", "schedules"):
            for column, data in getattr(trace, table).columns().items():
                values[f"{table}.{column}"] = texts(trace, data) if column in ("name", "domain") else data.tolist()
        result.append(values)
    return result


def texts(trace: Trace, codes: npt.NDArray[Any]) -> list[str]:
    """Names of a column of codes; empty for -1."""
    return [trace.names[code] if code >= 0 else "" for code in codes.tolist()]
