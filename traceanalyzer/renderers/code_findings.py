"""Findings as remarks on lines of code: as SARIF for code scanning and editors, and as GitHub annotations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from traceanalyzer.renderers.github import annotation
from traceanalyzer.renderers.messages import language
from traceanalyzer.renderers.text import saving_text, visible
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.answer import firing
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.places import code_place, code_places
from traceanalyzer.results.vocabulary import FindingKind, Severity

# further lines named beside the first; more would say nothing new
MOST_RELATED = 8
ROOT = "SRCROOT"
_LEVELS = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}
_LANGUAGES = {"en": "en-US", "zh": "zh-CN"}

# turns a file as a recording names it into its path in the repository; None for a file that is not in it
Relative = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the repository.

    Attributes:
        path: Path relative to the repository, with forward slashes.
        number: Line, counted from 1.
        function: Function around it, or empty.
    """

    path: str
    number: int
    function: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding that fires, ready for either format.

    Attributes:
        finding: The finding.
        level: ``error``, ``warning`` or ``note``.
        text: What is wrong, what it costs, what to do first.
        lines: Lines of the repository it concerns, most time first; may be empty.
    """

    finding: Finding
    level: str
    text: str
    lines: tuple[Line, ...]


def remarks(analysis: Analysis, relative: Relative) -> list[Remark]:
    """Return every finding that fires, faults first, with its lines in the repository.

    Args:
        analysis: The document.
        relative: Finds a recorded file in the repository.
    """
    findings = firing(analysis, FindingKind.FAULT) + firing(analysis, FindingKind.LIMITER)
    return [_remark(finding, relative, several=len(analysis.ranks) > 1) for finding in findings]


def _remark(finding: Finding, relative: Relative, *, several: bool) -> Remark:
    # what bounds the step is no mistake of a line
    level = _LEVELS.get(finding.severity, "note") if finding.severity is not None else "note"
    if finding.kind is FindingKind.LIMITER:
        level = "note"
    saving = saving_text(finding)
    parts = [
        f"{visible(finding.title).rstrip('.')}.",
        f"Rank {finding.rank}." if several else "",
        visible(finding.message),
        f"Removing it wins {saving} per step ({finding.saving_per_step_ns.basis.value})." if saving else "",
        f"Do this first: {visible(finding.fix[0])}" if finding.fix else "",
    ]
    return Remark(finding, level, " ".join(part for part in parts if part), tuple(_lines(finding, relative)))


def _lines(finding: Finding, relative: Relative) -> list[Line]:
    found = []
    for text in code_places(finding):
        place = code_place(text)
        path = relative(place.file) if place is not None else None
        if place is not None and path is not None:
            found.append(Line(path, place.line, visible(place.function)))
    return found


def render_annotations(analysis: Analysis, relative: Relative) -> str:
    """Write a GitHub annotation per finding that fires: on its line where that is known, else on the run.

    Args:
        analysis: The document.
        relative: Finds a recorded file in the repository.

    Returns:
        Workflow commands, one a line; a single notice where nothing fires.
    """
    lines = [
        annotation(
            "notice" if remark.level == "note" else remark.level,
            visible(f"{remark.finding.code} {remark.finding.slug}"),
            remark.text,
            file=visible(remark.lines[0].path) if remark.lines else None,
            line=remark.lines[0].number if remark.lines else None,
        )
        for remark in remarks(analysis, relative)
    ]
    return "\n".join(lines or [annotation("notice", "traceanalyzer", "No finding fires.")]) + "\n"


def render_sarif(analysis: Analysis, relative: Relative) -> str:
    """Write SARIF 2.1.0: a result per finding with a line in the repository, a notification for each of the others.

    Args:
        analysis: The document.
        relative: Finds a recorded file in the repository.

    Returns:
        JSON, ending in a newline; equal documents give equal text.
    """
    all_remarks = remarks(analysis, relative)
    rules = {remark.finding.code: remark for remark in reversed(all_remarks)}
    order = sorted(rules)
    placed = [remark for remark in all_remarks if remark.lines]
    run = {
        "tool": {
            "driver": {
                "name": visible(analysis.tool.name),
                "version": visible(analysis.tool.version),
                "rules": [_rule(rules[code]) for code in order],
            }
        },
        "language": _LANGUAGES[language()],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository of the recorded program."}}},
        # a viewer of code cannot show what has no line, and some refuse it; it is said all the same
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "descriptor": {"id": visible(remark.finding.code)},
                        "associatedRule": _reference(remark, order),
                        "level": remark.level,
                        "message": {"text": remark.text},
                    }
                    for remark in all_remarks
                    if not remark.lines
                ],
            }
        ],
        "results": [_result(remark, order) for remark in placed],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _rule(remark: Remark) -> dict[str, Any]:
    finding = remark.finding
    steps = [visible(step) for step in finding.fix]
    return {
        "id": visible(finding.code),
        "name": visible(finding.slug),
        "shortDescription": {"text": visible(finding.title)},
        "help": {"text": " ".join([*steps, f"More: traceanalyzer explain {visible(finding.code)}"])},
        "defaultConfiguration": {"level": remark.level},
        "properties": {"tags": ["performance", "gpu"]},
    }


def _reference(remark: Remark, order: Sequence[str]) -> dict[str, Any]:
    return {"id": visible(remark.finding.code), "index": order.index(remark.finding.code)}


def _result(remark: Remark, order: Sequence[str]) -> dict[str, Any]:
    finding = remark.finding
    first, *others = remark.lines
    result: dict[str, Any] = {
        "ruleId": visible(finding.code),
        "ruleIndex": order.index(finding.code),
        "level": remark.level,
        "message": {"text": remark.text},
        "locations": [_location(first)],
        # the same finding in the same function stays the same alert when lines move
        "partialFingerprints": {
            "findingFileFunction/v1": hashlib.sha256(
                "\0".join((finding.code, str(finding.rank), first.path, first.function)).encode()
            ).hexdigest()
        },
        "properties": {
            "severity": finding.severity.value if finding.severity is not None else None,
            "confidence": finding.confidence,
            "saving_per_step_ns": finding.saving_per_step_ns.likely,
            "saving_basis": finding.saving_per_step_ns.basis.value,
        },
    }
    if others:
        result["relatedLocations"] = [
            {"id": number, **_location(line), "message": {"text": "also here"}}
            for number, line in enumerate(others[:MOST_RELATED], start=1)
        ]
    return result


def _location(line: Line) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(line.path), "uriBaseId": ROOT},
            "region": {"startLine": line.number},
        }
    }
    if line.function:
        location["logicalLocations"] = [{"name": line.function, "kind": "function"}]
    return location
