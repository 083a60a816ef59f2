"""Samples that ``nvidia-smi`` wrote beside a recording: ``--query-gpu=… --format=csv -l 1`` and ``dmon``.

Such a file is no recording. ``read_metrics`` reads it, ``attach_metrics`` puts its samples on a trace's clock as
counters and compares what they say about utilisation with the timeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import ByteArray, CodeArray, Counters, IntArray
from traceanalyzer.model.trace import Recording, Trace
from traceanalyzer.readers.base import Progress

NAME = "gpu-metrics-csv"

_QUERY_HINT = "record with `nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used --format=csv -l 1`"
_DMON_HINT = "record with `nvidia-smi dmon -o DT`"
_NUMBER = re.compile(r"^([-+]?\d+(?:\.\d+)?)\s*(\S*)$")
_ABSENT = re.compile(r"^(-|n/?a|\[.*\]|err!?|unknown error|)$", re.IGNORECASE)
_STATES = {"active": 1.0, "not active": 0.0, "enabled": 1.0, "disabled": 0.0}
_QUARTER_NS = 15 * 60 * 1_000_000_000
_DAY_NS = 96 * _QUARTER_NS
_LAST_MOMENT_NS = 1 << 62  # the year 2116; leaves room for differences in 64 bits

# dmon's short headings, spelled as the query interface spells the same quantity
_DMON_NAMES = {
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "temp": "temperature.gpu",
    "mclk": "clocks.mem",
    "pclk": "clocks.sm",
    "fb": "memory.used",
}


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples of one file.

    Attributes:
        path: The file as the user named it.
        series: Series names such as ``gpu0 utilization.gpu [%]``.
        device: Device index of each series.
        time_ns: When each sample was taken, as the clock on the wall showed it, counted from 1970-01-01 00:00 (the
            files do not say which time zone).
        code: Series of each sample, index into ``series``.
        value: Value in the unit its series names.
        has_date: False where the file holds times of day only.
        skipped: Lines that could not be understood.
    """

    path: str
    series: tuple[str, ...]
    device: tuple[int, ...]
    time_ns: IntArray
    code: CodeArray
    value: npt.NDArray[np.float64]
    has_date: bool
    skipped: int


def sniff(path: Path, head: bytes) -> bool:
    """Say whether the content looks like nvidia-smi samples."""
    first = _decode(head[:4096]).lstrip().split("\n", 1)[0].strip().lower()
    if first.startswith("#"):
        return bool(re.match(r"#\s*(date|time|gpu)\b", first))
    cells = [cell.strip() for cell in first.split(",")]
    return "timestamp" in cells and len(cells) > 1


def read(path: Path, progress: Progress | None = None) -> Recording:
    """Refuse to analyse samples alone.

    Raises:
        TraceFormatError: Always.
    """
    raise TraceFormatError(str(path), "GPU samples hold no timeline", "give the file beside a recording")


def read_metrics(path: Path) -> GpuMetrics:
    """Read an nvidia-smi file.

    Raises:
        TraceFormatError: It has no heading, no times or no sample.
    """
    text = _decode(path.read_bytes())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise TraceFormatError(str(path), "the file is empty", _QUERY_HINT)
    samples = _Samples()
    rows = _dmon_rows(str(path), lines) if lines[0].startswith("#") else _query_rows(str(path), lines)
    for row in rows:
        samples.add(row)
    if not samples.time_ns:
        raise TraceFormatError(str(path), "there is no sample in the file", _QUERY_HINT)
    return samples.finish(str(path))


def attach_metrics(trace: Trace, metrics: GpuMetrics) -> Trace:
    """Put samples onto a trace's clock as counters, and compare utilisation with the timeline.

    nvidia-smi writes local time without its zone: the zone is the one in which samples and recording overlap (UTC
    when it does, then this machine's, then the nearest). What was assumed, and what the comparison gave, is noted.

    Returns:
        The trace with the samples added to its counters; unchanged but for a note where nothing overlaps.
    """
    notes = trace.integrity
    span = _span(trace)
    if span is None or trace.origin_ns == 0:
        notes.note(f"{metrics.path}: the recording does not say when it was made, so the GPU samples are left out.")
        return trace
    offset = _zone_offset(metrics, trace.origin_ns + span[0], trace.origin_ns + span[1])
    if offset is None:
        notes.note(f"{metrics.path}: none of the GPU samples was taken during the recording; they are left out.")
        return trace
    if offset % _DAY_NS and metrics.has_date:
        notes.note(f"{metrics.path}: its times fit the recording {offset / 3.6e12:+g} h from UTC.")
    if metrics.skipped:
        notes.drop("GPU sample lines not understood", metrics.path, metrics.skipped)
    names = list(trace.names)
    codes = np.arange(len(metrics.series), dtype=np.int32) + len(names)
    names.extend(metrics.series)
    time_ns = metrics.time_ns - offset - trace.origin_ns
    added = Counters.build(time_ns=time_ns, series=codes[metrics.code], value=metrics.value)
    for device in sorted(set(trace.activities.device.tolist())):
        _compare_utilisation(trace, metrics, time_ns, device)
    return trace.with_counters(names, Counters.concat([trace.counters, added]))


@dataclass(frozen=True, slots=True)
class _Row:
    time_ns: int | None
    has_date: bool
    device: int
    values: tuple[tuple[str, float], ...]


class _Samples:
    """Collects rows; a clock that runs past midnight without a date moves to the next day."""

    def __init__(self) -> None:
        self.time_ns: list[int] = []
        self._code: list[int] = []
        self._value: list[float] = []
        self._series: dict[str, tuple[int, int]] = {}
        self._has_date = True
        self._skipped = 0
        self._day_ns = 0
        self._last_ns = 0

    def add(self, row: _Row) -> None:
        """Add a row, or count it where its time could not be read."""
        if row.time_ns is None or not 0 <= row.time_ns < _LAST_MOMENT_NS:
            self._skipped += 1
            return
        time_ns = row.time_ns
        if not row.has_date:
            self._has_date = False
            if time_ns + self._day_ns < self._last_ns - _DAY_NS // 2:
                self._day_ns += _DAY_NS
            time_ns += self._day_ns
        self._last_ns = time_ns
        for name, value in row.values:
            code, _ = self._series.setdefault(f"gpu{row.device} {name}", (len(self._series), row.device))
            self.time_ns.append(time_ns)
            self._code.append(code)
            self._value.append(value)

    def finish(self, path: str) -> GpuMetrics:
        """Return what was collected."""
        return GpuMetrics(
            path=path,
            series=tuple(self._series),
            device=tuple(device for _, device in self._series.values()),
            time_ns=np.array(self.time_ns, dtype=np.int64),
            code=np.array(self._code, dtype=np.int32),
            value=np.array(self._value, dtype=np.float64),
            has_date=self._has_date,
            skipped=self._skipped,
        )


def _decode(data: bytes) -> str:
    # PowerShell redirects in UTF-16
    return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")


def _query_rows(path: str, lines: list[str]) -> Iterator[_Row]:
    header = [cell.strip() for cell in lines[0].split(",")]
    names = [cell.lower() for cell in header]
    if "timestamp" not in names:
        raise TraceFormatError(path, "the first line names no 'timestamp' column", _QUERY_HINT, where="line 1")
    at, index = names.index("timestamp"), next((names.index(n) for n in ("index", "gpu index") if n in names), None)
    for line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if [cell.lower() for cell in cells] == names:
            continue  # files of two runs put together
        if len(cells) != len(header):
            yield _Row(None, True, 0, ())
            continue
        numbers = (
            (header[i], value)
            for i, cell in enumerate(cells)
            if i not in (at, index) and (value := _number(cell)) is not None
        )
        device = _number(cells[index]) if index is not None else 0
        yield _Row(_timestamp(cells[at]), True, int(device or 0), tuple(numbers))


def _dmon_rows(path: str, lines: list[str]) -> Iterator[_Row]:
    names: list[str] = []
    units: list[str] = []
    for line in lines:
        if line.startswith("#"):
            cells = line.lstrip("# ").split()
            # the heading is repeated now and then, always as two lines: names, then units
            if "gpu" in (cell.lower() for cell in cells):
                names = [cell.lower() for cell in cells]
            else:
                units = cells
            continue
        if "gpu" not in names or not {"time", "date"} & set(names):
            raise TraceFormatError(path, "the samples carry no time", _DMON_HINT)
        cells = line.split()
        if len(cells) != len(names):
            yield _Row(None, True, 0, ())
            continue
        row = dict(zip(names, cells, strict=True))
        when = _timestamp(f"{row.get('date', '')} {row.get('time', '')}")
        values = tuple(
            (f"{_DMON_NAMES.get(name, name)} [{_unit(unit)}]", value)
            for name, cell, unit in zip(names, cells, units + [""] * (len(names) - len(units)), strict=False)
            if name not in ("gpu", "time", "date") and (value := _number(cell)) is not None
        )
        yield _Row(when, "date" in row, int(_number(row["gpu"]) or 0), values)


def _unit(unit: str) -> str:
    return {"MB": "MiB"}.get(unit, unit)


def _number(cell: str) -> float | None:
    """Value of a cell with or without its unit; None where nvidia-smi had none, or for text such as a name."""
    if _ABSENT.match(cell):
        return None
    found = _NUMBER.match(cell)
    return float(found.group(1)) if found else _STATES.get(cell.lower())


def _timestamp(text: str) -> int | None:
    """``2026/11/30 21:03:33.997``, ``20261130 21:03:33`` or ``21:03:33`` to ns; exact to the digit written."""
    found = re.match(
        r"^\s*(?:(\d{4})[-/]?(\d{2})[-/]?(\d{2})[ T]+)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?\s*$", text
    )
    if found is None:
        return None
    year, month, day = (int(part) if part else 0 for part in found.groups()[:3])
    hour, minute, second = (int(part) for part in found.groups()[3:6])
    try:
        moment = datetime(year or 1970, month or 1, day or 1, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return whole * 1_000_000_000 + int((found.group(7) or "0").ljust(9, "0"))


def _span(trace: Trace) -> tuple[int, int] | None:
    tables = [table for table in (trace.activities, trace.calls, trace.slices) if len(table)]
    if not tables:
        return None
    return min(int(table.start_ns.min()) for table in tables), max(int(table.end_ns.max()) for table in tables)


def _zone_offset(metrics: GpuMetrics, start_ns: int, end_ns: int) -> int | None:
    """Wall clock minus UTC, the first plausible one under which most samples fall into the recording."""
    # a recording shorter than the sampling interval must still meet its neighbours
    slack = 2_000_000_000
    local = datetime.fromtimestamp(start_ns // 1_000_000_000, UTC).astimezone().utcoffset() or timedelta(0)
    zones = sorted(range(-48, 57), key=lambda quarters: (quarters % 4 != 0, abs(quarters)))
    offsets = [0, local // timedelta(minutes=15) * _QUARTER_NS, *(quarters * _QUARTER_NS for quarters in zones)]
    if not metrics.has_date:
        day = start_ns // _DAY_NS * _DAY_NS
        offsets = [offset - day + shift for offset in offsets for shift in (0, _DAY_NS, -_DAY_NS)]
    times = np.unique(metrics.time_ns)
    inside = [int(((times - o >= start_ns - slack) & (times - o <= end_ns + slack)).sum()) for o in offsets]
    best = max(inside)
    return offsets[inside.index(best)] if best else None


def _compare_utilisation(trace: Trace, metrics: GpuMetrics, time_ns: IntArray, device: int) -> None:
    """Note how the samples' mean utilisation compares with the timeline's busy share while they were taken."""
    of_device = [
        code
        for code, (name, owner) in enumerate(zip(metrics.series, metrics.device, strict=True))
        if owner == device and "utilization.gpu" in name
    ]
    mine = np.flatnonzero(trace.activities.device == device)
    start, end = trace.activities.start_ns[mine], trace.activities.end_ns[mine]
    first, last = int(start.min()), int(end.max())
    sampled = np.isin(metrics.code, of_device) & (time_ns >= first) & (time_ns <= last)
    if not sampled.any() or last == first:
        return
    kernels: ByteArray = trace.activities.kind[mine]
    busy = _union_ns(start[kernels != 1], end[kernels != 1])
    share, seen = 100.0 * busy / (last - first), float(metrics.value[sampled].mean())
    trace.integrity.note(
        f"{metrics.path}: {int(sampled.sum())} samples say GPU {device} was in use {seen:.0f} % of the time; the "
        f"timeline has kernels running {share:.0f} % (a sample counts any kernel in its period as use)."
    )


def _union_ns(start: IntArray, end: IntArray) -> int:
    if not len(start):
        return 0
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(reached - np.maximum(before, start), 0).sum())
