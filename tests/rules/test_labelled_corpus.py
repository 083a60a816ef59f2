"""On every labelled recording the true cause is the first fault, and nothing false is called one."""

from __future__ import annotations

import gzip
import pickle

import pytest

import traceanalyzer
from tests.shared_data import shared
from tests.tools.score_labels import GIVEN, LABELLED, Label, Score, labels, score, score_one, totals
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules import RULES

MADE = labels(LABELLED / "labels.json")
FROM_ELSEWHERE = labels(GIVEN)
MIB = 1024**2


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {s.name: s for s in score(LABELLED)}


def test_every_folder_has_a_label_and_every_label_a_folder() -> None:
    assert {p.name for p in LABELLED.iterdir() if p.is_dir()} == set(MADE)


def test_labels_name_rules_that_exist() -> None:
    kinds = {rule.META.code: rule.META.kind for rule in RULES}
    for label in (*MADE.values(), *FROM_ELSEWHERE.values()):
        faults = {label.expected, *label.allowed, *label.forbidden} - {None, "*"}
        assert all(kinds[code] is FindingKind.FAULT for code in faults if code)
        assert label.limiter is None or kinds[label.limiter] is FindingKind.LIMITER
        assert label.expected not in label.allowed


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_true_cause_of_a_made_recording_comes_first_and_nothing_false_is_said(
    scores: dict[str, Score], name: str
) -> None:
    found = scores[name]
    assert found.rank == (1 if found.label.expected else None)
    assert found.false_alarms == ()
    assert found.names_limiter


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(FROM_ELSEWHERE))
def test_the_true_cause_of_a_given_recording_comes_first_and_nothing_false_is_said(name: str) -> None:
    found = score_one(shared(name), name, FROM_ELSEWHERE[name])
    assert found.rank == (1 if found.label.expected else None)
    assert found.false_alarms == ()
    assert found.names_limiter


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    every = (*MADE.values(), *FROM_ELSEWHERE.values())
    assert sum(label.expected is not None for label in every) >= 20
    assert sum(label.expected is None and label.limiter is None for label in every) >= 4
    causes = {label.expected for label in every} - {None}
    assert len(causes) >= 15
    # the same fault on both profilers
    for fault in ("single-process-loader", "empty-cache"):
        assert MADE[fault].expected == MADE[f"nsys-{fault}"].expected


def test_a_score_counts_what_it_says() -> None:
    label = Label("c", "TA101", ("TA301",), ("*",), None)
    right = Score("a", label, ("TA101", "TA301"), ())
    late = Score("b", label, ("TA402", "TA101"), ())
    healthy = Score("c", Label("nothing", None, (), ("*",), None), (), ())
    assert (right.rank, right.false_alarms, right.is_right) == (1, (), True)
    assert (late.rank, late.false_alarms, late.is_right) == (2, ("TA402",), False)
    found = totals([right, late, healthy])
    assert (found.with_cause, found.healthy, found.named, found.first, found.alarms, found.faults) == (2, 1, 2, 1, 1, 4)
    assert "precision 3/4 (75%), recall 2/2 (100%), true cause first 1/2" in str(found)


def test_recordings_are_small() -> None:
    for path in LABELLED.rglob("*.gz"):
        assert path.stat().st_size <= 2 * MIB, path


def _counted(name: str) -> dict[str, int]:
    """The allocator's own counters, from the bare pickle."""
    with gzip.open(LABELLED / name / "memory_snapshot.pickle.gz") as file:
        counters: dict[str, int] = pickle.load(file)["device_counters"][0]
    return counters


def test_retries_under_a_memory_cap_are_counted_and_the_cap_is_named() -> None:
    assert (_counted("memory-cap")["num_alloc_retries"], _counted("memory-cap")["limit_bytes"]) == (16, 19_303_628_800)
    (finding,) = [f for f in traceanalyzer.analyze(LABELLED / "memory-cap").findings if f.code == "TA403"]
    assert finding.observed["retries_since_start"] == 16
    assert finding.observed["limit_bytes"] == 19_303_628_800
    # three of them in the history, one a recorded step
    assert finding.message.startswith("3 times an allocation fitted only after everything cached was given back")
    assert "counts 13 more" in finding.message
    assert "at most 18.0 GiB of the device's 140 GiB" in finding.message


def test_memory_in_pieces_under_a_cap_would_have_been_enough() -> None:
    counted = _counted("fragmentation")
    assert (counted["num_alloc_retries"], counted["num_ooms"]) == (18, 18)
    document = traceanalyzer.analyze(LABELLED / "fragmentation")
    (finding,) = [f for f in document.findings if f.code == "TA404"]
    assert finding.observed["failed_for_pieces"] == 3
    memory = document.ranks[0].memory
    assert memory is not None
    for error in memory.devices[0].oom_events:
        # without holes it fits below the cap; with them it does not
        assert (
            error.active_bytes + error.asked_bytes <= counted["limit_bytes"] < error.reserved_bytes + error.asked_bytes
        )
        assert "in pieces too small" in error.reason
