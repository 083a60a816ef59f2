"""Small sound recordings to damage: a few steps of a training loop as a Kineto document and as an Nsight export."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.readers.nsys_exports import GLOBAL_PID, MAIN, Export

Event = dict[str, Any]

PROCESS = 4242
STEP_US = 1000


def event(category: str, name: str, start: float, length: float, *, tid: int = PROCESS, **args: Any) -> Event:
    """Make a complete event of the host, or of stream ``tid`` of device 0 for the categories of the device."""
    pid = 0 if category in {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"} else PROCESS
    made = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}
    if pid == 0:
        made["args"] = {"device": 0, "context": 1, "stream": tid, **args}
    return made


def launched(
    name: str, call: tuple[float, float], run: tuple[float, float], correlation: int, *, stream: int = 7
) -> list[Event]:
    """Make a kernel and the call that launched it; both as (start, end) in microseconds."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", call[0], call[1] - call[0], correlation=correlation),
        event(
            "kernel", name, run[0], run[1] - run[0], tid=stream,
            correlation=correlation, grid=[8, 1, 1], block=[128, 1, 1],
        ),
    ]  # fmt: skip


def kineto_events(steps: int = 4) -> list[Event]:
    """Make the events of a loop whose every step loads, copies, computes and waits; microseconds from 1 000 000."""
    events: list[Event] = []
    for step in range(steps):
        t = 1_000_000 + STEP_US * step
        number = 10 * step
        events += [
            event("user_annotation", f"ProfilerStep#{step}", t, 950),
            event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 5, 300),
            event("cpu_op", "aten::to", t + 310, 60, **{"Input Dims": [[16, 3]]}),
            event("cuda_runtime", "cudaMemcpyAsync", t + 320, 40, correlation=number + 1),
            event(
                "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", t + 325, 30, tid=7,
                correlation=number + 1, bytes=4096,
            ),
            event("python_function", "train.py(12): step", t + 400, 500, **{"Python id": step + 1}),
            event("cpu_op", "aten::conv2d", t + 405, 60),
            *launched("conv_kernel<float>(float*, int)", (t + 420, t + 430), (t + 440, t + 560), number + 2),
            *launched("ampere_sgemm_128x64", (t + 440, t + 446), (t + 560, t + 700), number + 3),
            event("cuda_runtime", "cudaStreamSynchronize", t + 600, 110, correlation=number + 4),
            event("cuda_sync", "Stream Sync", t + 605, 95, tid=7, correlation=number + 4),
            *launched("elementwise_kernel", (t + 760, t + 766), (t + 775, t + 800), number + 5),
            {
                "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": PROCESS, "tid": PROCESS,
                "ts": t + 410, "s": "t",
                "args": {"Addr": 140_000_000 + step, "Device Type": 1, "Device Id": 0, "Bytes": 1024,
                                   "Total Allocated": 4096 * (step + 1), "Total Reserved": 1 << 21},
            },
        ]  # fmt: skip
    events.append(event("overhead", "Activity Buffer Request", 1_000_900, 20))
    return events


def kineto_document(events: list[Event] | None = None, **members: Any) -> dict[str, Any]:
    """Wrap events (by default a sound loop) as Kineto does; further members replace its own."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000, "computeMajor": 9, "computeMinor": 0,
             "numSms": 132, "maxThreadsPerMultiprocessor": 2048}
        ],
        "cuda_driver_version": 12080,
        "traceEvents": kineto_events() if events is None else events,
        **members,
    }  # fmt: skip


def write_kineto(path: Path, events: list[Event] | None = None, **members: Any) -> Path:
    """Write a Kineto document, compressed where the name ends in ``.gz``."""
    text = json.dumps(kineto_document(events, **members)).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def nsys_export(steps: int = 4) -> Export:
    """Make an Nsight export of the same kind of loop, with what a real one tells about its host besides."""
    export = Export()
    export.enums()
    for step in range(steps):
        t = 1_000_000 * (step + 1)
        export.nvtx("step", t, t + 950_000)
        export.nvtx("forward", t + 300_000, t + 600_000)
        export.copy(t + 325_000, t + 355_000, 4096, 1, source=0)
        export.kernel("conv_kernel<float>(float*, int)", t + 440_000, t + 560_000, call=(t + 420_000, t + 430_000))
        export.kernel("sgemm(float*)", t + 560_000, t + 700_000, call=(t + 440_000, t + 446_000))
        waited = export.call("cudaStreamSynchronize_v3020", t + 600_000, t + 710_000)
        export.gpu("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", t + 605_000, t + 700_000, waited, syncType=3)
        export.add(
            "OSRT_API", start=t + 10_000, end=t + 290_000, globalTid=MAIN, nameId=export.string("poll"), correlationId=0
        )
        export.add(
            "CUDA_GPU_MEMORY_USAGE_EVENTS", start=t + 400_000, globalPid=GLOBAL_PID, deviceId=0, contextId=1,
            address=4096 * (step + 1), bytes=1024, memKind=2, memoryOperationType=0,
        )  # fmt: skip
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_796_072_613_000_000_000)
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.3.2.0")
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H200", smCount=132, totalMemory=150_000_000_000, cuDevice=0)
    export.add("ANALYSIS_DETAILS", duration=20_000_000, startTime=0, stopTime=20_000_000)
    export.add("ThreadNames", nameId=export.string("python"), priority=0, globalTid=MAIN)
    return export
