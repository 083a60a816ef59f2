"""What a document answers first: the finding to act on, and where the time of a step goes."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind, Severity, Status, StepClass

# worst first, as ``--fail-on`` counts them
SEVERITIES: tuple[Severity, ...] = tuple(Severity)


@dataclass(frozen=True, slots=True)
class StepMean:
    """The mean window of one rank; every part is mean ns per window.

    Attributes:
        windows: Number of windows averaged.
        step_class: Class they have; None where windows of every class were taken because none is steady.
        window_ns: Length.
        busy_ns: Device busy, by kind; empty kinds left out.
        idle_ns: Device idle, by cause; empty causes left out, largest first.
    """

    windows: int
    step_class: StepClass | None
    window_ns: float
    busy_ns: dict[str, float]
    idle_ns: dict[str, float]


def firing(analysis: Analysis, kind: FindingKind) -> list[Finding]:
    """Return the findings of a kind that fire, in the document's order."""
    return [f for f in analysis.findings if f.status is Status.FAIL and f.kind is kind]


def answer(analysis: Analysis) -> Finding | None:
    """Return the finding that answers "why was the GPU idle": the first fault, else the first limiter, else None."""
    for kind in (FindingKind.FAULT, FindingKind.LIMITER):
        found = firing(analysis, kind)
        if found:
            return found[0]
    return None


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nothing fires, and whether that may be called good news.

    Attributes:
        is_healthy: The whole recording was judged by every rule and the device was busy.
        title: A few words.
        sentence: One sentence for the reader.
    """

    is_healthy: bool
    title: str
    sentence: str


# the share of busy time from which an unexplained rest is small change (as rule TA903 has it)
HEALTHY_BUSY_SHARE = 0.9


def silence(analysis: Analysis) -> Silence:
    """Say what it means that no finding fires: a healthy run, a damaged recording, or causes nobody looked for.

    Args:
        analysis: A document without firing findings.
    """
    checked = {f.code for f in analysis.findings}
    if any(rank.integrity.verdict != "complete" for rank in analysis.ranks):
        return Silence(
            False,
            "No answer: the recording is incomplete",
            "Nothing was found, but parts of the recording are missing, so causes may be missing with them; "
            "record it again.",
        )
    if not checked >= ANSWERING_RULES:
        is_told = any(f.status is Status.INFORMATIVE for f in analysis.findings)
        if 0 < len(checked) <= FEW_RULES and not is_told:
            return _few(analysis)
        return Silence(
            False,
            "No answer: rules were left out",
            "Nothing was found among the rules that were selected; run without --select and --ignore for an answer.",
        )
    means = [mean for rank in analysis.ranks if (mean := mean_step(rank)) is not None]
    busy = min((sum(m.busy_ns.values()) / m.window_ns for m in means if m.window_ns), default=0.0)
    if busy < HEALTHY_BUSY_SHARE:
        return Silence(
            False,
            "No single cause to fix",
            "The device is often idle, but no single cause is worth more than the floor of 1 % of the step.",
        )
    return Silence(True, "Nothing to fix", "No cause of idle GPU time can be won back above the floor.")


# from here on a list of codes says less than that rules were left out
FEW_RULES = 4


def _few(analysis: Analysis) -> Silence:
    """Answer what was asked where only some rules were: whoever checks a fix wants to know about that one."""
    passed = sorted({f.code for f in analysis.findings if f.status is Status.PASS})
    open_ = sorted({f.code for f in analysis.findings} - set(passed))
    said = []
    if passed:
        said.append(f"{', '.join(passed)} {'does' if len(passed) == 1 else 'do'} not fire")
    if open_:
        said.append(f"{', '.join(open_)} could not be judged on this recording")
    return Silence(
        False,
        "; ".join(said),
        "Nothing else was asked; run without --select and --ignore to learn why the GPU is idle.",
    )


# faults of input and plans, and the limiter of host-bound steps: without them "nothing found" means nothing
ANSWERING_RULES = frozenset({"TA101", "TA102", "TA201", "TA202", "TA301", "TA401", "TA501", "TA801"})


# a finding whose time is all inside another's, so that their savings must not be added
PART_OF: dict[str, str] = {"TA204": "TA201", "TA604": "TA201"}


def part_of(analysis: Analysis, finding: Finding) -> str:
    """Return the code of a firing finding that counts all of this one's time too; empty where none does."""
    whole = PART_OF.get(finding.code, "")
    is_counted = any(f.code == whole and f.rank == finding.rank and f.status is Status.FAIL for f in analysis.findings)
    return whole if is_counted else ""


def reaches(analysis: Analysis, severity: Severity) -> list[Finding]:
    """Return the firing findings at least as severe as ``severity``."""
    limit = SEVERITIES.index(severity)
    return [
        f
        for f in analysis.findings
        if f.status is Status.FAIL and f.severity is not None and SEVERITIES.index(f.severity) <= limit
    ]


def mean_step(rank: RankReport) -> StepMean | None:
    """Average a rank's steady windows, or all windows where none is steady; None without windows or device."""
    series = rank.per_step
    classes = rank.steps.step_class
    total = len(series.window_ns)
    if not total or series.device_id is None:
        return None
    rows = [i for i in range(total) if classes[i] is StepClass.STEADY]
    step_class: StepClass | None = StepClass.STEADY
    if not rows:
        rows, step_class = list(range(total)), None

    def mean(values: list[int]) -> float:
        return sum(values[i] for i in rows) / len(rows)

    busy = {kind: mean(values) for kind, values in series.busy_by_kind_ns.items()}
    idle = {cause: mean(values) for cause, values in series.idle_by_cause_ns.items()}
    return StepMean(
        windows=len(rows),
        step_class=step_class,
        window_ns=mean(series.window_ns),
        busy_ns={kind: ns for kind, ns in busy.items() if ns > 0},
        idle_ns=dict(sorted(((c, ns) for c, ns in idle.items() if ns > 0), key=lambda item: -item[1])),
    )


# what ends a plan, as a reader is told
_LIMITS = {
    "gpu_busy": "the device's own work",
    "input_supply": "what the loader can supply",
    "host": "the host's dispatch",
}


def planned_course(analysis: Analysis) -> tuple[list[str], list[int], str] | None:
    """Return the joint plan: codes in the order to fix them, the step before and after each (ns), and its limit.

    Args:
        analysis: A document.

    Returns:
        None where nothing was planned, or where the plan does not say what the step was before it.
    """
    plan = analysis.plan
    if len(plan) < 2 or plan[0].fixes:
        return None
    last = plan[-1]
    return list(last.fixes), [step.step_ns for step in plan], _LIMITS.get(last.limit, last.limit)
