"""What workers spend a batch on, from the recorder's numbers."""

from __future__ import annotations

import json

import pytest

from tests.tools.score_labels import LABELLED
from traceanalyzer.measures.worker_stages import Stage, measure_worker_stages, stage_of


def block(batches: int, worker_ns: int, **parts: tuple[int, int]) -> dict[str, object]:
    return {
        "batches": batches,
        "worker_ns": worker_ns,
        "parts": {name: {"ns": ns, "calls": calls} for name, (ns, calls) in parts.items()},
    }


def test_stretches_are_taken_together_and_parts_scaled_to_the_mean_batch() -> None:
    found = measure_worker_stages(
        {
            "loader": {
                "unprofiled": block(3, 300, load_image=(60, 12), Mosaic=(20, 3)),
                "recorded": block(1, 100, load_image=(20, 4), collate=(100, 1)),
            }
        }
    )
    assert found is not None
    assert (found.batches, found.batch_ns) == (4, 100.0)
    # 80, 20 and 100 of 200 ns timed
    assert [(p.name, p.ns) for p in found.parts] == [("collate", 50.0), ("load_image", 40.0), ("Mosaic", 10.0)]
    assert found.stage_ns(Stage.READ) == 40.0
    assert found.parts[1].ns_per_call == pytest.approx(80 / 16)


@pytest.mark.parametrize(
    ("part", "stage"),
    [
        ("load_image", Stage.READ),
        ("RandomPerspective", Stage.AUGMENT),
        ("Format", Stage.FORMAT),
        ("collate", Stage.COLLATE),
        ("pin", Stage.PIN),
        ("tokenize", Stage.OTHER),
    ],
)
def test_a_part_is_known_by_its_name(part: str, stage: Stage) -> None:
    assert stage_of(part) is stage


@pytest.mark.parametrize("recorder", [{}, {"loader": None}, {"loader": {"recorded": block(0, 0)}}, {"loader": []}])
def test_without_timed_batches_nothing_is_known(recorder: dict[str, object]) -> None:
    assert measure_worker_stages(recorder) is None


def test_the_recorders_own_file_is_understood() -> None:
    run = json.loads((LABELLED / "heavy-mosaic" / "run.json").read_text(encoding="utf-8"))
    found = measure_worker_stages(run)
    assert found is not None
    blocks = run["passes"][0]["loader"].values()
    assert found.batches == sum(b["batches"] for b in blocks) == 27
    assert found.batch_ns == sum(b["worker_ns"] for b in blocks) / 27
    assert sum(p.ns for p in found.parts) == pytest.approx(found.batch_ns)
    assert found.parts[0].name == "RandomPerspective"
