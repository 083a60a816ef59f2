"""What the rules say about recordings whose fault is known."""

from __future__ import annotations

import gzip
import pickle
import re
from functools import lru_cache

import pytest

import traceanalyzer
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.readers import open_recording
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules.run import check_all

pytestmark = pytest.mark.shared


@lru_cache(maxsize=4)
def findings_of(name: str) -> tuple[Finding, ...]:
    """Findings of every rank of a shared recording, rank after rank."""
    recording = open_recording(shared(name))
    return tuple(finding for trace in recording.traces for finding in check_all(Measures(trace)))


def firing(name: str, kind: FindingKind = FindingKind.FAULT) -> list[str]:
    return [f.code for f in findings_of(name) if f.status is Status.FAIL and f.kind is kind]


def h200(name: str) -> str:
    return f"traces/h200/{name}.pt.trace.json.gz"


@pytest.mark.parametrize(
    "name", [h200("good"), h200("small_fp32"), h200("stack_mem"), "traces/h200/nsys_good.sqlite.gz"]
)
def test_a_launch_bound_run_has_no_fault_and_is_told_so(name: str) -> None:
    assert firing(name) == []
    assert firing(name, FindingKind.LIMITER)[0] == "TA201"


def test_batch_two_on_a_large_device_is_told_that_its_kernels_are_too_small_and_batch_sixteen_is_not() -> None:
    assert firing(h200("small_fp32"), FindingKind.LIMITER) == ["TA201", "TA602"]
    assert firing(h200("good"), FindingKind.LIMITER) == ["TA201"]


def test_mixed_precision_is_not_promised_to_a_launch_bound_run_in_fp32() -> None:
    finding = findings_of(h200("small_fp32"))[0]
    assert "Mixed precision would not shorten" in finding.message
    assert not any("AMP" in step or "mixed precision" in step for step in finding.fix)


def test_loading_in_the_main_process_comes_first_with_the_wait_measured_between_the_steps() -> None:
    finding = findings_of(h200("workers0"))[0]
    assert finding.code == "TA101"
    # 287 to 303 ms in each of the four gaps between the steps
    assert 280e6 < finding.saving_per_step_ns.likely < 303e6  # type: ignore[operator]
    assert finding.observed["workers_needed"] == 3


@pytest.mark.parametrize("name", ["traces/h200/nsys_workers0.sqlite.gz", "traces/h200/nsys_workers0_arrowdir"])
def test_without_loader_ranges_the_wait_between_step_ranges_is_found(name: str) -> None:
    assert firing(name) == ["TA101"]
    # the gaps measured between consecutive step ranges are 148, 149, 149, 148, 193 and 157 ms
    assert 130e6 < findings_of(name)[0].saving_per_step_ns.likely < 193e6  # type: ignore[operator]


def test_matrix_work_is_split_by_precision_and_tensor_cores() -> None:
    found = {f.code: f for f in findings_of(h200("good"))}["TA601"]
    # by the kernels' names: 29.2 % of kernel time is matrix work and 27.1 % runs on tensor cores
    assert found.observed["matrix_share_of_kernel_time"] == pytest.approx(0.292, abs=0.002)
    assert found.observed["tensor_core_share_of_matrix_time"] == pytest.approx(0.271 / 0.292, abs=0.01)
    assert found.observed["matrix_fp16_share"] > 0.9  # type: ignore[operator]


def test_an_emptied_cache_is_found_and_its_calls_are_not_called_churn() -> None:
    assert firing(h200("empty")) == ["TA402"]
    finding = findings_of(h200("empty"))[0]
    # 527 cudaFree and 527 cudaMalloc in five steps
    assert finding.observed["frees_per_step"] == 527 / 5
    assert finding.observed["allocations_per_step"] == 527 / 5


def test_pageable_input_is_found_with_a_saving_below_what_could_be_measured_on_whole_runs() -> None:
    assert firing(h200("pageable")) == ["TA301"]
    assert findings_of(h200("pageable"))[0].saving_per_step_ns.likely < 4e6  # type: ignore[operator]


def test_forty_reads_per_step_that_cost_nothing_measurable_are_quiet() -> None:
    assert firing(h200("item")) == []
    found = {f.code: f for f in findings_of(h200("item"))}
    assert found["TA501"].observed["waits_per_step"] > 40  # type: ignore[operator]


def test_an_epochs_end_is_charged_to_validation_and_checkpoint_only() -> None:
    assert firing(h200("boundary")) == ["TA801", "TA802"]
    found = {f.code: f for f in findings_of(h200("boundary"))}
    # the validation range lasts 1,641 ms, the checkpoint's 390 ms
    assert 1.5e9 < found["TA801"].episode.ns < 1.642e9  # type: ignore[operator]
    assert 0.35e9 < found["TA802"].episode.ns < 0.39e9  # type: ignore[operator]


def test_new_shapes_in_every_step_are_plan_search() -> None:
    finding = findings_of(h200("frag"))[0]
    assert finding.code == "TA202"
    # 7.9 of 8.5 s idle; 4.4 s in the backward and 3.5 s in the forward convolution
    assert 7.7e9 < finding.saving_per_step_ns.likely * 4 < 7.95e9  # type: ignore[operator]
    assert finding.observed["aten::convolution_backward_ns"] == pytest.approx(4.4e9, rel=0.02)
    assert finding.observed["aten::cudnn_convolution_ns"] == pytest.approx(3.5e9, rel=0.02)
    # the operators' own host time, and all idle time of the device
    assert finding.observed["aten::convolution_backward_own_host_ns"] == pytest.approx(4.42e9, abs=0.005e9)
    assert finding.observed["aten::cudnn_convolution_own_host_ns"] == pytest.approx(3.52e9, abs=0.005e9)
    assert finding.observed["idle_ns"] == pytest.approx(8.47e9, abs=0.01e9)


def test_the_epochs_smaller_last_batch_is_plan_search_and_the_fix_says_drop_it() -> None:
    finding = findings_of(h200("last_batch_yolo11x"))[0]
    assert finding.code == "TA202"
    assert finding.episode.ns == pytest.approx(2.0e9, rel=0.05)
    assert finding.observed["only_in_smaller_batches"] is True
    assert "drop_last" in finding.fix[0]


def test_a_published_pair_before_and_after_workers_differs_in_the_loader() -> None:
    before = "traces/public/kineto/resnet50_num_workers_0.pt.trace.json.gz"
    after = "traces/public/kineto/resnet50_num_workers_4.pt.trace.json.gz"
    assert firing(before)[0] == "TA101"
    # published: the loader takes 33.37 % of the step
    found = findings_of(before)[0]
    assert found.message.count("33.") == 1
    assert not {"TA101", "TA102"} & set(firing(after))


@pytest.mark.parametrize("name", ["healthy_1pct", "healthy_judged_1pct"])
def test_a_published_healthy_recording_raises_nothing(name: str) -> None:
    findings = findings_of(f"traces/public/nsys_ai/{name}.sqlite.gz")
    assert [f.code for f in findings if f.status is Status.FAIL] == []
    assert {f.code: f.status for f in findings}["TA903"] is Status.INFORMATIVE


@pytest.mark.parametrize(
    "name",
    sorted(
        str(p)
        for p in (
            "traces/public/tracelens/h100_vit.json.gz",
            "traces/public/tracelens/h100_timesformer.json.gz",
            "traces/public/tracelens/h100_qwen_unlinked_kernels.json.gz",
            "traces/public/tracelens/mi210_gpu_only.json.gz",
            "traces/public/tracelens/mi300_ddp_resnet18.json.gz",
            "traces/public/tracelens/torch_compile_triton.json.gz",
            "traces/public/tracelens/vllm_decode_graph.json.gz",
            "traces/public/hta/alexnet.json.gz",
            "traces/public/hta/cpu_only_rank-34.pt.trace.json.gz",
            "traces/public/hta/graph_launches_rank0.json.gz",
        )
    ),
)
def test_no_rule_breaks_on_recordings_of_other_tools_and_devices(name: str) -> None:
    assert [f.code for f in findings_of(name) if f.status is Status.ERROR] == []


FRAG = "traces/h200/frag.memory_snapshot.pickle.gz"


@lru_cache(maxsize=1)
def with_snapshot() -> tuple[Finding, ...]:
    """Findings of the recording with varying shapes, its memory snapshot beside it."""
    return tuple(traceanalyzer.analyze([shared(h200("frag")), shared(FRAG)]).findings)


def test_beside_the_snapshot_plan_search_still_comes_first_and_fragmentation_second() -> None:
    firing_there = [f.code for f in with_snapshot() if f.status is Status.FAIL and f.kind is FindingKind.FAULT]
    assert firing_there == ["TA202", "TA404"]


def test_the_snapshots_history_really_lacks_the_retries_and_the_limit_and_the_finding_says_so() -> None:
    # read with the standard library alone: the ring of 40,000 events is full and holds the last 8.7 of 43 seconds,
    # and in them no memory goes back to the driver before some is taken; nothing else in the file counts retries
    with gzip.open(shared(FRAG)) as file:
        snapshot = pickle.load(file)
    (events,) = [trace for trace in snapshot["device_traces"] if trace]
    assert len(events) == 40_000
    actions = [event["action"] for event in events]
    assert actions.index("segment_free") > max(at for at, a in enumerate(actions) if a == "segment_alloc")
    assert "oom" not in actions
    begin = min(note["time_us"] for note in snapshot["external_annotations"])
    assert 30e6 < events[0]["time_us"] - begin < 32e6
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert not [name for name in snapshot["allocator_settings"] if "fraction" in name or "retries" in name]

    found = {f.code: f for f in with_snapshot()}
    assert found["TA403"].status is Status.PASS
    assert found["TA403"].observed["retries"] == 0
    assert "earlier retries left no trace" in found["TA403"].message
    assert "nor a limit on this process" in found["TA403"].message
    # 163 segments of 17,624 MiB go back after the last step: they were reserved all the time
    freed = sum(event["size"] for event in events if event["action"] == "segment_free")
    taken = sum(event["size"] for event in events if event["action"] == "segment_alloc")
    left = sum(segment["total_size"] for segment in snapshot["segments"])
    assert found["TA403"].observed["reserved_when_history_begins_bytes"] == left + freed - taken


def test_every_device_free_of_an_emptied_cache_is_tied_to_it() -> None:
    finding = next(f for f in findings_of(h200("empty")) if f.code == "TA402")
    frees = finding.observed["frees_per_step"] * finding.observed["steps"]  # type: ignore[operator]
    assert round(frees) == 527
    assert finding.observed["steps"] == 5
    assert "torch.cuda.empty_cache()" in finding.message


def test_an_emptied_cache_is_tied_to_its_line_where_the_recording_holds_stacks() -> None:
    finding = next(f for f in findings_of("traces/public/tracelens/mi300_ddp_resnet18.json.gz") if f.code == "TA402")
    assert finding.observed["where"] == "train_single_gpu.py(41): main"


def test_with_python_stacks_every_finding_that_fires_gives_code_locations() -> None:
    firing_there = [f for f in findings_of(h200("stack_mem")) if f.status is Status.FAIL]
    assert firing_there
    for finding in firing_there:
        located = [place for place in finding.evidence if place.where and re.search(r"\.py[:(]\d+", place.where)]
        assert len(located) > len(finding.evidence) / 2, finding.code
