"""TA105."""

from __future__ import annotations

from tests.builders import TraceBuilder
from tests.rules.support import LENGTH, empty, healthy, judge, likely_us, loop, work
from tests.rules.test_loader_too_slow import WORKERS
from traceanalyzer.measures import Measures
from traceanalyzer.results.vocabulary import Status
from traceanalyzer.rules import augmentation_heavy as rule
from traceanalyzer.rules.run import check_all

IMAGES = 16
MS = 1_000_000


def starved(wait_us: float, per_image_ms: dict[str, float], workers: int = 2) -> Measures:
    """Every step waits; a batch's parts take the given time per image."""

    def step(b: TraceBuilder, _number: int, at: float) -> None:
        b.annotation(WORKERS, at, at + wait_us)
        work(b, at + wait_us, at + wait_us + 5, at + LENGTH)

    parts = {name: {"ns": round(ms * IMAGES * MS), "calls": IMAGES} for name, ms in per_image_ms.items()}
    worker_ns = sum(part["ns"] for part in parts.values())
    return loop(
        step,
        configuration={"batch": IMAGES, "workers": workers, "imgsz": 640},
        loader={"recorded": {"batches": 1, "worker_ns": worker_ns, "parts": parts}},
    )


def fires() -> Measures:
    """18 ms of transforms and 4 ms of reading per image, as a second mosaic with MixUp takes."""
    return starved(4_000, {"RandomPerspective": 9, "MixUp": 6, "RandomHSV": 3, "load_image": 4})


def quiet() -> Measures:
    """8 ms of transforms: what is usual."""
    return starved(4_000, {"RandomPerspective": 4, "RandomHSV": 3, "Mosaic": 1, "load_image": 2})


def test_transforms_are_named_with_their_time_and_the_wait_is_what_can_be_won() -> None:
    finding = judge(rule, fires())
    assert finding.status is Status.FAIL
    # 9 ms too much for each of 16 images, far more than the shortage of 2 x 4 ms
    assert likely_us(finding) == 4_000
    assert finding.observed["augmentation_share_of_batch"] == round(18 / 22, 4)
    assert finding.observed["augmentation_per_image_ns"] == 18 * MS
    assert finding.fix[0].startswith("Use RandomPerspective less")


def test_only_what_exceeds_the_usual_is_won() -> None:
    # 5 ms above the usual of 9 for 16 images are 80 ms; 40 workers short of 4 ms each lack 160 ms
    finding = judge(rule, starved(4_000, {"RandomPerspective": 14, "load_image": 2}, workers=40))
    assert likely_us(finding) == 2_000
    assert finding.saving_per_step_ns.high == 4_000_000


def test_usual_augmentation_is_quiet() -> None:
    assert judge(rule, quiet()).status is Status.PASS


def test_a_mosaic_that_waits_for_its_images_is_reading() -> None:
    finding = judge(rule, starved(4_000, {"Mosaic": 77, "RandomPerspective": 4, "load_image": 2}))
    assert finding.status is Status.PASS


def test_smaller_images_are_expected_to_take_less() -> None:
    measures = fires()
    configuration = measures.recorder["configuration"]
    assert isinstance(configuration, dict)
    configuration["imgsz"] = 1280
    # four times the pixels, four times the usual time: 18 ms is little
    assert judge(rule, measures).status is Status.PASS


def test_the_slow_workers_are_not_reported_beside_it() -> None:
    assert [f.code for f in check_all(fires()) if f.status is Status.FAIL] == ["TA105"]


def test_it_needs_timed_workers() -> None:
    assert judge(rule, healthy()).status is Status.NOT_APPLICABLE
    assert judge(rule, empty()).status is Status.NOT_APPLICABLE


def test_a_batch_size_left_to_the_trainer_is_no_batch_size() -> None:
    measures = fires()
    configuration = measures.recorder["configuration"]
    assert isinstance(configuration, dict)
    configuration["batch"] = -1
    assert judge(rule, measures).status is Status.NOT_APPLICABLE
