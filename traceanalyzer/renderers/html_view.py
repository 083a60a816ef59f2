"""What the report shows, as plain values: the bar and the tables; ``html_answer`` has the sentence and findings.

Nothing is measured here; sums over the windows shown are exact integers, so the page can say that parts add up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from traceanalyzer.renderers.html_palette import BUSY, CAUSE_MEANING, GROUP_OF, GROUPS, OTHER_BUSY
from traceanalyzer.renderers.text import cause_title, visible
from traceanalyzer.results.analysis import DeviceReport, ObserverReport, RangeReport, RankReport
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import PHASES, StepClass
from traceanalyzer.units import format_ns, format_share

# below this fraction a part of the bar is narrower than a pixel
SMALL = 0.001


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bar.

    Attributes:
        key: CSS variable that holds its colour.
        label: What the reader sees.
        meaning: One clause of explanation.
        total_ns: Its time over all windows shown, exact.
        mean_ns: Its time per window.
        share: Fraction of the whole.
    """

    key: str
    label: str
    meaning: str
    total_ns: int
    mean_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class PartGroup:
    """Parts that belong together, in fixed order."""

    key: str
    label: str
    parts: tuple[Part, ...]

    @property
    def total_ns(self) -> int:
        """Time of the group over all windows shown."""
        return sum(part.total_ns for part in self.parts)

    @property
    def mean_ns(self) -> float:
        """Time of the group per window."""
        return sum(part.mean_ns for part in self.parts)

    @property
    def share(self) -> float:
        """Fraction of the whole."""
        return sum(part.share for part in self.parts)

    @property
    def listed(self) -> list[Part]:
        """Parts large enough to see, largest first."""
        return sorted((part for part in self.parts if part.share >= SMALL), key=lambda part: -part.total_ns)


@dataclass(frozen=True, slots=True)
class Bar:
    """Where the time of the windows shown goes.

    Attributes:
        of: What is shown, for example ``5 steady steps``.
        per: ``step`` or ``recording``.
        windows: Number of windows.
        total_ns: Their length, exact.
        groups: Busy first, then idle by group of causes; empty ones left out.
    """

    of: str
    per: str
    windows: int
    total_ns: int
    groups: tuple[PartGroup, ...]

    @property
    def mean_ns(self) -> float:
        """Mean length of a window."""
        return self.total_ns / self.windows

    @property
    def busy_share(self) -> float:
        """Fraction of the time in which the device worked."""
        return sum(group.share for group in self.groups if group.key == "busy")

    @property
    def unaccounted_ns(self) -> int:
        """What the parts leave open; 0 unless the document contradicts itself."""
        return self.total_ns - sum(group.total_ns for group in self.groups)

    @property
    def parts(self) -> list[Part]:
        """All parts, left to right."""
        return [part for group in self.groups for part in group.parts]

    @property
    def small(self) -> list[Part]:
        """Parts too small to see, largest first; the legend names them in one line."""
        return sorted((part for part in self.parts if part.share < SMALL), key=lambda part: -part.total_ns)

    @property
    def largest_idle(self) -> Part | None:
        """The largest cause of idle time."""
        idle = [part for group in self.groups if group.key != "busy" for part in group.parts]
        return max(idle, key=lambda part: part.total_ns, default=None)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Idle time by cause (rows) and phase (columns), mean per window; ``shade`` is a fraction of the largest cell."""

    of: str
    phases: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[float, float], ...], float], ...]
    column_sums: tuple[float, ...]
    total: float


def chosen_windows(rank: RankReport, *, episodes: bool = False) -> tuple[list[int], str]:
    """Return the windows that stand for the rank, and what they are: the steady ones, or all where none is.

    Args:
        rank: The rank.
        episodes: Count the episodic windows in, because the answer is about them.
    """
    classes = rank.steps.step_class
    count = len(rank.per_step.window_ns)
    steady = [i for i in range(count) if classes[i] is StepClass.STEADY]
    if not steady:
        return list(range(count)), _counted(count, "step")
    episodic = [i for i in range(count) if classes[i] is StepClass.EPISODIC] if episodes else []
    if episodic:
        return sorted(steady + episodic), f"{_counted(len(steady), 'steady step')} and {len(episodic)} episodic"
    return steady, _counted(len(steady), "steady step")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def is_episodic(finding: Finding | None) -> bool:
    """Whether a finding is about something that does not come every step."""
    return finding is not None and finding.episode.ns is not None


def step_bar(rank: RankReport, *, episodes: bool = False) -> Bar | None:
    """Return where a step's time goes, or the recording's where it has no steps; None without a device."""
    series = rank.per_step
    windows, of = chosen_windows(rank, episodes=episodes)
    if series.device_id is not None and windows:
        total = sum(series.window_ns[i] for i in windows)
        busy = {kind: sum(values[i] for i in windows) for kind, values in series.busy_by_kind_ns.items()}
        idle = {cause: sum(values[i] for i in windows) for cause, values in series.idle_by_cause_ns.items()}
        if rank.steps.source != "none":
            return _bar(of, "step", len(windows), total, busy, idle)
        return _bar("the whole recording", "recording", len(windows), total, busy, idle)
    if rank.devices:
        return device_bar(rank.devices[0])
    return None


def left_out(rank: RankReport, *, episodes: bool = False) -> list[str]:
    """Name the windows that the bar does not show, by class: how many, and how long they are on average."""
    shown, _ = chosen_windows(rank, episodes=episodes)
    rest = sorted(set(range(len(rank.per_step.window_ns))) - set(shown))
    lengths: dict[str, list[int]] = {}
    for i in rest:
        lengths.setdefault(rank.steps.step_class[i].value, []).append(rank.per_step.window_ns[i])
    return [
        f"{_counted(len(values), f'{name} step')} of {format_ns(sum(values) / len(values))}"
        for name, values in lengths.items()
    ]


def whole_recording(rank: RankReport) -> str:
    """Say what sums over a whole recording are summed over, so that nobody sets them beside a step's."""
    span = max((device.span_ns for device in rank.devices), default=0)
    steps = f", {_counted(rank.steps.count, 'step')}" if rank.steps.count and rank.steps.source != "none" else ""
    return f"the whole recording ({format_ns(span)}{steps})"


def device_bar(device: DeviceReport) -> Bar:
    """Return where a device's span goes."""
    busy = {
        "compute": device.compute_ns,
        "communication": device.exposed_communication_ns,
        "exposed_copy": device.exposed_copy_ns,
    }
    return _bar(f"GPU {device.device_id}'s span", "recording", 1, device.span_ns, busy, device.idle_by_cause_ns)


def _bar(of: str, per: str, windows: int, total: int, busy: dict[str, int], idle: dict[str, int]) -> Bar:
    def part(key: str, label: str, meaning: str, ns: int) -> Part:
        return Part(key, label, meaning, ns, ns / max(windows, 1), ns / total if total else 0.0)

    worked = tuple(
        part(f"b-{kind if kind in BUSY else 'other'}", BUSY.get(kind, OTHER_BUSY)[0], "the GPU worked", ns)
        for kind, ns in busy.items()
        if ns
    )
    groups = [PartGroup("busy", "GPU working", worked)] if worked else []
    for group in GROUPS:
        known = [cause for cause in group.causes if idle.get(cause)]
        parts = tuple(part(f"c-{c}", capital(cause_title(c)), CAUSE_MEANING[c], idle[c]) for c in known)
        if parts:
            groups.append(PartGroup(group.key, group.label, parts))
    strange = tuple(
        part("c-unknown", visible(cause), "a cause this version does not know", ns)
        for cause, ns in idle.items()
        if ns and cause not in GROUP_OF
    )
    if strange:
        groups.append(PartGroup("other", "Other causes", strange))
    return Bar(of, per, windows, total, tuple(groups))


def matrix(rank: RankReport, *, episodes: bool = False) -> Matrix | None:
    """Return idle time by cause and phase, mean per window shown; None where the device was never idle."""
    if not rank.devices:
        return None
    device = next((d for d in rank.devices if d.device_id == rank.per_step.device_id), rank.devices[0])
    windows, of = chosen_windows(rank, episodes=episodes)
    classes = {rank.steps.step_class[i] for i in windows}
    cells: dict[tuple[str, str], int] = {}
    for row in device.windows_idle_by_cause_and_phase_ns:
        if row.step_class in classes:
            cells[row.cause, row.phase] = cells.get((row.cause, row.phase), 0) + row.ns
    count = max(len(windows), 1)
    if not cells:
        cells = {(row.cause, row.phase): row.ns for row in device.idle_by_cause_and_phase_ns}
        count, of = 1, f"GPU {device.device_id}'s span"
    cells = {key: ns for key, ns in cells.items() if ns}
    if not cells:
        return None
    by_cause: Counter[str] = Counter()
    for (cause, _), ns in cells.items():
        by_cause[cause] += ns
    causes = [cause for cause, _ in by_cause.most_common()]
    order = [str(phase) for phase in PHASES]
    phases = sorted({phase for _, phase in cells}, key=lambda name: order.index(name) if name in order else len(order))
    largest = max(cells.values())
    rows = []
    for cause in causes:
        values = [cells.get((cause, phase), 0) for phase in phases]
        rows.append(
            (
                cause,
                capital(cause_title(cause)),
                tuple((value / count, value / largest) for value in values),
                sum(values) / count,
            )
        )
    sums = tuple(sum(cells.get((cause, phase), 0) for cause in causes) / count for phase in phases)
    return Matrix(of, tuple(phases), tuple(rows), sums, sum(cells.values()) / count)


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of the steps table."""

    name: str
    step_class: str
    start_ns: int
    window_ns: int
    idle_ns: int
    busy_share: str
    main_cause: str
    main_cause_ns: int


def step_rows(rank: RankReport) -> list[StepRow]:
    """Return one row per step window; none without a device, whose busy and idle time the rows are about."""
    series = rank.per_step
    if series.device_id is None:
        return []
    rows = []
    for i, window in enumerate(series.window_ns):
        by_cause = {cause: values[i] for cause, values in series.idle_by_cause_ns.items() if values[i]}
        main = max(by_cause, key=lambda cause: by_cause[cause], default="")
        rows.append(
            StepRow(
                name=visible(rank.steps.name[i]) if i < len(rank.steps.name) else f"step {i}",
                step_class=rank.steps.step_class[i].value,
                start_ns=series.start_ns[i],
                window_ns=window,
                idle_ns=series.idle_ns[i],
                busy_share=format_share(window - series.idle_ns[i], window),
                main_cause=capital(cause_title(main)) if main else "",
                main_cause_ns=by_cause.get(main, 0),
            )
        )
    return rows


def exact_windows(rank: RankReport) -> list[str]:
    """Name the windows in which the timeline keeps every event, each kind once."""
    counts = Counter(visible(detail.why) for detail in rank.timeline.details)
    return [why if count == 1 else f"{why} ({count} windows)" for why, count in counts.items()]


def capital(text: str) -> str:
    """Begin with a capital letter, leaving the rest alone."""
    return text[:1].upper() + text[1:]


def lower_cause(part: Part) -> str:
    """Name a part inside a sentence: causes begin small, save names such as Python."""
    title = cause_title(part.key.removeprefix("c-"))
    return title if part.key.startswith("c-") else part.label[:1].lower() + part.label[1:]


def observer_rows(observer: ObserverReport) -> list[tuple[str, float]]:
    """Return how many times as long the profiler made the step and its phases, in the order they run."""
    if observer.inflation is None:
        return []
    order = [str(phase) for phase in PHASES]
    known = sorted(
        observer.inflation_by_phase.items(),
        key=lambda item: order.index(item[0]) if item[0] in order else len(order),
    )
    return [("whole step", observer.inflation), *known]


def range_rows(rank: RankReport) -> list[RangeReport]:
    """Return the ranges a person named; the step marks are left out, since each is one step of the steps table."""
    marks = set(rank.steps.name)
    return [r for r in rank.ranges if not (r.count == 1 and r.name in marks)]
