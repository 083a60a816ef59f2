"""What every rule has: metadata, thresholds and a check; and helpers to state a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol

from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The change that removes a cause, as someone would write it; ``remedies.py`` fits it to a recording.

    Snippets and options may hold ``$name``: an observed number of the finding goes there.

    Attributes:
        settings: What is set, in the words of the code that is changed.
        before: Code with the cause.
        after: The same without it.
        yolo: Options of ``record yolo`` that make the change; each replaces one of the same name.
        record: Options of ``record`` without which the rule would see nothing.
        stand_ins: What stands for ``$name`` where nothing was observed.
    """

    settings: tuple[str, ...]
    before: str
    after: str
    yolo: tuple[str, ...] = ()
    record: tuple[str, ...] = ()
    stand_ins: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Facts about a rule that do not depend on a recording.

    Attributes:
        code: Stable code.
        slug: Readable name; the rule's file name with dashes.
        kind: Fault, limiter or note.
        category: input, launch, copy, memory, sync, compute, communication, life cycle or recording.
        fail_title: Title when it fires.
        pass_title: Title when it does not.
        since: First version that has it.
        remedy: The change that removes the cause; None where that depends on what else is found.
    """

    code: str
    slug: str
    kind: FindingKind
    category: str
    fail_title: str
    pass_title: str
    since: str = "0.1"
    remedy: Remedy | None = None


class RuleModule(Protocol):
    """The shape of a rule's module; its docstring is its documentation page."""

    __doc__: str | None
    META: Meta
    Thresholds: Callable[[], Any]

    def check(self, measures: Measures, thresholds: Any) -> Finding:
        """Judge one rank."""


# share of the mean step at which a finding is high or medium (DEFINITIONS, Findings)
HIGH_SHARE = 0.20
MEDIUM_SHARE = 0.05
FLOOR_SHARE = 0.01
FLOOR_NS = 100_000


def floor_ns(mean_step_ns: float) -> int:
    """Saving below which nothing fires: the larger of 1 % of the mean step and 0.1 ms."""
    return max(round(FLOOR_SHARE * mean_step_ns), FLOOR_NS)


def severity_of(saving_ns: float, mean_step_ns: float) -> Severity:
    """Grade a saving against the mean step."""
    share = saving_ns / mean_step_ns if mean_step_ns > 0 else 0.0
    if share >= HIGH_SHARE:
        return Severity.HIGH
    if share >= MEDIUM_SHARE:
        return Severity.MEDIUM
    return Severity.LOW


def thresholds_dict(thresholds: Any) -> dict[str, Scalar]:
    """Turn a thresholds dataclass into the document's mapping."""
    if not is_dataclass(thresholds):
        raise TypeError("thresholds must be a dataclass")
    return {f.name: getattr(thresholds, f.name) for f in fields(thresholds)}
