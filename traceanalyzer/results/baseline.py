"""A baseline kept in a repository: what a comparison needs of earlier runs, in a file that can be reviewed."""

from __future__ import annotations

import msgspec

from traceanalyzer.results.analysis import Configuration, RecordedWith

SCHEMA = "traceanalyzer.baseline/1"


class BaselineRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run's steady steps.

    Attributes:
        label: Name of the run.
        configuration: Settings of the recorded run.
        recorded_with: Options of the profiler.
        format: Profiler that recorded it (``kineto`` or ``nsys``).
        ranks: Ranks of the run.
        dropped: Steps left out.
        series_ns: Per-step series by name: start, step, in_step_idle, boundary_idle, kernel_time, exposed_h2d,
            max_gap.
        idle_by_cause_ns: Cause → series.
        kernel_family_ns: Family → series.
        counters: Counter → series.
        position_names: Activity name per position of the modal step.
        launch_call_median_ns: Median launch-call time per position; null where absent.
        log_host_factor: Per step, log of its launch-call time against those medians.
        interval_ns: Per position, host interval of at most fifty evenly chosen steps.
        h2d_time_ns: Σ durations of H2D copies.
        h2d_overlapped_ns: Part under kernels.
        peak_reserved_bytes: Peak reserved memory, or null.
        steps_are_marked: Whether the recording marks its steps; otherwise they were inferred.
        kernel_totals: Family → count and Σ durations over the whole recording, all ranks.
        rank: Rank these steps are of; a run of several ranks has an entry for each.
    """

    label: str
    configuration: Configuration
    recorded_with: RecordedWith
    format: str
    ranks: int
    dropped: int
    series_ns: dict[str, list[int]]
    idle_by_cause_ns: dict[str, list[int]]
    kernel_family_ns: dict[str, list[int]]
    counters: dict[str, list[int]]
    position_names: list[str]
    launch_call_median_ns: list[int | None]
    log_host_factor: list[float]
    interval_ns: list[list[int | None]]
    h2d_time_ns: int
    h2d_overlapped_ns: int
    peak_reserved_bytes: int | None
    steps_are_marked: bool = True
    kernel_totals: dict[str, tuple[int, int]] = {}
    rank: int = 0


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one release, oldest release first in the file."""

    name: str
    runs: list[BaselineRun]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    releases: list[Release]
    schema: str = SCHEMA

    @classmethod
    def from_json(cls, text: bytes | str) -> Baseline:
        """Decode and validate a document.

        Raises:
            msgspec.ValidationError: The text is not a Baseline of this schema.
        """
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> bytes:
        """Encode with one series per line, so that a change shows as a short diff."""
        lines = ["{", f'"schema": "{self.schema}",', '"releases": [']
        for r, release in enumerate(self.releases):
            lines += ["{", f'"name": {_compact(release.name)},', '"runs": [']
            for i, run in enumerate(release.runs):
                lines += _run_lines(run)
                if i < len(release.runs) - 1:
                    lines[-1] += ","
            lines += ["]", "}" + ("," if r < len(self.releases) - 1 else "")]
        lines += ["]", "}", ""]
        return "\n".join(lines).encode()


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _run_lines(run: BaselineRun) -> list[str]:
    lines = ["{"]
    fields = msgspec.structs.fields(run)
    for index, declared in enumerate(fields):
        value = getattr(run, declared.name)
        comma = "," if index < len(fields) - 1 else ""
        if isinstance(value, dict):
            lines.append(f'"{declared.name}": {{')
            inner = [f"{_compact(k)}: {_compact(v)}" for k, v in value.items()]
            lines += [line + "," for line in inner[:-1]] + inner[-1:]
            lines.append("}" + comma)
        elif declared.name == "interval_ns":
            lines.append('"interval_ns": [')
            inner = [_compact(v) for v in value]
            lines += [line + "," for line in inner[:-1]] + inner[-1:]
            lines.append("]" + comma)
        else:
            lines.append(f'"{declared.name}": {_compact(value)}{comma}')
    return [*lines, "}"]
