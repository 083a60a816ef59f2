"""The report's answer in words: the sentence, what fixing it gives, and the findings as cards."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.renderers.html_view import Bar, chosen_windows, is_episodic, left_out
from traceanalyzer.renderers.messages import say
from traceanalyzer.renderers.text import visible
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.answer import answer, firing, part_of, silence
from traceanalyzer.results.finding import Evidence, Finding, Saving
from traceanalyzer.results.places import code_place
from traceanalyzer.results.vocabulary import Basis, FindingKind
from traceanalyzer.units import format_ns, format_share

SHOWN_EVIDENCE = 24
# from here on a step with the profiler and one without it are different numbers to a reader
NOTICEABLE = 1.02

BASIS_WORDS = {
    Basis.MEASURED: "measured by trying it",
    Basis.REPLAY: "predicted by replay",
    Basis.BOUND: "upper bound",
    Basis.NONE: "not estimated",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the recording a reader can jump to."""

    evidence: Evidence
    label: str
    where: str


@dataclass(frozen=True, slots=True)
class Card:
    """A finding that fires, ready to print.

    Attributes:
        finding: The finding.
        gain: What it wins per step, with ``≤`` or ``≈`` where that is all that is known.
        gain_range: From the pessimistic to the optimistic value; empty where there is only one.
        basis: How the gain is known.
        share: The gain as a fraction of the step it is stated against.
        locations: Places in the code, most frequent evidence first.
        places: Moments in the recording.
        each_time: What one occurrence costs and how often it comes; empty for what comes every step.
        within: Code of the finding that counts this one's time too; empty where none does.
    """

    finding: Finding
    gain: str
    gain_range: str
    basis: str
    share: str
    locations: tuple[str, ...]
    places: tuple[Place, ...]
    each_time: str
    within: str = ""


def headline(analysis: Analysis, bar: Bar | None) -> tuple[str, str]:
    """Return the answer in one sentence, and a second one with what fixing it would do (may be empty)."""
    if bar is None:
        return "No GPU activity was recorded, so there is no idle time to explain.", ""
    first = answer(analysis)
    episodes = is_episodic(first)
    partly = any(left_out(rank, episodes=episodes) for rank in analysis.ranks[:1])
    where = " in steady steps" if partly and not episodes else ""
    worked = f"The GPU worked {format_share(bar.busy_share, 1.0)} of the time{where}"
    if first is None:
        quiet = silence(analysis)
        if quiet.is_healthy:
            return f"{worked}; nothing that can be won back was found.", ""
        return f"{worked}. {quiet.title}.", quiet.sentence
    said = lower_first(visible(first.title)).rstrip(".")
    outlook = _outlook(analysis, first)
    limiter = _larger_limiter(analysis, first, bar)
    if limiter is None:
        return f"{worked}; {said}.", outlook
    # what can be fixed explains little of it, and the sentence must not read as if it did
    stays = f"Most of the idle time has another cause: {lower_first(visible(limiter.title)).rstrip('.')}."
    return f"{worked}. First to fix: {said}.", " ".join(part for part in (outlook, stays) if part)


def first_step(analysis: Analysis) -> tuple[Finding, str] | None:
    """Return what to do first, and the finding that says so; None where nothing fires or it says nothing."""
    first = answer(analysis)
    return (first, visible(first.fix[0])) if first is not None and first.fix else None


def _larger_limiter(analysis: Analysis, first: Finding, bar: Bar) -> Finding | None:
    """Return the limiter that explains the idle time where the fault to fix explains less than half of it."""
    if first.kind is not FindingKind.FAULT:
        return None
    limiter = next((f for f in firing(analysis, FindingKind.LIMITER) if f.rank == first.rank), None)
    rank = next((rank for rank in analysis.ranks if rank.rank == first.rank), None)
    base = _stated_against(first, rank)
    if limiter is None or base is None or not base[0]:
        return None
    value, most = _gain(first.saving_per_step_ns)[0], _gain(limiter.saving_per_step_ns)[0]
    if value is None or most is None:
        return None
    return limiter if most > value and value / base[0] < (1 - bar.busy_share) / 2 else None


def _outlook(analysis: Analysis, first: Finding) -> str:
    rank = next((rank for rank in analysis.ranks if rank.rank == first.rank), None)
    planned = [step for step in analysis.plan if 0 < len(step.fixes) <= 2]
    if planned and rank is not None and (mean := _mean_window(rank, episodes=False)) is not None:
        # a plan is the recording run again without its causes; its first entry is the step before any fix
        base_ns = analysis.plan[0].step_ns if not analysis.plan[0].fixes else mean
        names = [visible(code) for code in planned[-1].fixes]
        # the plan's own first entry is the step without the profiler, which the bar does not show
        slowed = not analysis.plan[0].fixes and (rank.observer.inflation or 1) >= NOTICEABLE
        step = "the step without the profiler" if slowed else "the step"
        course = " → ".join(format_ns(each) for each in (base_ns, *(each.step_ns for each in planned)))
        if len(names) > 1:
            return f"Fixing {names[0]}, then {names[1]}, would take {step} from {course}."
        it = "it" if names[0] == visible(first.code) else names[0]
        return f"Fixing {it} would take {step} from {format_ns(base_ns)} to about {format_ns(planned[-1].step_ns)}."
    base = _stated_against(first, rank)
    if base is None:
        return ""
    mean, step = base
    saving = first.saving_per_step_ns
    value, sure = _gain(saving)
    if value is None:
        return ""
    left = format_ns(max(mean - value, 0))
    how = "" if first.kind is FindingKind.FAULT else "Nothing here is set up wrongly; this is what bounds the step. "
    often = f"It costs {_each_time(first)}. " if is_episodic(first) else ""
    if sure == "at most":
        gain = f"at most {format_ns(value)}"
        return f"{how}{often}Removing all of it would win {gain}: {step} from {format_ns(mean)} to {left} at best."
    return f"{how}{often}Fixing it would take {step} from {format_ns(mean)} to about {left}."


def _gain(saving: Saving) -> tuple[int | None, str]:
    """Return what to show as the gain, and whether it is exact (''), 'about' or 'at most'."""
    if saving.basis is Basis.NONE or (saving.likely is None and saving.high is None):
        return None, ""
    if saving.likely is None:
        return saving.high, "at most"
    if saving.basis is Basis.BOUND:
        # a likely value below the limit is an estimate; at the limit it is the limit itself
        return saving.likely, "at most" if saving.high in (None, saving.likely) else "about"
    return saving.likely, ""


def _mean_window(rank: RankReport, *, episodes: bool) -> float | None:
    windows, _ = chosen_windows(rank, episodes=episodes)
    return sum(rank.per_step.window_ns[i] for i in windows) / len(windows) if windows else None


def _stated_against(finding: Finding, rank: RankReport | None) -> tuple[float, str] | None:
    """Return the step a saving is stated against, and its name: the one without the profiler where that is known."""
    episodes = is_episodic(finding)
    mean = _mean_window(rank, episodes=episodes) if rank is not None else None
    if rank is None or mean is None:
        return None
    name = "the mean step" if episodes else "the step"
    inflation = rank.observer.inflation
    if inflation is not None and inflation > 1:
        name += " without the profiler"
        if not episodes and rank.observer.unprofiled_step_ns:
            mean = float(rank.observer.unprofiled_step_ns)
        else:
            mean /= inflation
    return mean, f"{name}, episodes included," if episodes else name


def _each_time(finding: Finding) -> str:
    episode = finding.episode
    often = "" if episode.per_1000_steps is None else f", {_often(episode.per_1000_steps)}"
    return f"{format_ns(episode.ns)} each time{often}"


def _often(per_1000_steps: float) -> str:
    """Say how often something comes as a reader counts it."""
    if per_1000_steps >= 999.5:
        return "in every step of this recording"
    if per_1000_steps >= 100:
        return f"in {per_1000_steps / 10:.0f} % of the steps of this recording"
    return f"{per_1000_steps:.3g} times per 1,000 steps of this recording"


def cards(analysis: Analysis, kind: FindingKind) -> list[Card]:
    """Return the firing findings of a kind as cards, in the document's order."""
    ranks = {rank.rank: rank for rank in analysis.ranks}
    return [_card(finding, ranks.get(finding.rank), part_of(analysis, finding)) for finding in firing(analysis, kind)]


def _card(finding: Finding, rank: RankReport | None, within: str) -> Card:
    saving = finding.saving_per_step_ns
    value, sure = _gain(saving)
    sign = {"": "", "about": "≈ ", "at most": "≤ "}[sure]
    gain = "not estimated" if value is None else f"{sign}{format_ns(value)}"
    span = ""
    if value is not None and (saving.low is not None or saving.high is not None):
        low = format_ns(saving.low) if saving.low is not None else "unknown"
        high = format_ns(saving.high) if saving.high is not None else "open"
        span = f"{low} – {high}" if low != high else ""
    base = _stated_against(finding, rank)
    share = ""
    if value is not None and base is not None and base[0]:
        share = f"{format_share(value, base[0])} of {base[1].rstrip(',')}"
    locations = _locations(finding)
    return Card(
        finding=finding,
        gain=gain,
        gain_range=span,
        basis="estimate" if sure == "about" else BASIS_WORDS[saving.basis],
        share=share,
        locations=locations,
        places=tuple(Place(e, _moment(e, rank), _place(e)) for e in finding.evidence[:SHOWN_EVIDENCE]),
        each_time=_each_time(finding) if is_episodic(finding) else "",
        within=within,
    )


def _locations(finding: Finding) -> tuple[str, ...]:
    """Where in the code: the place with most time in total where the rule knows it, else those of the evidence."""
    total = finding.observed.get("most_time_in")
    if isinstance(total, str):
        return (visible(total),)
    known = finding.observed.get("where")
    places = [known] if isinstance(known, str) else []
    return tuple(dict.fromkeys(visible(w) for w in (*places, *(e.where for e in finding.evidence)) if w))[:4]


def spot(where: str) -> str:
    """Say what kind of place it is where that is not plain to see: a range's name looks like any word."""
    is_plain = (
        code_place(where) is not None
        or where.startswith(("phase ", say("phase {}", "")))
        or any(mark in where for mark in "./(:#")
    )
    return where if is_plain else say("range {}", where)


def _place(evidence: Evidence) -> str:
    """Where in the code, unless the description names it already."""
    where = visible(evidence.where or "")
    return "" if where in visible(evidence.what) else where


def _moment(evidence: Evidence, rank: RankReport | None) -> str:
    """Say when a piece of evidence happened: the step and the time into it, else the time in the recording."""
    if rank is not None:
        series = rank.per_step
        for i, (start, length) in enumerate(zip(series.start_ns, series.window_ns, strict=True)):
            if start <= evidence.start_ns < start + length:
                name = visible(rank.steps.name[i]) if i < len(rank.steps.name) else f"step {i}"
                return f"{name} + {format_ns(evidence.start_ns - start)}"
    return f"at {format_ns(evidence.start_ns)}"


def lower_first(text: str) -> str:
    """Begin with a small letter unless the first word is a name or an abbreviation (GPU, PyTorch)."""
    word = text.split(" ", 1)[0]
    if len(word) > 1 and (word[1:] != word[1:].lower() or word in {"Python"}):
        return text
    return text[:1].lower() + text[1:]
