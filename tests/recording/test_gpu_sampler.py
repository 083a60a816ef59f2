"""GPU samples look like nvidia-smi's."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from traceanalyzer.recording.gpu_sampler import COLUMNS, sample_line


class NVMLError(Exception):
    """Raised for what the device does not give."""


def unsupported(*_: Any) -> Any:
    raise NVMLError


def fake_nvml(**changes: Any) -> Any:
    clocks = {0: 1980, 2: 3201}
    answers = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 0,
        "NVML_CLOCK_MEM": 2,
        "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87, memory=0),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=3 << 20, total=143771 << 20),
        "nvmlDeviceGetPowerUsage": lambda _: 123456,
        "nvmlDeviceGetTemperature": lambda _, __: 41,
        "nvmlDeviceGetClockInfo": lambda _, clock: clocks[clock],
    }
    return SimpleNamespace(**(answers | changes))


def test_a_sample_is_written_as_nvidia_smi_writes_it() -> None:
    line = sample_line(fake_nvml(), 0, "handle", datetime(2026, 11, 30, 23, 1, 2, 34_000))
    assert line == (
        "2026/11/30 23:01:02.034, 0, NVIDIA H200, 87 %, 0 %, 3 MiB, 143771 MiB, 41, 123.46 W, 1980 MHz, 3201 MHz"
    )
    assert len(line.split(", ")) == len(COLUMNS)


def test_what_the_device_does_not_give_is_not_available() -> None:
    nvml = fake_nvml(nvmlDeviceGetPowerUsage=unsupported, nvmlDeviceGetUtilizationRates=unsupported)
    values = sample_line(nvml, 1, "handle", datetime(2026, 1, 1)).split(", ")
    assert values[3:5] == ["[N/A]", "[N/A]"]
    assert values[8] == "[N/A]"


def test_the_reader_of_nvidia_smi_files_reads_the_samples(tmp_path: Path) -> None:
    from traceanalyzer.readers.gpu_metrics_csv import read_metrics

    lines = [", ".join(COLUMNS)]
    lines += [sample_line(fake_nvml(), 0, "handle", datetime(2026, 11, 30, 23, 1, second)) for second in (2, 3)]
    path = tmp_path / "gpu.csv"
    path.write_text("\n".join(lines) + "\n")
    metrics = read_metrics(path)
    assert metrics.skipped == 0
    [utilisation] = [code for code, name in enumerate(metrics.series) if "utilization.gpu" in name]
    assert metrics.value[metrics.code == utilisation].tolist() == [87.0, 87.0]
