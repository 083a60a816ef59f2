"""GPU utilisation, memory, clocks and power over time, in the layout of ``nvidia-smi --query-gpu … --format=csv``."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from typing import Any

COLUMNS = (
    "timestamp",
    "index",
    "name",
    "utilization.gpu [%]",
    "utilization.memory [%]",
    "memory.used [MiB]",
    "memory.total [MiB]",
    "temperature.gpu",
    "power.draw [W]",
    "clocks.current.sm [MHz]",
    "clocks.current.memory [MHz]",
)


class GpuSampler:
    """Samples every visible GPU from a thread; the waiting and the NVML calls hold no interpreter lock.

    Args:
        path: CSV file to write.
        period_s: Time between samples.
    """

    def __init__(self, path: Path, period_s: float = 0.5) -> None:
        self.path = path
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None

    def start(self) -> bool:
        """Begin sampling; return False where NVML or a GPU is missing."""
        try:
            import pynvml
        except ImportError:
            return False
        try:
            pynvml.nvmlInit()
            devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return False
        if not devices:
            return False
        self._nvml = pynvml
        self._thread = threading.Thread(target=self._run, args=(devices,), name="gpu-sampler", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop sampling and close the file."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._nvml.nvmlShutdown()

    def _run(self, devices: list[Any]) -> None:
        with self.path.open("w", encoding="utf-8") as file:
            file.write(", ".join(COLUMNS) + "\n")
            while True:
                for index, device in enumerate(devices):
                    file.write(sample_line(self._nvml, index, device, datetime.now()) + "\n")
                file.flush()
                if self._stop.wait(self._period_s):
                    return


def sample_line(nvml: Any, index: int, device: Any, now: datetime) -> str:
    """Return one CSV line about one device; a value the device does not give is ``[N/A]``, as nvidia-smi writes it.

    Args:
        nvml: The pynvml module.
        index: Device index.
        device: NVML handle.
        now: Local time of the sample.
    """

    def ask(read: Any, *arguments: Any) -> Any:
        try:
            return read(device, *arguments)
        except nvml.NVMLError:
            return None

    name = ask(nvml.nvmlDeviceGetName)
    rates = ask(nvml.nvmlDeviceGetUtilizationRates)
    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    power = ask(nvml.nvmlDeviceGetPowerUsage)
    values = (
        now.strftime("%Y/%m/%d %H:%M:%S.") + f"{now.microsecond // 1000:03d}",
        str(index),
        name.decode() if isinstance(name, bytes) else name,
        _with_unit(rates and rates.gpu, "%"),
        _with_unit(rates and rates.memory, "%"),
        _with_unit(memory and memory.used >> 20, "MiB"),
        _with_unit(memory and memory.total >> 20, "MiB"),
        ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        None if power is None else f"{power / 1000:.2f} W",
        _with_unit(ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM), "MHz"),
        _with_unit(ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM), "MHz"),
    )
    return ", ".join("[N/A]" if value is None else str(value) for value in values)


def _with_unit(value: Any, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}"
