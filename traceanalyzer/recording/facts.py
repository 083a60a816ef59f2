"""What the machine and the packages are, without anything that says whose they are."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from traceanalyzer import __version__
from traceanalyzer.recording.ranges import NSYS_VERSION_VARIABLE


def package_version(name: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Return the versions that matter for a recording."""
    import torch

    return {
        "traceanalyzer": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": str(torch.backends.cudnn.version()) if torch.backends.cudnn.is_available() else None,
        "torchvision": package_version("torchvision"),
        "ultralytics": package_version("ultralytics"),
        "nvtx": package_version("nvtx"),
        "nsys": os.environ.get(NSYS_VERSION_VARIABLE),
    }


def usable_cores() -> int:
    """Return the number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> list[dict[str, Any]]:
    """Return name, memory, multiprocessors and clocks of each visible GPU; empty without one."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "index": index,
                "name": properties.name,
                "memory_bytes": int(properties.total_memory),
                "multiprocessors": int(properties.multi_processor_count),
                "compute_capability": f"{properties.major}.{properties.minor}",
                **_nvml_facts(index),
            }
        )
    return found


def driver_version() -> str | None:
    """Return the NVIDIA driver's version, or None where NVML is not there."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return found.decode() if isinstance(found, bytes) else str(found)


def base_configuration() -> dict[str, Any]:
    """Return the part of a run's configuration that does not depend on the training loop."""
    import torch

    found = gpus()
    return {
        "gpu": found[0]["name"] if found else None,
        "gpu_count": len(found),
        "driver": driver_version() if found else None,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cpu_cores": usable_cores(),
        "device": "cuda" if found else "cpu",
        "tf32": _allows_tf32(torch.backends.cuda.matmul),
        "cudnn_tf32": _allows_tf32(torch.backends.cudnn),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
    }


def ddp_facts() -> dict[str, int]:
    """Return rank and world size of this process (0 and 1 outside distributed training)."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return {"rank": torch.distributed.get_rank(), "world_size": torch.distributed.get_world_size()}
    return {"rank": environment_rank(), "world_size": max(int(os.environ.get("WORLD_SIZE", "1") or 1), 1)}


def environment_rank() -> int:
    """Return the rank a distributed launcher gave this process; 0 without one."""
    return max(int(os.environ.get("RANK", "0") or 0), 0)


def _allows_tf32(backend: Any) -> bool | None:
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:  # set through torch's newer interface, which then refuses to answer through this one
        return None


def _nvml_facts(index: int) -> dict[str, Any]:
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        facts = {
            "max_sm_clock_mhz": int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "max_memory_clock_mhz": int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "sm_clock_mhz": int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        }
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return {}
    return facts
