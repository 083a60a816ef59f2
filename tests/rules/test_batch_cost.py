"""What timed workers say about a batch."""

from __future__ import annotations

from tests.rules.support import judge
from tests.rules.test_input_bursts import bursts
from tests.tools.score_labels import LABELLED
from traceanalyzer.measures import Measures
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.rules import loader_in_main_process, loader_too_slow
from traceanalyzer.rules.batch_cost import batch_cost, workers_needed

MS = 1_000_000
IMAGES = 16


def timed(per_batch_ms: dict[str, float], *, workers: int = 2, cores: int = 16, calls: int = IMAGES) -> Measures:
    parts = {name: {"ns": round(ms * MS), "calls": calls} for name, ms in per_batch_ms.items()}
    block = {"batches": 1, "worker_ns": sum(p["ns"] for p in parts.values()), "parts": parts}
    return bursts(set(), configuration={"workers": workers, "cpu_cores": cores}, loader={"recorded": block})


def test_workers_needed_is_batch_cost_over_the_rest_of_the_step_rounded_up() -> None:
    assert [workers_needed(batch, 50) for batch in (1, 50, 51, 100, 101)] == [1, 1, 2, 2, 3]


def test_the_stages_and_the_workers_needed_are_stated() -> None:
    found = batch_cost(timed({"load_image": 16, "RandomPerspective": 100, "collate": 4}), 50 * MS)
    assert found.observed["workers_needed"] == 3
    assert found.observed["slowest_stage"] == "augment"
    assert found.observed["waits_for_storage"] is False
    assert found.stages == "augment 83.3 %, read and decode 13.3 %, collate 3.3 %"
    assert found.fix[0] == "Use 3 workers (of 16 cores)."
    # without augmentation 20 of 120 ms remain, without reading 104
    assert "leaves at best 104 ms (3 workers)" in found.fix[1]
    assert "leaves 20.0 ms (1 worker)" in found.fix[2]


def test_images_that_take_long_to_come_are_storage_and_no_format_helps() -> None:
    found = batch_cost(timed({"load_image": 400, "RandomPerspective": 100}, workers=8), 50 * MS)
    assert found.observed["waits_for_storage"] is True
    assert found.observed["slowest_stage"] == "read and decode"
    assert "memory-mapped file (LMDB): at best 100 ms remain per batch, 2 workers" in found.fix[1]
    assert "does not shorten this wait" in found.fix[1]


def test_more_workers_than_three_quarters_of_the_cores_are_not_advised() -> None:
    found = batch_cost(timed({"load_image": 400, "RandomPerspective": 600}, cores=16), 50 * MS)
    assert found.observed["workers_needed"] == 20
    assert "20 workers would be more than three quarters of the 16 cores" in found.fix[0]


def test_without_timed_workers_nothing_is_said() -> None:
    assert batch_cost(bursts(set()), 50 * MS).message == ""


def of(name: str) -> Measures:
    opened = open_inputs([str(LABELLED / name)])[0]
    return Measures(opened.recording.traces[0], recorder=opened.recorder)


def test_a_real_slow_disk_is_told_from_slow_decoding() -> None:
    finding = judge(loader_too_slow, of("slow-storage"))
    assert finding.observed["waits_for_storage"] is True
    assert any("Storage is the limit" in step for step in finding.fix)
    # each of four images of a mosaic waits 25 ms, so a batch of 16 takes at least 1.6 s
    assert 1.6e9 < finding.observed["worker_batch_ns"] < 2.0e9  # type: ignore[operator]


def test_a_batch_made_in_the_main_process_is_split_alike() -> None:
    finding = judge(loader_in_main_process, of("single-process-loader"))
    assert finding.observed["slowest_stage"] == "augment"
    assert "Its time goes to augment" in finding.message
