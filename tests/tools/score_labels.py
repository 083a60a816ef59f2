"""How well the rules name the true cause of labelled recordings: precision, recall and rank.

    python -m tests.tools.score_labels [FOLDER]

Labels say of each recording which fault must be named first (``expected``), which others are true as well
(``allowed``), which would be false alarms (``forbidden``; ``*`` stands for all that are neither), and which limiter
must be among those named (null where none may be). FOLDER (``sample_traces/labelled`` by default) holds run folders and
``labels.json``; the recordings given from elsewhere are labelled in ``tests/rules/labels/given.json`` and scored with
them where they are at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

import traceanalyzer
from traceanalyzer.results.vocabulary import FindingKind, Status

ROOT = Path(__file__).resolve().parents[2]
LABELLED = ROOT / "sample_traces" / "labelled"
GIVEN = ROOT / "tests" / "rules" / "labels" / "given.json"
SHARED = ROOT.parent / "shared"


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of one recording.

    Attributes:
        cause: In words.
        expected: Code of the fault to name first; None where nothing is wrong.
        allowed: Codes of faults that are true as well.
        forbidden: Codes (or ``*``) that would be false alarms.
        limiter: Code of the limiter to name; None where none may be.
    """

    cause: str
    expected: str | None
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...]
    limiter: str | None


@dataclass(frozen=True)
class Score:
    """What was said about one recording.

    Attributes:
        name: Recording.
        label: What is true of it.
        faults: Codes of the faults that fired, in the document's order, each once.
        limiters: Codes of the limiters that fired.
    """

    name: str
    label: Label
    faults: tuple[str, ...]
    limiters: tuple[str, ...]

    @property
    def rank(self) -> int | None:
        """Place of the true cause among the faults, from 1; None where it was not named (or there is none)."""
        return self.faults.index(self.label.expected) + 1 if self.label.expected in self.faults else None

    @property
    def false_alarms(self) -> tuple[str, ...]:
        """Faults that fired and must not."""
        true = {self.label.expected, *self.label.allowed}
        forbidden = set(self.label.forbidden)
        return tuple(f for f in self.faults if f in forbidden or ("*" in forbidden and f not in true))

    @property
    def names_limiter(self) -> bool:
        """Whether the limiter was named, or none where there is none."""
        return self.label.limiter in self.limiters if self.label.limiter else not self.limiters

    @property
    def is_right(self) -> bool:
        """Whether the true cause comes first, nothing false is said and the limiter is right."""
        first = self.rank == 1 if self.label.expected else True
        return first and not self.false_alarms and self.names_limiter


@dataclass(frozen=True)
class Totals:
    """Scores of many recordings.

    Attributes:
        recordings: How many.
        with_cause: How many have a true fault.
        healthy: How many have neither fault nor limiter.
        named: True causes among the faults.
        first: True causes named first.
        alarms: False alarms.
        faults: Faults named in all.
    """

    recordings: int
    with_cause: int
    healthy: int
    named: int
    first: int
    alarms: int
    faults: int

    def __str__(self) -> str:
        precision = (self.faults - self.alarms) / self.faults if self.faults else 1.0
        recall = self.named / self.with_cause if self.with_cause else 1.0
        return (
            f"{self.recordings} recordings, {self.with_cause} with a true cause, {self.healthy} healthy: precision "
            f"{self.faults - self.alarms}/{self.faults} ({precision:.0%}), recall {self.named}/{self.with_cause} "
            f"({recall:.0%}), true cause first {self.first}/{self.with_cause}"
        )


def labels(path: Path) -> dict[str, Label]:
    """Read a file of labels."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Label])


def score_one(path: Path, name: str, label: Label) -> Score:
    """Analyse one recording."""
    firing = [f for f in traceanalyzer.analyze(path).findings if f.status is Status.FAIL]

    def codes(kind: FindingKind) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f.code for f in firing if f.kind is kind))

    return Score(name, label, codes(FindingKind.FAULT), codes(FindingKind.LIMITER))


def score(folder: Path) -> list[Score]:
    """Analyse every labelled recording of a folder."""
    return [score_one(folder / name, name, label) for name, label in labels(folder / "labels.json").items()]


def score_given() -> list[Score]:
    """Analyse the labelled recordings from elsewhere, as far as they are at hand."""
    return [score_one(SHARED / name, name, label) for name, label in labels(GIVEN).items() if (SHARED / name).exists()]


def totals(scores: Iterable[Score]) -> Totals:
    """Add scores up."""
    every = list(scores)
    return Totals(
        recordings=len(every),
        with_cause=sum(s.label.expected is not None for s in every),
        healthy=sum(s.label.expected is None and s.label.limiter is None for s in every),
        named=sum(s.rank is not None for s in every),
        first=sum(s.rank == 1 for s in every),
        alarms=sum(len(s.false_alarms) for s in every),
        faults=sum(len(s.faults) for s in every),
    )


def main() -> int:
    """Print the table; 1 where an answer is wrong."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else LABELLED
    scores = score(folder) + (score_given() if folder == LABELLED else [])
    print(f"{'recording':54} {'expected':8} {'rank':4} {'faults named':20} limiters")
    for s in scores:
        rank = "" if s.rank is None else str(s.rank)
        mark = "" if s.is_right else "  WRONG"
        expected = s.label.expected or "-"
        print(f"{s.name:54} {expected:8} {rank:4} {' '.join(s.faults) or '-':20} {' '.join(s.limiters) or '-'}{mark}")
    print(totals(scores))
    return 0 if all(s.is_right for s in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
