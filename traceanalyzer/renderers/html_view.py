"""What the report says, as plain values: the sentence, the bar, findings with their places, and the tables.

Nothing is measured here; sums over the windows shown are exact integers, so the page can say that parts add up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from traceanalyzer.renderers.html_palette import BUSY, CAUSE_MEANING, GROUP_OF, GROUPS, OTHER_BUSY
from traceanalyzer.renderers.text import cause_title, visible
from traceanalyzer.results.analysis import Analysis, DeviceReport, RankReport
from traceanalyzer.results.answer import answer, firing
from traceanalyzer.results.finding import Evidence, Finding
from traceanalyzer.results.vocabulary import PHASES, Basis, FindingKind, StepClass
from traceanalyzer.units import format_ns, format_share

SHOWN_EVIDENCE = 24

BASIS_WORDS = {
    Basis.MEASURED: "measured by trying it",
    Basis.REPLAY: "predicted by replay",
    Basis.BOUND: "upper bound",
    Basis.NONE: "not estimated",
}


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
    def largest_idle(self) -> Part | None:
        """The largest cause of idle time."""
        idle = [part for group in self.groups if group.key != "busy" for part in group.parts]
        return max(idle, key=lambda part: part.total_ns, default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the recording a reader can jump to."""

    evidence: Evidence
    label: str


@dataclass(frozen=True, slots=True)
class Card:
    """A finding that fires, ready to print."""

    finding: Finding
    gain: str
    gain_range: str
    basis: str
    share: str
    locations: tuple[str, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Idle time by cause (rows) and phase (columns), mean per window; ``shade`` is a fraction of the largest cell."""

    of: str
    phases: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[tuple[float, float], ...], float], ...]
    column_sums: tuple[float, ...]
    total: float


def chosen_windows(rank: RankReport) -> tuple[list[int], str]:
    """Return the windows that stand for the rank, and what they are: the steady ones, or all where none is."""
    classes = rank.steps.step_class
    count = len(rank.per_step.window_ns)
    steady = [i for i in range(count) if classes[i] is StepClass.STEADY]
    if steady:
        return steady, f"{len(steady)} steady step{'s' if len(steady) > 1 else ''}"
    return list(range(count)), f"{count} step{'s' if count != 1 else ''}"


def step_bar(rank: RankReport) -> Bar | None:
    """Return where a step's time goes, or the recording's where it has no steps; None without a device."""
    series = rank.per_step
    windows, of = chosen_windows(rank)
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


def headline(analysis: Analysis, bar: Bar | None) -> tuple[str, str]:
    """Return the answer in one sentence, and a second one with what fixing it would do (may be empty)."""
    if bar is None:
        return "No GPU activity was recorded, so there is no idle time to explain.", ""
    where = " in steady steps" if any(left_out(rank) for rank in analysis.ranks[:1]) else ""
    worked = f"The GPU worked {format_share(bar.busy_share, 1.0)} of the time{where}"
    first = answer(analysis)
    if first is None:
        return f"{worked}; nothing that can be won back was found.", ""
    return f"{worked}; {lower_first(visible(first.title)).rstrip('.')}.", _outlook(analysis, bar, first)


def _outlook(analysis: Analysis, bar: Bar, first: Finding) -> str:
    if analysis.plan:
        planned = analysis.plan[min(1, len(analysis.plan) - 1)]
        count = len(planned.fixes)
        what = f"Fixing the first {count} findings" if count > 1 else f"Fixing {visible(planned.fixes[0])}"
        return f"{what} would take the {bar.per} from {format_ns(bar.mean_ns)} to about {format_ns(planned.step_ns)}."
    rank = next((rank for rank in analysis.ranks if rank.rank == first.rank), None)
    mean = _mean_window(first, rank)
    saving = first.saving_per_step_ns
    if mean is None or saving.basis is Basis.NONE:
        return ""
    step = f"mean {bar.per}{', episodes included,' if first.episode.ns is not None else ''}"
    if saving.basis is Basis.BOUND and (most := saving.high or saving.likely):
        return f"Fixing it can win at most {format_ns(most)} of the {step} of {format_ns(mean)}."
    if saving.likely:
        left = max(mean - saving.likely, 0)
        return f"Fixing it would take the {step} from {format_ns(mean)} to about {format_ns(left)}."
    return ""


def left_out(rank: RankReport) -> list[str]:
    """Name the windows that the bar does not show, by class: how many, and how long they are on average."""
    shown, _ = chosen_windows(rank)
    rest = sorted(set(range(len(rank.per_step.window_ns))) - set(shown))
    lengths: dict[str, list[int]] = {}
    for i in rest:
        lengths.setdefault(rank.steps.step_class[i].value, []).append(rank.per_step.window_ns[i])
    return [
        f"{len(values)} {name} step{'s' if len(values) > 1 else ''} of {format_ns(sum(values) / len(values))}"
        for name, values in lengths.items()
    ]


def cards(analysis: Analysis, kind: FindingKind) -> list[Card]:
    """Return the firing findings of a kind as cards, in the document's order."""
    ranks = {rank.rank: rank for rank in analysis.ranks}
    return [_card(finding, ranks.get(finding.rank)) for finding in firing(analysis, kind)]


def _card(finding: Finding, rank: RankReport | None) -> Card:
    saving = finding.saving_per_step_ns
    likely = saving.likely if saving.likely is not None else saving.high
    gain = "not estimated"
    span = ""
    if likely is not None and saving.basis is not Basis.NONE:
        at_most = saving.basis is Basis.BOUND or saving.likely is None
        gain = f"{'≤ ' if at_most else ''}{format_ns(likely)}"
        if saving.low is not None or saving.high is not None:
            low = format_ns(saving.low) if saving.low is not None else "unknown"
            high = format_ns(saving.high) if saving.high is not None else "open"
            span = f"{low} – {high}"
    mean = _mean_window(finding, rank)
    step = "mean step, episodes included" if finding.episode.ns is not None else "step"
    locations = dict.fromkeys(visible(e.where) for e in finding.evidence if e.where)
    return Card(
        finding=finding,
        gain=gain,
        gain_range=span,
        basis=BASIS_WORDS[saving.basis],
        share=f"{format_share(likely, mean)} of the {step}" if likely is not None and mean else "",
        locations=tuple(locations)[:4],
        places=tuple(Place(e, _moment(e, rank)) for e in finding.evidence[:SHOWN_EVIDENCE]),
    )


def _mean_window(finding: Finding, rank: RankReport | None) -> float | None:
    """Mean length of the windows a finding was judged on: steady ones, and episodic ones too where it is an episode."""
    if rank is None:
        return None
    windows, _ = chosen_windows(rank)
    if finding.episode.ns is not None:
        windows = [
            i
            for i in range(len(rank.per_step.window_ns))
            if rank.steps.step_class[i] in (StepClass.STEADY, StepClass.EPISODIC)
        ] or windows
    return sum(rank.per_step.window_ns[i] for i in windows) / len(windows) if windows else None


def _moment(evidence: Evidence, rank: RankReport | None) -> str:
    """Say when a piece of evidence happened: the step and the time into it, else the time in the recording."""
    if rank is not None:
        series = rank.per_step
        for i, (start, length) in enumerate(zip(series.start_ns, series.window_ns, strict=True)):
            if start <= evidence.start_ns < start + length:
                name = visible(rank.steps.name[i]) if i < len(rank.steps.name) else f"step {i}"
                return f"{name} + {format_ns(evidence.start_ns - start)}"
    return f"at {format_ns(evidence.start_ns)}"


def matrix(rank: RankReport) -> Matrix | None:
    """Return idle time by cause and phase, mean per window shown; None where the device was never idle."""
    if not rank.devices:
        return None
    device = next((d for d in rank.devices if d.device_id == rank.per_step.device_id), rank.devices[0])
    windows, of = chosen_windows(rank)
    cells: dict[tuple[str, str], int] = {}
    steady = any(row.step_class == StepClass.STEADY for row in device.windows_idle_by_cause_and_phase_ns)
    for row in device.windows_idle_by_cause_and_phase_ns:
        if not steady or row.step_class == StepClass.STEADY:
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


def lower_first(text: str) -> str:
    """Begin with a small letter unless the first word is a name or an abbreviation (GPU, PyTorch)."""
    word = text.split(" ", 1)[0]
    if len(word) > 1 and (word[1:] != word[1:].lower() or word in {"Python"}):
        return text
    return text[:1].lower() + text[1:]
