"""How well the rules name the true cause of labelled recordings: precision, recall and rank.

    python -m tests.tools.score_labels [FOLDER]

FOLDER (``sample_traces/labelled`` by default) holds run folders and ``labels.json``: for each the faults that must be
found, the true cause first, and the limiter that must be named.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import traceanalyzer
from traceanalyzer.results.vocabulary import FindingKind, Status

LABELLED = Path(__file__).resolve().parents[2] / "sample_traces" / "labelled"


@dataclass(frozen=True)
class Score:
    """What was said about one recording.

    Attributes:
        name: Folder.
        expected: Codes of the faults that are really there, the true cause first.
        faults: Codes of the faults that fired, in the document's order.
        expected_limiter: Code of the limiter that must be named, or None where none may fire.
        limiters: Codes of the limiters that fired.
    """

    name: str
    expected: tuple[str, ...]
    faults: tuple[str, ...]
    expected_limiter: str | None
    limiters: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether exactly the true faults fired, in order, and the limiter is named (or none fires)."""
        named = self.expected_limiter in self.limiters if self.expected_limiter else not self.limiters
        return self.faults == self.expected and named


def score(folder: Path) -> list[Score]:
    """Analyse every labelled recording of a folder."""
    scores = []
    for name, label in json.loads((folder / "labels.json").read_text(encoding="utf-8")).items():
        findings = [f for f in traceanalyzer.analyze(folder / name).findings if f.status is Status.FAIL]
        scores.append(
            Score(
                name,
                tuple(label["faults"]),
                tuple(f.code for f in findings if f.kind is FindingKind.FAULT),
                label["limiter"],
                tuple(f.code for f in findings if f.kind is FindingKind.LIMITER),
            )
        )
    return scores


def main() -> int:
    """Print the table; 1 where an answer is wrong."""
    scores = score(Path(sys.argv[1]) if len(sys.argv) > 1 else LABELLED)
    print(f"{'recording':28} {'expected':10} {'faults found':20} limiters")
    for s in scores:
        mark = "" if s.is_right else "  WRONG"
        print(f"{s.name:28} {' '.join(s.expected):10} {' '.join(s.faults):20} {' '.join(s.limiters)}{mark}")
    true = sum(len(set(s.expected) & set(s.faults)) for s in scores)
    found, there = sum(len(s.faults) for s in scores), sum(len(s.expected) for s in scores)
    first = sum(bool(s.expected) and s.faults[:1] == s.expected[:1] for s in scores)
    labelled = sum(bool(s.expected) for s in scores)
    print(f"precision {true}/{found}, recall {true}/{there}, true cause first {first}/{labelled}")
    return 0 if all(s.is_right for s in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
