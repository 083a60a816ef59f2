"""A report short enough for a pull-request comment: the answer first, everything else folded away.

Names come from a recording and may hold anything, so they are only ever written as code spans (nothing inside is
interpreted) or with every character that starts Markdown, HTML, a mention or a link made inert.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from traceanalyzer.renderers.job_text import HEAD, job_lines, job_rows, shown_ranks
from traceanalyzer.renderers.messages import say, translated
from traceanalyzer.renderers.text import cause_title, plan_text, saving_text, shorten, visible, visible_code
from traceanalyzer.results.analysis import Analysis, DeviceReport, RankReport
from traceanalyzer.results.answer import StepMean, answer, firing, mean_step, silence
from traceanalyzer.results.finding import Evidence, Finding, Remedy
from traceanalyzer.results.job import JobReport
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.units import format_bytes, format_ns, format_share

# GitHub refuses comments above 65,536 characters; far below it, people stop reading
MAX_EVIDENCE = 5
MAX_CAUSES = 8
MAX_KERNELS = 10
MAX_NAME = 120

_INERT = str.maketrans({ch: f"\\{ch}" for ch in "\\`*_[]<>&|~$#"})


def render_markdown(analysis: Analysis) -> str:
    """Render an Analysis as GitHub-flavoured Markdown.

    Args:
        analysis: The document.

    Returns:
        Text ending in a newline; at most a few dozen lines are visible, the rest is inside ``<details>``.
    """
    blocks = [_headline(analysis), *(_job(analysis.job) if analysis.job is not None else ()), *_findings(analysis)]
    for rank in shown_ranks(analysis):
        blocks.extend(_rank(rank, several=len(analysis.ranks) > 1))
    blocks.append(_quiet(analysis))
    blocks.append(_provenance(analysis))
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """Make free text inert: it reads as itself wherever GitHub-flavoured Markdown would interpret it."""
    inert = visible(text).translate(_INERT)
    # a zero-width space keeps "@name" from notifying someone; an entity keeps "://" from becoming a link
    inert = inert.replace("@", "@&#8203;").replace("://", "&#58;//")
    return re.sub(r"(?i)\bwww\.", "www&#46;", inert)


def code(text: str, *, cell: bool = False) -> str:
    """Write a name as a code span, whatever backticks it holds; ``cell`` also protects table borders."""
    shown = shorten(visible(text), MAX_NAME)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    # a span that starts or ends with a backtick needs a space there; Markdown strips exactly one on both sides
    pad = " " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) or not shown else ""
    span = f"{fence}{pad}{shown}{pad}{fence}"
    return span.replace("|", "\\|") if cell else span


def summary(text: str) -> str:
    """Write free text into a ``<summary>`` line, which is HTML: Markdown escapes would show there."""
    return html.escape(visible(text)).replace("@", "@&#8203;").replace("://", "&#58;//")


def _headline(analysis: Analysis) -> str:
    first = answer(analysis)
    if not any(rank.devices for rank in analysis.ranks):
        what = say("The recording holds no kernel, copy or memset, so there is no idle time to explain.")
        return f"## {say('No GPU activity')}\n\n{what}"
    if first is None:
        quiet = silence(analysis)
        return f"## {translated(quiet.title)}\n\n{escape(translated(quiet.sentence))}"
    saving = saving_text(first)
    price = (
        say(" Removing it wins {} per step ({}).", saving, say(first.saving_per_step_ns.basis.value)) if saving else ""
    )
    return f"## {escape(first.title)}\n\n{escape(first.message)}{price}"


def _findings(analysis: Analysis) -> Iterable[str]:
    faults, limiters = firing(analysis, FindingKind.FAULT), firing(analysis, FindingKind.LIMITER)
    several = len(analysis.ranks) > 1
    if faults:
        yield _table("Causes to fix, by saving", faults, several=several)
    if faults and (plan := plan_text(analysis)):
        yield escape(plan)
    if limiters:
        yield _table(
            "What bounds the step once these are fixed" if faults else "What bounds the step", limiters, several=several
        )
    for finding in [*faults, *limiters]:
        yield _finding(finding)


def _job(job: JobReport) -> Iterable[str]:
    yield "\n".join(f"- {escape(translated(line))}" for line in job_lines(job))
    lines = [f"| {' | '.join(say(name) for name in HEAD)} |", "|" + "---|" * len(HEAD)]
    lines += [f"| {' | '.join(escape(translated(cell)) for cell in row)} |" for row in job_rows(job)]
    yield "\n".join(lines)


def _table(title: str, findings: list[Finding], *, several: bool) -> str:
    names = " | ".join(say(name) for name in ("cause", "severity", "saving per step", "basis"))
    lines = [f"**{say(title)}**", "", f"|{' rank |' if several else ''} | {names} |"]
    lines.append("|---|---|---|---|---|" + ("---|" if several else ""))
    for finding in findings:
        saving = finding.saving_per_step_ns
        severity = say(finding.severity.value) if finding.severity else ""
        rank = f" {finding.rank} |" if several else ""
        lines.append(
            f"|{rank} {escape(finding.code)} | {escape(finding.title)} | {severity} "
            f"| {saving_text(finding) or say('not known')} "
            f"| {say(saving.basis.value)} |"
        )
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    # blank lines inside <details> are what makes GitHub read the inside as Markdown
    lines = [
        f"<details><summary>{say('{}: how to fix it, and the evidence', summary(finding.code))}</summary>",
        "",
        escape(finding.message),
        "",
    ]
    lines += [f"{number}. {escape(step)}" for number, step in enumerate(finding.fix, start=1)]
    if finding.remedy is not None:
        lines += ["", *_remedy(finding.remedy, finding.code)]
    if finding.evidence:
        lines += ["", *(_place(place) for place in finding.evidence[:MAX_EVIDENCE])]
        more = max(finding.evidence_count, len(finding.evidence)) - MAX_EVIDENCE
        if more > 0:
            lines.append(f"- {say('and {} more', more)}")
    return "\n".join([*lines, "", "</details>"])


def _remedy(remedy: Remedy, finding_code: str) -> Iterable[str]:
    if remedy.where is not None:
        yield say("Line of code: {}", code(remedy.where))
        yield ""
    if remedy.before:
        yield say("Set {}. Before:", ", ".join(code(setting) for setting in remedy.settings))
        yield from ("", *fenced(remedy.before, "python"), "", say("After:"), "", *fenced(remedy.after, "python"), "")
    yield say(
        "Verify ({} is gone when the second command ends with 0; BEFORE is this recording):", escape(finding_code)
    )
    yield from ("", *fenced("\n".join(visible(command) for command in remedy.verify), "sh"))


def fenced(text: str, language: str) -> list[str]:
    """Write lines as a code block that nothing inside them can end."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return [f"{fence}{language}", *visible_code(text).split("\n"), fence]


def _place(place: Evidence) -> str:
    where = say(" at {}", code(place.where)) if place.where else ""
    long = format_ns(place.end_ns - place.start_ns)
    return f"- {say('{}, {} long: {}{}', format_ns(place.start_ns), long, escape(place.what), where)}"


def _rank(rank: RankReport, *, several: bool) -> Iterable[str]:
    label = f"Rank {rank.rank}: " if several else ""
    mean = mean_step(rank)
    if mean is not None:
        yield _step_table(label, rank, mean)
    for device in rank.devices:
        yield _device(label, rank, device)


def _step_table(label: str, rank: RankReport, mean: StepMean) -> str:
    kind = f"{mean.step_class.value} " if mean.step_class else ""
    where = f"where the mean {kind}step of {format_ns(mean.window_ns)} goes ({mean.windows} of {rank.steps.count})"
    head = label + translated(where)

    def row(what: str, ns: float) -> str:
        return f"| {escape(translated(what))} | {format_ns(ns)} | {format_share(ns, mean.window_ns)} |"

    lines = [
        f"<details open><summary>{head}</summary>",
        "",
        f"| GPU | {say('per step')} | {say('share')} |",
        "|---|---:|---:|",
    ]
    lines += [row(f"busy: {kind.replace('_', ' ')}", ns) for kind, ns in mean.busy_ns.items()]
    causes = list(mean.idle_ns.items())
    lines += [row(f"idle: {cause_title(cause)}", ns) for cause, ns in causes[:MAX_CAUSES]]
    rest = sum(ns for _, ns in causes[MAX_CAUSES:])
    if rest:
        lines.append(row(f"idle: {len(causes) - MAX_CAUSES} smaller causes", rest))
    return "\n".join([*lines, "", "</details>"])


def _device(label: str, rank: RankReport, device: DeviceReport) -> str:
    name = f" ({summary(device.name)})" if device.name else ""
    busy = format_share(device.busy_ns, device.span_ns)
    h2d, malloc = rank.copies.h2d, rank.allocator.device_malloc
    exposed = say("{} not under a kernel", format_ns(h2d.not_under_kernel_ns))
    facts = [
        ("span", format_ns(device.span_ns)),
        ("busy", f"{format_ns(device.busy_ns)} ({busy})"),
        ("idle", say("{} in {} gaps", format_ns(device.idle_ns), device.gaps.count)),
        ("compute", format_ns(device.compute_ns)),
        ("exposed communication", format_ns(device.exposed_communication_ns)),
        ("exposed copies", format_ns(device.exposed_copy_ns)),
        ("longest gap", format_ns(device.gaps.max_ns)),
        ("launches", str(rank.launches.count)),
        ("H2D copies", f"{h2d.count}, {format_bytes(h2d.bytes)}, {exposed}"),
        ("device allocations", f"{malloc.count}, {format_ns(malloc.time_ns)}"),
        *memory_facts(rank, device.device_id),
    ]
    title = say("device {}{}: busy {}, summed over the recording", device.device_id, name, busy)
    lines = [
        f"<details><summary>{label}{title}</summary>",
        "",
        "| | |",
        "|---|---|",
    ]
    lines += [f"| {say(what)} | {value} |" for what, value in facts]
    if rank.kernels.top:
        lines += ["", f"| kernel | {say('launches')} | {say('time, summed')} |", "|---|---:|---:|"]
        lines += [
            f"| {code(k.name, cell=True)} | {k.count} | {format_ns(k.time_ns)} |"
            for k in rank.kernels.top[:MAX_KERNELS]
        ]
    return "\n".join([*lines, "", "</details>"])


def memory_facts(rank: RankReport, device_id: int) -> list[tuple[str, str]]:
    """Say in one row what a memory snapshot holds of a device; nothing without one."""
    memory = next((d for d in rank.memory.devices if d.device_id == device_id), None) if rank.memory else None
    if memory is None:
        return []
    free = (
        say(", {} free in pieces", format_share(memory.fragmentation, 1.0)) if memory.fragmentation is not None else ""
    )
    active, reserved = format_bytes(memory.peak_active_bytes), format_bytes(memory.peak_reserved_bytes)
    text = say("{} active of {} reserved{}", active, reserved, free)
    if memory.retries or memory.ooms:
        text += say("; {} retries, {} out-of-memory errors", memory.retries or 0, memory.ooms)
    return [("memory at its peak", text)]


def _quiet(analysis: Analysis) -> str:
    groups = (
        ("Notes", [f for f in analysis.findings if f.status is Status.INFORMATIVE]),
        ("Looked for and not found", [f for f in analysis.findings if f.status is Status.PASS]),
        ("Could not be decided", [f for f in analysis.findings if f.status is Status.NOT_APPLICABLE]),
        ("Checks that broke", [f for f in analysis.findings if f.status is Status.ERROR]),
    )
    shown = [(title, findings) for title, findings in groups if findings]
    if not shown:
        return ""
    lines = [f"<details><summary>{say('The other checks')}</summary>"]
    for title, findings in shown:
        lines += ["", f"**{say(title)}**", ""]
        for finding in findings:
            detail = "" if finding.status is Status.PASS else f": {escape(finding.message)}"
            lines.append(f"- {escape(finding.code)} {escape(finding.title)}{detail}")
    return "\n".join([*lines, "", "</details>"])


def _provenance(analysis: Analysis) -> str:
    title = say("traceanalyzer {}, recordings and their state", summary(analysis.tool.version))
    lines = [
        f"<details><summary>{title}</summary>",
        "",
    ]
    for source in analysis.inputs:
        producer = f", {escape(translated(source.producer))}" if source.producer else ""
        lines.append(f"- {code(source.path)} ({escape(source.format)}, {format_bytes(source.bytes)}{producer})")
    for rank in analysis.ranks:
        state = rank.integrity
        verdict = escape(translated(state.verdict))
        lines.append(f"- {say('rank {}: {}, {} GPU activities', rank.rank, verdict, state.gpu_activities)}")
        lines += [f"  - {escape(note)}" for note in state.notes]
        lines += [f"  - {say('left out {}: {}', d.count, escape(d.reason))}" for d in state.dropped]
    return "\n".join([*lines, "", "</details>"])
