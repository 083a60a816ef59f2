"""On every labelled recording the true cause is the first fault, and nothing else is called one."""

from __future__ import annotations

import json

import pytest

from tests.tools.score_labels import LABELLED, Score, score
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules import RULES

LABELS = json.loads((LABELLED / "labels.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {s.name: s for s in score(LABELLED)}


def test_every_folder_has_a_label_and_every_label_a_folder() -> None:
    assert {p.name for p in LABELLED.iterdir() if p.is_dir()} == set(LABELS)


def test_labels_name_faults_that_exist() -> None:
    faults = {rule.META.code for rule in RULES if rule.META.kind is FindingKind.FAULT}
    assert {code for label in LABELS.values() for code in label["faults"]} <= faults


@pytest.mark.parametrize("name", sorted(LABELS))
def test_the_true_cause_is_the_only_fault(scores: dict[str, Score], name: str) -> None:
    assert scores[name].faults == tuple(LABELS[name]["faults"])


@pytest.mark.parametrize("name", sorted(LABELS))
def test_the_limiter_is_named_or_absent(scores: dict[str, Score], name: str) -> None:
    limiter = LABELS[name]["limiter"]
    assert (limiter in scores[name].limiters) if limiter else (scores[name].limiters == ())


def test_recordings_are_small() -> None:
    for path in LABELLED.rglob("*.gz"):
        assert path.stat().st_size <= 2 * 1024**2, path
