"""One rule's outcome on one rank."""

from __future__ import annotations

import msgspec

from traceanalyzer.results.vocabulary import Basis, FindingKind, Severity, Status

Scalar = int | float | str | bool | None


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Fall in mean wall time per step if the cause is removed.

    Attributes:
        low: Pessimistic, ns per step; None where nothing is known.
        likely: Best estimate, ns per step.
        high: Optimistic, ns per step.
        basis: How it is known, best first: measured, replay, bound, none.
    """

    low: int | None = None
    likely: int | None = None
    high: int | None = None
    basis: Basis = Basis.NONE


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that does not come every step.

    Attributes:
        ns: Time one occurrence costs, ns.
        per_1000_steps: How often it comes in the recording, per thousand steps.
    """

    ns: int | None = None
    per_1000_steps: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the recording that shows the cause.

    Attributes:
        start_ns: Start, relative to the rank's origin.
        end_ns: End.
        thread: Thread id (``tid``) of the host thread, or None.
        stream: Stream id, or None.
        what: What happened there.
        where: Code location ``file.py:12`` or the name of the innermost range, or None.
    """

    start_ns: int
    end_ns: int
    what: str
    thread: int | None = None
    stream: int | None = None
    where: str | None = None


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change that removes the cause, and how to check that it did.

    Attributes:
        settings: What is set, in the words of the code that is changed; empty where it depends on another finding.
        where: Line of code with most of the finding's time, ``file.py(12): function``; None where none was recorded.
        before: Code with the cause, an example; empty where there is no typical one.
        after: The same code without it.
        verify: Commands, in order. ``BEFORE`` stands for this recording, ``AFTER`` for the new one.
    """

    settings: list[str] = []
    where: str | None = None
    before: str = ""
    after: str = ""
    verify: list[str] = []


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule concluded.

    Attributes:
        code: Stable code, for example ``TA301``.
        slug: Stable readable name, equal to the rule's file name with dashes.
        kind: Fault, limiter or note.
        status: Outcome; "fires" means ``fail``.
        title: One line; differs between pass and fail.
        message: A few sentences with the numbers.
        rank: Rank it concerns.
        device_id: Device it concerns, or None for the whole rank.
        severity: None unless it fires.
        confidence: 0 to 1.
        observed: Measured values; names carry units.
        thresholds: Thresholds used; names carry units.
        saving_per_step_ns: What removing it would win.
        episode: Cost per occurrence of causes that are not in every step.
        evidence: At most a few dozen places.
        evidence_count: How many places there are in all.
        fix: Steps to take, most useful first.
        remedy: The change as code, and how to check it; None unless the finding was raised.
    """

    code: str
    slug: str
    kind: FindingKind
    status: Status
    title: str
    message: str
    rank: int = 0
    device_id: int | None = None
    severity: Severity | None = None
    confidence: float = 1.0
    observed: dict[str, Scalar] = {}
    thresholds: dict[str, Scalar] = {}
    saving_per_step_ns: Saving = Saving()
    episode: Episode = Episode()
    evidence: list[Evidence] = []
    evidence_count: int = 0
    fix: list[str] = []
    remedy: Remedy | None = None
