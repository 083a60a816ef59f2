"""Where step windows come from and which class each one has."""

from __future__ import annotations

import numpy as np
import pytest

from tests import slow_kineto
from tests.builders import TraceBuilder, ns
from tests.shared_data import shared
from traceanalyzer.errors import UsageError
from traceanalyzer.measures.steps import STEP_CLASSES, Steps, base_name, find_steps, looks_like_step
from traceanalyzer.model.schema import CopyDirection
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.vocabulary import StepSource

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def classes(steps: Steps) -> list[str]:
    return [STEP_CLASSES[code].value for code in steps.step_class]


def steps_of(builder: TraceBuilder) -> Steps:
    return find_steps(builder.build(), None, None)


def loop(count: int, *, marker: str = "step", kernels: int = 4) -> TraceBuilder:
    """Return ``count`` steps of 100 µs whose ranges cover 80 µs, with a loader call between them."""
    b = TraceBuilder()
    for i in range(count):
        t = i * 100.0
        b.annotation(marker, t, t + 80)
        for k in range(kernels):
            b.kernel(f"kernel{k}", t + 10 * k + 5, t + 10 * k + 9, launch=(t + 10 * k, t + 10 * k + 2))
        b.annotation(LOADER, t + 82, t + 98)
    return b


# Which markers


def test_a_window_runs_to_the_next_marker_and_the_last_to_its_own_end() -> None:
    steps = steps_of(loop(3))
    assert steps.source is StepSource.NVTX
    assert steps.start_ns.tolist() == [0, ns(100), ns(200)]
    assert steps.end_ns.tolist() == [ns(100), ns(200), ns(280)]
    assert steps.marker_end_ns.tolist() == [ns(80), ns(180), ns(280)]


def test_profiler_steps_win_over_ranges_and_are_ordered_by_time_not_number() -> None:
    b = loop(3)
    b.step(9, 0, 150)
    b.step(2, 150, 280)
    steps = steps_of(b)
    assert steps.source is StepSource.PROFILER
    assert steps.names == ("ProfilerStep#9", "ProfilerStep#2")


def test_the_range_the_user_names_wins_over_everything() -> None:
    b = loop(3)
    b.step(1, 0, 280)
    b.annotation("my loop 1", 0, 100)
    b.annotation("my loop 2", 120, 200)
    steps = find_steps(b.build(), "my loop", None)
    assert steps.source is StepSource.NAMED
    assert steps.names == ("my loop 1", "my loop 2")
    with pytest.raises(UsageError, match="no range is named 'absent'"):
        find_steps(b.build(), "absent", None)


def test_markers_with_numbers_are_one_kind_of_step() -> None:
    b = TraceBuilder()
    for i in range(3):
        b.annotation(f"Iteration {i}", i * 10, i * 10 + 8)
    steps = steps_of(b)
    assert (steps.source, len(steps)) == (StepSource.NVTX, 3)


@pytest.mark.parametrize(
    ("name", "base"),
    [("step 12", "step"), ("step#3", "step"), ("iter[7]", "iter"), ("batch_004", "batch"), ("step 3/100", "step")],
)
def test_a_number_at_the_end_is_not_part_of_the_name(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize("name", ["step", "train_step", "TrainStep", "iteration", "training batch", "phase:step"])
def test_names_of_training_steps_are_recognised(name: str) -> None:
    assert looks_like_step(name)


@pytest.mark.parametrize(
    "name",
    ["optimizer.step", "Optimizer.step#SGD.step", "lr_scheduler.step", "batch_norm", "next batch", "forward", "steps"],
)
def test_parts_of_a_step_are_not_steps(name: str) -> None:
    assert not looks_like_step(name)


def test_overlapping_or_single_ranges_and_those_of_libraries_mark_no_steps() -> None:
    overlapping = TraceBuilder()
    overlapping.annotation("step", 0, 60)
    overlapping.annotation("step", 50, 100)
    overlapping.kernel("k", 10, 20)
    assert steps_of(overlapping).source is StepSource.NONE
    single = TraceBuilder()
    single.annotation("step", 0, 60)
    single.kernel("k", 10, 20)
    assert steps_of(single).source is StepSource.NONE
    library = TraceBuilder()
    for i in range(4):
        library.annotation("step", i * 10, i * 10 + 5, domain="CCCL")
    library.kernel("k", 10, 20)
    assert steps_of(library).source is StepSource.NONE


def test_of_nested_candidates_the_outer_one_marks_the_steps() -> None:
    b = TraceBuilder()
    for i in range(3):
        b.annotation("iteration", i * 100, i * 100 + 90)
        for j in range(2):
            b.annotation("batch", i * 100 + j * 40, i * 100 + j * 40 + 30)
    assert len(steps_of(b)) == 3


def unmarked(count: int, kernels: int = 8) -> TraceBuilder:
    b = TraceBuilder()
    for i in range(count):
        for k in range(kernels):
            t = i * 200.0 + k * 10
            b.kernel(f"kernel{k % 5}", t + 3, t + 8, launch=(t, t + 2))
    return b


def test_a_period_of_the_launch_sequence_stands_in_for_markers() -> None:
    steps = steps_of(unmarked(6))
    assert steps.source is StepSource.INFERRED
    # the pause before each repetition is where a step begins; the first has none before it and still counts
    assert np.diff(steps.start_ns).tolist() == [ns(200)] * (len(steps) - 1)
    assert int(steps.start_ns[0]) == 0


def test_without_a_period_the_whole_span_is_one_window() -> None:
    b = TraceBuilder()
    for k in range(20):
        b.kernel(f"kernel{k}", k * 10, k * 10 + 5, launch=(k * 10 - 2, k * 10 - 1))
    steps = steps_of(b)
    assert steps.source is StepSource.NONE
    assert (steps.start_ns.tolist(), steps.end_ns.tolist(), steps.thread) == ([0], [ns(195)], -1)


def test_one_kernel_repeated_is_a_loop_inside_a_step_not_a_step() -> None:
    b = TraceBuilder()
    for k in range(40):
        b.kernel("same", k * 10, k * 10 + 5, launch=(k * 10 - 2, k * 10 - 1))
    assert steps_of(b).source is StepSource.NONE


def test_an_empty_recording_has_no_window() -> None:
    assert len(steps_of(TraceBuilder())) == 0


# Classes


def test_the_first_three_of_ten_windows_are_warm_up_and_of_nine_none() -> None:
    assert classes(steps_of(loop(10))) == ["warm-up"] * 3 + ["steady"] * 7
    assert classes(steps_of(loop(9))) == ["steady"] * 9


def test_the_recorders_mark_decides_the_warm_up() -> None:
    b = loop(12)
    b.metadata = {"warm_up_steps": "1"}
    assert classes(steps_of(b)) == ["warm-up"] + ["steady"] * 11
    ranged = loop(12)
    ranged.annotation("warm-up", 0, 190)
    assert classes(steps_of(ranged)) == ["warm-up"] * 2 + ["steady"] * 10


def test_validation_and_checkpoints_make_a_window_episodic_even_between_the_markers() -> None:
    b = loop(6)
    b.annotation("phase:validate", 185, 195)
    b.annotation("checkpoint", 410, 420)
    assert classes(steps_of(b)) == ["steady", "episodic", "steady", "steady", "episodic", "steady"]


def test_a_slow_step_stays_steady() -> None:
    b = TraceBuilder()
    t = 0.0
    for length in (100, 100, 2000, 100, 100):
        b.annotation("step", t, t + length)
        b.kernel("k", t + 5, t + 9, launch=(t, t + 2))
        t += length
    assert classes(steps_of(b)) == ["steady"] * 5


def test_an_epoch_range_makes_the_windows_of_its_edges_episodic() -> None:
    b = loop(6)
    b.annotation("epoch 0", -10, 290)
    b.annotation("epoch 1", 295, 590)
    assert classes(steps_of(b)) == ["steady", "steady", "episodic", "steady", "steady", "steady"]


def test_asking_the_loader_again_after_it_ran_out_is_an_epoch_edge() -> None:
    b = loop(6)
    b.annotation(LOADER, 299, 299.5)
    assert classes(steps_of(b)) == ["steady", "steady", "episodic", "steady", "steady", "steady"]


def with_memory_cleared(numbers: tuple[int, ...], *, frees_after: bool = True) -> list[str]:
    """Six steps; in some of them a collection, and device memory given back just before or just after it."""
    b = loop(6)
    for number in numbers:
        b.garbage_collection(number * 100 + 60, number * 100 + 70)
        free = number * 100 + (71 if frees_after else 58)
        b.call("cudaFree", free, free + 1)
    return classes(steps_of(b))


def test_collecting_garbage_and_giving_memory_back_is_an_epochs_edge_unless_most_steps_do() -> None:
    assert with_memory_cleared((2,)) == ["steady", "steady", "episodic", "steady", "steady", "steady"]
    assert with_memory_cleared((1, 2, 3, 4)) == ["steady"] * 6
    assert with_memory_cleared((2,), frees_after=False) == ["steady"] * 6


def test_the_last_smaller_batch_is_episodic_but_varying_batches_are_not() -> None:
    def with_batches(sizes: list[int]) -> list[str]:
        b = loop(len(sizes))
        for i, size in enumerate(sizes):
            b.copy(i * 100 + 50, i * 100 + 55, launch=(i * 100 + 48, i * 100 + 49), size_bytes=size)
            b.copy(i * 100 + 60, i * 100 + 62, launch=(i * 100 + 58, i * 100 + 59), size_bytes=64 + i)
            b.copy(
                i * 100 + 70,
                i * 100 + 72,
                launch=(i * 100 + 68, i * 100 + 69),
                size_bytes=10**6 * i,
                direction=CopyDirection.D2H,
            )
        return classes(steps_of(b))

    assert with_batches([4800, 4800, 3200]) == ["steady", "steady", "episodic"]
    assert with_batches([4800, 4100, 3200, 4600]) == ["steady"] * 4


def test_windows_the_reader_knows_to_be_incomplete_are_cut() -> None:
    trace = loop(5).build()
    trace.integrity.cut_ns.append((ns(150), ns(150)))
    assert classes(find_steps(trace, None, None)) == ["steady", "cut", "steady", "steady", "steady"]
    truncated = loop(5).build()
    truncated.integrity.is_truncated = True
    truncated.integrity.truncated_at_ns = ns(370)
    assert classes(find_steps(truncated, None, None)) == ["steady", "steady", "steady", "cut", "cut"]


def test_a_window_whose_activities_are_missing_is_cut() -> None:
    b = loop(4)
    for i in range(8):
        b.call("cudaLaunchKernel", 250 + i, 250.5 + i, correlation=b.next_correlation())
    assert classes(steps_of(b)) == ["steady", "steady", "cut", "steady"]


def test_a_last_step_with_few_of_the_usual_launches_is_cut() -> None:
    b = loop(4)
    b.annotation("step", 400, 405)
    b.kernel("kernel0", 402, 403, launch=(401, 402))
    assert classes(steps_of(b)) == ["steady", "steady", "steady", "steady", "cut"]


def test_selecting_steps_keeps_the_classes_they_have_in_the_whole_recording() -> None:
    trace = loop(12).build()
    chosen = find_steps(trace, None, (2, 5))
    assert classes(chosen) == ["warm-up", "steady", "steady"]
    assert chosen.start_ns.tolist() == [ns(200), ns(300), ns(400)]
    assert len(find_steps(trace, None, (-2, None))) == 2
    with pytest.raises(UsageError, match="selection of steps 20: is empty: the recording has 12"):
        find_steps(trace, None, (20, None))


# Recordings


def read(name: str) -> Trace:
    return slow_kineto.read(shared(f"traces/h200/{name}.pt.trace.json.gz"))


@pytest.mark.shared
def test_the_smaller_last_batch_of_a_real_epoch_is_found() -> None:
    steps = find_steps(read("last_batch_yolo11x"), None, None)
    assert classes(steps) == ["steady", "steady", "episodic"]


@pytest.mark.shared
def test_the_real_step_with_validation_and_checkpoint_is_episodic() -> None:
    steps = find_steps(read("boundary"), None, None)
    assert steps.names[3] == "ProfilerStep#24"
    assert classes(steps) == ["steady", "steady", "steady", "episodic", "steady", "steady"]
    assert int(steps.end_ns[3] - steps.start_ns[3]) == pytest.approx(2.16e9, rel=0.001)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["good", "workers0", "pageable", "empty", "small_fp32", "frag"])
def test_steps_of_real_recordings_are_steady(name: str) -> None:
    steps = find_steps(read(name), None, None)
    assert steps.source is StepSource.PROFILER
    assert set(classes(steps)) == {"steady"}
