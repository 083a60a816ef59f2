"""The Comparison document: two sets of runs, every test with its inputs, and the verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from traceanalyzer.results.analysis import Tool

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "traceanalyzer.comparison/1"


class Verdict(StrEnum):
    """Outcome of a test or of the whole comparison."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no change"
    INCONCLUSIVE = "inconclusive"


class Family(StrEnum):
    """Group of tests that share one multiplicity correction, in the order in which they are reported."""

    COUNTER = "counter"
    PRIMARY = "primary"
    CAUSE = "idle cause"
    KERNEL_FAMILY = "kernel family"
    POSITION = "position"
    SPIKE = "spike"
    ADVISORY = "advisory"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between the two sides.

    Attributes:
        setting: Name of the setting.
        base: Value on the base side, as text.
        candidate: Value on the candidate side.
        stops: Whether it stops the comparison unless allowed.
    """

    setting: str
    base: str
    candidate: str
    stops: bool


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of the comparison.

    Attributes:
        labels: Path or name of each run.
        steady_steps: Steady steps used of each run.
        dropped_steps: Steps left out of each run (warm-up, validation, checkpoint, epoch edge, cut).
    """

    labels: list[str]
    steady_steps: list[int]
    dropped_steps: list[int]


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """One test with everything needed to check it by hand.

    Attributes:
        family: Group it belongs to.
        name: Metric, counter, kernel family or position.
        unit: ``ns``, ``bytes``, ``count`` or ``steps``.
        base: Level on the base side (mean per step; median at positions).
        candidate: Level on the candidate side.
        change: Relative change after adjustment, 0.05 for +5 %; null where the base is 0.
        low: Lower end of the 98 % interval of the relative change; null where the test has none.
        high: Upper end.
        statistic: Value of the test statistic; null for exact comparisons.
        method: What was done, in words.
        degrees_of_freedom: Of a t test; null otherwise.
        p: One-sided p of "worse", before correction; null for exact comparisons.
        p_adjusted: After Holm's correction within the family.
        floor_relative: Smallest relative change that counts.
        floor_absolute: Smallest absolute change that counts, in ``unit``.
        samples_base: Samples on the base side.
        samples_candidate: Samples on the candidate side.
        runs_needed: Runs a side for 1 % false alarms and 95 % power at the floor; null when not computed.
        verdict: Outcome.
        detail: One sentence for the reader.
        position: Place in the base's launch sequence, from 0, of a test of one position; null otherwise.
        rank: Rank it is of, where several were compared: the worst in ``Comparison.tests``. Null otherwise.
    """

    family: Family
    name: str
    unit: str
    base: float | None
    candidate: float | None
    verdict: Verdict
    method: str
    detail: str
    change: float | None = None
    low: float | None = None
    high: float | None = None
    statistic: float | None = None
    degrees_of_freedom: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    floor_relative: float | None = None
    floor_absolute: float | None = None
    samples_base: int = 0
    samples_candidate: int = 0
    runs_needed: int | None = None
    position: int | None = None
    rank: int | None = None


class HostFactor(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the two hosts, from the length of name-aligned launch calls.

    Attributes:
        ratio: Candidate's launch-call time over the base's; 1.05 is a host 5 % slower. Null when nothing aligns.
        slope: Slope of log idle on log host factor that was used.
        positions: Launch positions used.
        is_other_host: The sides differ by more than 25 %, so idle times cannot be compared.
        note: One sentence for the reader.
    """

    ratio: float | None
    slope: float
    positions: int
    is_other_host: bool
    note: str


class BudgetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """An absolute limit on the candidate.

    Attributes:
        expression: As the user wrote it.
        value: Measured value in ns, percent, bytes or counts per step; null where it could not be measured.
        met: Whether the limit holds; null when the value is.
        measured: The value as readers see it.
    """

    expression: str
    value: float | None
    met: bool | None
    measured: str | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        tool: Program that made it.
        verdict: Worst outcome over the deciding tests.
        summary: The first sentence for a reader.
        base: Base side.
        candidate: Candidate side.
        differences: Settings that differ, shown first.
        host: Host factor.
        tests: Every test, regressions first, then by family and size.
        budgets: Absolute limits.
        notes: Sentences a reader should see (few steps, mixed formats …).
        ranks: Ranks compared, each with the same number on the other side.
        other_ranks: The tests of the ranks that are not the worst; none where one rank was compared.
    """

    tool: Tool
    verdict: Verdict
    summary: str
    base: Side
    candidate: Side
    differences: list[Difference]
    host: HostFactor
    tests: list[Test]
    budgets: list[BudgetCheck]
    notes: list[str]
    ranks: list[int] = []
    other_ranks: list[Test] = []
    schema: str = SCHEMA

    @property
    def regressions(self) -> list[Test]:
        """Deciding tests that found a regression, most important first."""
        return [t for t in self.tests if t.verdict is Verdict.REGRESSION and t.family is not Family.ADVISORY]

    def frame(self) -> pd.DataFrame:
        """One row per test, in the document's order; every attribute of ``Test`` is a column."""
        from traceanalyzer.results.frames import tests_frame

        return tests_frame(self)

    def to_json(self) -> bytes:
        """Encode as UTF-8 JSON; equal input gives equal bytes."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Comparison:
        """Decode and validate a document.

        Raises:
            msgspec.ValidationError: The text is not a Comparison of this schema.
        """
        return msgspec.json.decode(text, type=cls)
