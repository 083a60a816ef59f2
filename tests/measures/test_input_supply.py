"""The loader's ``next`` as the training loop sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TraceBuilder
from tests.measures.handmade import profiler_steps, recording, steps_of
from traceanalyzer.measures.input_supply import measure_input_supply
from traceanalyzer.model.trace import Thread

_SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def test_only_the_outermost_call_counts() -> None:
    builder = TraceBuilder()
    builder.annotation("phase:data", 0, 50)
    builder.annotation(_SINGLE, 5, 45)
    builder.python("torch/utils/data/dataloader.py(733): __next__", 6, 44)
    builder.annotation("phase:forward", 60, 90)
    supply = measure_input_supply(builder.build(), steps_of((0, 100)))
    assert supply.start_ns.tolist() == [0]
    assert supply.end_ns.tolist() == [50_000]
    assert supply.window.tolist() == [0]
    # what the outermost range does not say, the one inside it does
    assert supply.in_main_process.tolist() == [1]


def test_iterator_name_tells_whether_workers_exist() -> None:
    builder = TraceBuilder()
    builder.annotation(_SINGLE, 0, 10)
    builder.annotation(_WORKERS, 20, 30)
    builder.annotation("enumerate(DataLoader)#BaseDataLoader.__next__", 40, 50)
    builder.annotation("data", 60, 70)
    supply = measure_input_supply(builder.build(), steps_of())
    assert supply.in_main_process.tolist() == [1, 0, -1, -1]


def test_ranges_written_as_operators_by_old_recordings_count() -> None:
    builder = TraceBuilder()
    builder.operator(_SINGLE, 0, 10)
    assert len(measure_input_supply(builder.build(), steps_of()).start_ns) == 1


def test_python_frames_alone_are_enough() -> None:
    builder = TraceBuilder()
    builder.python("torch/utils/data/dataloader.py(733): __next__", 0, 30)
    builder.python("torch/utils/data/dataloader.py(1400): _get_data", 5, 25)
    supply = measure_input_supply(builder.build(), steps_of())
    assert supply.in_main_process.tolist() == [0]


def test_calls_during_validation_are_marked() -> None:
    builder = TraceBuilder()
    builder.annotation(_WORKERS, 0, 10)
    builder.annotation("phase:validate", 20, 90)
    builder.annotation(_WORKERS, 30, 40)
    builder.annotation(_WORKERS, 95, 99)
    assert measure_input_supply(builder.build(), steps_of()).in_validation.tolist() == [0, 1, 0]


def test_other_ranges_are_no_loader() -> None:
    builder = TraceBuilder()
    builder.annotation("database", 0, 10)
    builder.annotation("phase:h2d", 20, 30)
    builder.operator("aten::data", 40, 50)
    builder.python("train.py(3): __next__", 60, 70)
    assert len(measure_input_supply(builder.build(), steps_of()).start_ns) == 0


def test_worker_processes_are_counted_where_threads_show_them() -> None:
    trace = TraceBuilder().build()
    assert measure_input_supply(trace, steps_of()).worker_processes is None
    threads = (
        Thread(1, 1, "python"),
        Thread(2, 2, "pt_data_worker"),
        Thread(2, 3, "pt_data_worker"),
        Thread(4, 4, "pt_data_worker"),
    )
    assert measure_input_supply(replace(trace, threads=threads), steps_of()).worker_processes == 2


@pytest.mark.shared
def test_loader_in_the_main_process_takes_1186_ms_before_the_last_four_steps() -> None:
    trace = recording("traces/h200/workers0.pt.trace.json.gz")
    supply = measure_input_supply(trace, profiler_steps(trace))
    assert supply.in_main_process.tolist() == [1] * 5
    last_four = (supply.end_ns - supply.start_ns)[1:]
    assert 1_186_000_000 <= int(last_four.sum()) < 1_187_000_000
    assert 287_000_000 <= int(last_four.min()) <= int(last_four.max()) < 304_000_000


@pytest.mark.shared
def test_loader_share_of_public_before_and_after_pair() -> None:
    shares = {}
    for workers in (0, 4):
        trace = recording(f"traces/public/kineto/resnet50_num_workers_{workers}.pt.trace.json.gz")
        supply = measure_input_supply(trace, profiler_steps(trace))
        assert len(supply.start_ns) == 6
        shares[workers] = int((supply.end_ns - supply.start_ns).sum())
    # published shares of the step count only loader time no GPU work covers: 33.37 % and 0.84 % of 177.6 and 141.1 ms
    assert shares[0] >= 6 * 0.3337 * 177_600_000
    assert shares[4] < shares[0] / 10
