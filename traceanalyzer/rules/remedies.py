"""Fits a rule's remedy to a recording: numbers and code lines go in, and the commands that check the change."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from string import Template

import msgspec

from traceanalyzer.results import finding as documents
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.places import code_places
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules import RULES
from traceanalyzer.rules.base import Meta, Remedy

AFTER = "AFTER"
ANY_SCRIPT = ("record", "script", f"--out={AFTER}", "--", "python", "train.py")
# what a run was asked for that its repetition must not repeat: the fault itself, its own folder, its trials
_DROPPED = ("--fault", "--out", "--overwrite", "--trial", "--trials", "--trial-seconds", "--no-trials")
# a word of a recorded command that can be written on a command line as it is; anything else is left to the reader
_WORD = re.compile(r"--[a-z][a-z0-9-]*(=[\w.,:/+=@%-]*)?", re.ASCII)


def with_remedies(findings: Sequence[Finding], recorder: Mapping[str, object]) -> list[Finding]:
    """Add to every finding that was raised what to change and how to check that it helped.

    Args:
        findings: Findings of one rank.
        recorder: What the run folder knows, for the command it was recorded with; empty without one.
    """
    metas = {rule.META.code: rule.META for rule in RULES}
    return [
        msgspec.structs.replace(finding, remedy=_remedy(finding, metas[finding.code], recorder.get("command")))
        if _was_raised(finding)
        else finding
        for finding in findings
    ]


def _was_raised(finding: Finding) -> bool:
    if finding.kind is FindingKind.NOTE:
        return finding.status is Status.INFORMATIVE and bool(finding.fix)
    return finding.status is Status.FAIL


def _remedy(finding: Finding, meta: Meta, command: object) -> documents.Remedy:
    known, change = finding.observed, meta.remedy
    places = code_places(finding)
    return documents.Remedy(
        settings=list(change.settings) if change is not None else [],
        where=places[0] if places else None,
        before=snippet(change, change.before, known) if change is not None else "",
        after=snippet(change, change.after, known) if change is not None else "",
        verify=verify(meta, command, known),
    )


def snippet(change: Remedy, code: str, observed: Mapping[str, Scalar]) -> str:
    """Return a snippet as it is printed: without the indentation of the rule's file, numbers filled in.

    Args:
        change: The remedy, for what stands in where nothing was observed.
        code: Its ``before`` or ``after``.
        observed: The finding's values; empty for a rule's page.
    """
    return Template(inspect.cleandoc(code)).substitute(_numbers(change, observed))


def verify(meta: Meta, command: object, observed: Mapping[str, Scalar]) -> list[str]:
    """Return the commands that show whether the change helped: record, look for the rule again, compare.

    Args:
        meta: The rule.
        command: What the run was recorded with, as ``run.json`` has it; None where nobody wrote it down.
        observed: The finding's values; empty for a rule's page.
    """
    change = meta.remedy
    record = _yolo_again(command, change, observed) or list(ANY_SCRIPT)
    if change is not None:
        at = record.index(f"--out={AFTER}")
        record[at:at] = [word for word in change.record if word not in record]
    is_note = meta.kind is FindingKind.NOTE
    return [
        f"traceanalyzer {' '.join(record)}",
        # exit code 0 says that the rule no longer fires
        f"traceanalyzer analyze {AFTER} --select {meta.code}" + ("" if is_note else " --fail-on low"),
        # what was changed may be a setting that recordings to be compared usually have to share
        f"traceanalyzer compare BEFORE {AFTER} --allow-different",
    ]


def _yolo_again(command: object, change: Remedy | None, observed: Mapping[str, Scalar]) -> list[str]:
    """Return the words of the command that recorded a YOLO run, with the change made; empty where it is not known."""
    words = command.split() if isinstance(command, str) else []
    if words[:2] != ["record", "yolo"] or not all(_WORD.fullmatch(word) for word in words[2:]):
        return []
    kept = [word for word in words[2:] if word.partition("=")[0] not in _DROPPED]
    if change is not None:
        numbers = _numbers(change, observed)
        for option in change.yolo:
            new = Template(option).substitute(numbers)
            kept = [word for word in kept if _setting(word) != _setting(new)]
            kept.append(new)
    return ["record", "yolo", *kept, f"--out={AFTER}"]


def _setting(word: str) -> str:
    """Return what a word of a command line sets: ``--workers``, ``--set=mixup``, ``--amp`` for ``--no-amp``."""
    option, _, value = word.partition("=")
    if option == "--set":
        return f"{option}={value.partition('=')[0]}"
    return option.replace("--no-", "--", 1)


def _numbers(change: Remedy, observed: Mapping[str, Scalar]) -> dict[str, str]:
    found = {name: value for name, value in observed.items() if isinstance(value, int) and not isinstance(value, bool)}
    return {name: str(found.get(name, value)) for name, value in change.stand_ins.items()}
