"""The Analysis document: everything known about a recording, as one JSON value.

Every key is always present; a value that could not be measured is null. Times are integer nanoseconds relative
to the rank's ``origin_ns``, which is a string because epoch nanoseconds exceed what JavaScript numbers hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from traceanalyzer.errors import UsageError
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.job import JobReport
from traceanalyzer.results.memory import MemoryReport
from traceanalyzer.results.timeline import Timeline
from traceanalyzer.results.vocabulary import StepClass, StepSource

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "traceanalyzer.analysis/1"
_RECORDING = "_tables"
_display: Callable[[Analysis], str] | None = None


class RecordingFrames(Protocol):
    """Tables that only the recording itself can give."""

    def gaps(self) -> pd.DataFrame:
        """One row per idle piece."""

    def kernels(self) -> pd.DataFrame:
        """One row per kernel."""

    def copies(self) -> pd.DataFrame:
        """One row per copy."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """The program that made the document."""

    version: str
    name: str = "traceanalyzer"


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One input recording.

    Attributes:
        path: As the user named it.
        format: Reader name.
        bytes: Size on disk.
        fingerprint: Size plus hash of head, tail and sampled blocks.
        producer: Tool and version that wrote it, or null.
    """

    path: str
    format: str
    bytes: int
    fingerprint: str
    producer: str | None = None


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the recorded run that a comparison must hold equal; null where unknown."""

    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    model: str | None = None
    batch: int | None = None
    imgsz: int | None = None
    workers: int | None = None
    amp: bool | None = None
    pin_memory: bool | None = None


class RecordedWith(msgspec.Struct, frozen=True, kw_only=True):
    """Options that change what a recording holds and costs."""

    stacks: bool = False
    memory: bool = False
    shapes: bool = False


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the joint plan: the fixes applied so far, the step they give, and what limits it then.

    The first entry has no fixes: the step as it is, without the profiler where that was measured. All are replayed
    together, never added.

    Attributes:
        fixes: Codes of the findings fixed, in order.
        step_ns: Mean step then, ns.
        limit: What keeps it from being shorter: ``gpu_busy``, ``input_supply`` or ``host``.
    """

    fixes: list[str]
    step_ns: int
    limit: str


class DroppedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records left out for one reason."""

    reason: str
    count: int
    example: str


class IntegrityReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the recording can be trusted.

    Attributes:
        verdict: ``complete``, ``partial`` or ``unusable``.
        dropped: Records left out, by reason.
        notes: Sentences for the reader.
        gpu_activities: Number of GPU activities kept.
        activities_without_launch: GPU activities whose launch is not in the recording (or ambiguous).
        launches_without_activity: Launches whose activity is not in the recording.
    """

    verdict: str
    dropped: list[DroppedRecords]
    notes: list[str]
    gpu_activities: int
    activities_without_launch: int
    launches_without_activity: int


class StepsReport(msgspec.Struct, frozen=True, kw_only=True, rename={"step_class": "class"}):
    """Step windows, in time order.

    Attributes:
        source: Where the borders come from.
        count: Number of windows.
        duration_ns: Length of each window (marker start to next marker start; the last to its own end).
        step_class: Class of each window.
        name: Marker name of each window.
    """

    source: StepSource
    count: int
    duration_ns: list[int]
    step_class: list[StepClass]
    name: list[str] = []


class PerStep(msgspec.Struct, frozen=True, kw_only=True):
    """Series with one value per step window, for comparison and plots (device ``device_id``).

    Attributes:
        start_ns: Window start.
        window_ns: Window length.
        idle_ns: Idle inside the window, boundary included.
        boundary_idle_ns: Idle inside the window but outside its marker.
        kernel_ns: Kernel durations summed, of kernels launched in the window.
        exposed_h2d_ns: H2D copy time not under a kernel, of copies launched in the window.
        idle_by_cause_ns: Cause → series.
        busy_by_kind_ns: ``compute``, ``communication``, ``exposed_copy`` … → series; they sum to busy.
        max_gap_ns: Longest idle piece of the window.
        log_host_factor_ref_ns: Mean launch-call time of the window, ns (a comparison turns it into the host factor).
        kernel_family_ns: Kernel family → series.
        counters: Count name (``launches``, ``h2d`` …) → series.
        device_id: The device.
    """

    start_ns: list[int]
    window_ns: list[int]
    idle_ns: list[int]
    boundary_idle_ns: list[int]
    kernel_ns: list[int]
    exposed_h2d_ns: list[int]
    idle_by_cause_ns: dict[str, list[int]]
    busy_by_kind_ns: dict[str, list[int]]
    max_gap_ns: list[int]
    log_host_factor_ref_ns: list[float]
    kernel_family_ns: dict[str, list[int]]
    counters: dict[str, list[int]]
    device_id: int | None = None


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """The step's launch sequence, aligned by name to the most frequent one.

    Attributes:
        name: Activity name at each position of the modal step.
        interval_ns: Per position, per steady step: host time from the previous launch's end to this launch's end;
            null where the step lacks the position.
        launch_call_ns: Per position, per steady step: length of the launch call; null where absent.
    """

    name: list[str]
    interval_ns: list[list[int | None]]
    launch_call_ns: list[list[int | None]]


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """Device gaps: maximal idle intervals of the device; percentiles null when there are none."""

    count: int
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None


class CausePhase(msgspec.Struct, frozen=True, kw_only=True):
    """Idle of one cause in one phase, over the device's span."""

    cause: str
    phase: str
    ns: int


class WindowCausePhase(msgspec.Struct, frozen=True, kw_only=True, rename={"step_class": "class"}):
    """Idle of one cause in one phase, over step windows of one class."""

    cause: str
    phase: str
    step_class: str
    ns: int


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One device over its span; see DEFINITIONS for each quantity. ``busy_ns + idle_ns == span_ns``."""

    device_id: int
    name: str | None
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copy_ns: int
    exposed_copy_ns: int
    gaps: Gaps
    idle_by_cause_ns: dict[str, int]
    idle_by_cause_and_phase_ns: list[CausePhase]
    windows_idle_by_cause_and_phase_ns: list[WindowCausePhase]


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """p50, p90 and p99 in ns; null when there is nothing to rank."""

    p50: int | None = None
    p90: int | None = None
    p99: int | None = None


class LaunchesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Launch calls and how the device followed them."""

    count: int
    overhead_ns: Percentiles
    delay_ns: Percentiles
    started_during_call: int
    clock_skew: int
    host_bound_share_of_activities: float | None
    host_bound_share_of_idle: float | None


class CopyMemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction and one host memory kind."""

    count: int
    bytes: int | None
    time_ns: int
    overlapped_ns: int
    host_blocked_ns: int


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction. ``time_ns == overlapped_ns + not_under_kernel_ns``."""

    count: int
    bytes: int | None
    time_ns: int
    overlapped_ns: int
    not_under_kernel_ns: int
    host_blocked_ns: int
    by_host_memory: dict[str, CopyMemoryReport]


class CopiesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Copies by direction."""

    h2d: CopyReport
    d2h: CopyReport
    d2d: CopyReport
    p2p: CopyReport


class CallTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Number of calls and their summed time."""

    count: int = 0
    time_ns: int = 0


class AllocatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """Driver allocations and the framework allocator's state."""

    device_malloc: CallTotal
    device_free: CallTotal
    host_alloc: CallTotal
    allocations: int | None = None
    frees: int | None = None
    ooms: int | None = None
    retries: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_allocated_by_phase_bytes: dict[str, int] = {}
    fragmentation: float | None = None


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Launches and summed time of one kernel name."""

    name: str
    count: int
    time_ns: int
    family: str | None = None


class KernelFamilyTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Launches and summed time of one kernel family in one precision; ``unknown`` where names do not tell."""

    family: str
    precision: str
    count: int
    time_ns: int


class KernelsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel sums (not busy time: concurrent kernels add up).

    ``families`` sum to ``time_sum_ns``; beyond a few dozen the rest is one ``other`` per precision.
    """

    count: int
    time_sum_ns: int
    top: list[KernelTotal]
    families: list[KernelFamilyTotal] = []


class ObserverReport(msgspec.Struct, frozen=True, kw_only=True):
    """How much the profiler slowed the step; null where the recorder measured no unprofiled steps."""

    profiled_step_ns: int | None = None
    unprofiled_step_ns: int | None = None
    inflation: float | None = None
    inflation_by_phase: dict[str, float] = {}


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and sums per bin; ``edges`` has one value more than ``count``."""

    edges: list[int]
    count: list[int]
    ns: list[int]


class DepthDelay(msgspec.Struct, frozen=True, kw_only=True):
    """Launch delay by how many activities were queued at the launch."""

    depth: list[int]
    count: list[int]
    p50_ns: list[int]
    p90_ns: list[int]


class CopyPoints(msgspec.Struct, frozen=True, kw_only=True):
    """Copies as points: size, duration and host memory kind, by direction; sampled when there are many."""

    direction: list[str]
    host_memory: list[str]
    size_bytes: list[int]
    duration_ns: list[int]
    sampled_from: int = 0


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Allocator totals over time, down-sampled so that peaks survive."""

    time_ns: list[int]
    allocated_bytes: list[int]
    reserved_bytes: list[int]


class RunAhead(msgspec.Struct, frozen=True, kw_only=True):
    """How far the host is ahead of the device, over time (launch end to activity start), down-sampled."""

    time_ns: list[int]
    ahead_ns: list[int]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers behind the report's figures; a member is null where there is nothing to draw."""

    gap_histogram_by_cause: dict[str, Histogram] = {}
    launch_delay_by_queue_depth: DepthDelay | None = None
    copy_size_bandwidth: CopyPoints | None = None
    memory: MemoryCurve | None = None
    run_ahead: RunAhead | None = None


class RangeReport(msgspec.Struct, frozen=True, kw_only=True):
    """All instances of one user range (NVTX range, ``record_function``) of one domain.

    Attributes:
        name: Range name.
        domain: NVTX domain, empty for the default one.
        count: Instances.
        time_ns: Their lengths on the host, summed.
        activities: GPU activities launched inside them on their own thread.
        projected_ns: Their GPU projections (first start to last end of those activities), summed.
        projected_idle_ns: Idle of the busiest device inside the projections, summed.
    """

    name: str
    domain: str
    count: int
    time_ns: int
    activities: int
    projected_ns: int
    projected_idle_ns: int


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """One process and its devices.

    ``ranges`` holds the user ranges with most host time, at most 100 names; ``memory`` what a memory snapshot says.
    """

    rank: int
    world_size: int
    origin_ns: str
    integrity: IntegrityReport
    steps: StepsReport
    per_step: PerStep
    positions: Positions
    devices: list[DeviceReport]
    launches: LaunchesReport
    copies: CopiesReport
    allocator: AllocatorReport
    kernels: KernelsReport
    observer: ObserverReport
    series: Series
    timeline: Timeline
    ranges: list[RangeReport] = []
    memory: MemoryReport | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The whole document. Renderers and comparison read only this.

    The frames are pandas tables with one row per thing; times in them are integer ns relative to the rank's origin.
    """

    schema: str = SCHEMA
    tool: Tool
    inputs: list[Input]
    configuration: Configuration
    recorded_with: RecordedWith
    plan: list[PlanStep]
    ranks: list[RankReport]
    findings: list[Finding]
    job: JobReport | None = None

    def to_json(self) -> bytes:
        """Encode as UTF-8 JSON, one key order, no clock inside: equal input gives equal bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Analysis:
        """Decode and validate a document.

        Raises:
            msgspec.ValidationError: The text is not an Analysis of this schema.
        """
        return msgspec.json.decode(text, type=cls)

    def with_recording(self, source: RecordingFrames) -> Analysis:
        """Return this document with the tables of its recording at hand; they are not part of the JSON."""
        document = msgspec.structs.replace(self)
        document.__dict__[_RECORDING] = source
        return document

    def steps(self) -> pd.DataFrame:
        """One row per step window: ``rank``, ``step``, ``name``, ``class`` and every per-step series as a column."""
        from traceanalyzer.results.frames import steps_frame

        return steps_frame(self)

    def idle(self) -> pd.DataFrame:
        """Idle time of each device over its span: ``rank``, ``device_id``, ``cause``, ``phase``, ``ns``."""
        from traceanalyzer.results.frames import idle_frame

        return idle_frame(self)

    def gaps(self) -> pd.DataFrame:
        """One row per idle piece, with its cause, phase, step and place in the code; needs the recording.

        Raises:
            UsageError: The document was loaded from JSON, which holds no single gaps.
        """
        return self._recording("gaps").gaps()

    def kernels(self) -> pd.DataFrame:
        """One row per kernel, with its name, family, device, duration and step; needs the recording.

        Raises:
            UsageError: The document was loaded from JSON, which holds no single kernels.
        """
        return self._recording("kernels").kernels()

    def copies(self) -> pd.DataFrame:
        """One row per copy, with its direction, host memory, size, time and overlap; needs the recording.

        Raises:
            UsageError: The document was loaded from JSON, which holds no single copies.
        """
        return self._recording("copies").copies()

    def _recording(self, table: str) -> RecordingFrames:
        source = self.__dict__.get(_RECORDING)
        if source is None:
            raise UsageError(
                f"{table}() needs the recording, and this analysis was loaded from JSON; analyze() it again"
            )
        return cast("RecordingFrames", source)

    def _repr_html_(self) -> str | None:
        """What Jupyter shows; None (so that it shows the plain representation) unless a renderer registered itself."""
        return _display(self) if _display is not None else None


def show_in_notebooks(render: Callable[[Analysis], str]) -> None:
    """Let a renderer say what Jupyter shows; documents know no renderer themselves."""
    global _display
    _display = render
