"""Replay reproduces what was recorded, answers changes as computed by hand, and agrees with a second simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import AUTOGRAD, MAIN, TraceBuilder, ns
from tests.replay.event_driven import Simulator
from tests.shared_data import shared
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import IntArray, WaitKind
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.replay.graph import Graph, build_graph
from traceanalyzer.replay.replayed import Edit, HostModel, replay

RECORDINGS = (
    "h200/good.pt.trace.json.gz",
    "h200/empty.pt.trace.json.gz",
    "h200/item.pt.trace.json.gz",
    "h200/pageable.pt.trace.json.gz",
    "h200/workers0.pt.trace.json.gz",
    "public/kineto/resnet50_num_workers_0.pt.trace.json.gz",
    "public/kineto/resnet50_num_workers_4.pt.trace.json.gz",
    "public/hta/graph_launches_rank0.json.gz",
    "public/hta/sampled_rank-0.json.gz",
    "public/tracelens/mi300_resnet_act_checkpoint.json.gz",
)


def graph_of(builder: TraceBuilder) -> Graph:
    graph = build_graph(Measures(builder.build()))
    assert graph is not None
    return graph


def steps_us(graph: Graph, edit: Edit | None = None, model: HostModel | None = None) -> list[float]:
    """Step lengths in µs."""
    lengths: IntArray = np.diff(replay(graph, edit, model))
    return [float(v) / 1000 for v in lengths]


def host(start: float, end: float, thread: int = MAIN) -> Edit:
    return Edit(thread=np.array([thread]), start_ns=np.array([ns(start)]), end_ns=np.array([ns(end)]))


def lasting(graph: Graph, durations: dict[int, float]) -> Edit:
    """Activities (rows of the trace) with another duration in µs."""
    at = [int(np.flatnonzero(graph.activity == row)[0]) for row in durations]
    return Edit(retimed=np.array(at), duration_ns=np.array([ns(v) for v in durations.values()]))


def both(a: Edit, b: Edit) -> Edit:
    return Edit(thread=a.thread, start_ns=a.start_ns, end_ns=a.end_ns, retimed=b.retimed, duration_ns=b.duration_ns)


def one_stream() -> TraceBuilder:
    """One step of 100 µs: a kernel from 20 to 60, awaited by a call from 50 to 65."""
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.kernel("k", 20, 60, launch=(10, 15))
    builder.call("cudaStreamSynchronize", 50, 65)
    return builder


def test_host_time_before_a_wait_that_stays_wins_nothing() -> None:
    graph = graph_of(one_stream())
    assert steps_us(graph) == [100.0]
    # the wait begins at 30 instead of 50, but the kernel still ends at 60 and the call 5 µs later
    assert steps_us(graph, host(25, 45)) == [100.0]


def test_a_shorter_kernel_wins_only_until_the_host_is_the_limit() -> None:
    graph = graph_of(one_stream())
    # the kernel ends at 40, before the wait begins at 50; the call by itself takes its assumed 5 µs
    assert steps_us(graph, lasting(graph, {0: 20})) == [90.0]
    # with the host 20 µs earlier as well the wait begins at 30, the kernel ends at 40, the call at 45
    assert steps_us(graph, both(host(25, 45), lasting(graph, {0: 20}))) == [80.0]


def test_a_wait_taken_away_lets_the_host_run_on() -> None:
    graph = graph_of(one_stream())
    wait = int(np.flatnonzero(graph.waits)[0])
    assert steps_us(graph, Edit(no_wait=np.array([wait]))) == [90.0]


def test_a_removed_stretch_takes_its_calls_and_their_kernels_along() -> None:
    builder = one_stream()
    builder.kernel("late", 80, 84, launch=(70, 72))
    builder.call("cudaDeviceSynchronize", 73, 86)
    graph = graph_of(builder)
    assert steps_us(graph) == [100.0]
    # 68 to 88 vanish with the launch at 70 and the wait at 73
    assert steps_us(graph, host(68, 88)) == [80.0]


def test_a_stream_waits_for_an_event_of_another_stream() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.kernel("a", 15, 55, launch=(10, 12))
    builder.call("cudaEventRecord", 14, 15, correlation=900)
    builder.call("cudaStreamWaitEvent", 16, 17, correlation=901)
    builder.wait(16, 55, kind=WaitKind.STREAM_WAIT_EVENT, stream=13, correlation=901, source_correlation=900)
    builder.kernel("b", 57, 77, launch=(20, 22), stream=13)
    builder.call("cudaDeviceSynchronize", 30, 80)
    graph = graph_of(builder)
    assert steps_us(graph) == [100.0]
    # a ends at 25, b runs 27 to 47, the wait returns at 50 instead of 80
    assert steps_us(graph, lasting(graph, {0: 10})) == [70.0]
    # b shorter by 10: a still ends at 55
    assert steps_us(graph, lasting(graph, {1: 10})) == [90.0]


def test_a_collective_beside_compute_costs_only_what_is_exposed() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.kernel("backward_1", 15, 35, launch=(10, 12))
    builder.call("cudaEventRecord", 13, 14, correlation=900)
    builder.call("cudaStreamWaitEvent", 15, 16, correlation=901)
    builder.wait(15, 35, kind=WaitKind.STREAM_WAIT_EVENT, stream=20, correlation=901, source_correlation=900)
    builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 35, 75, launch=(18, 20), stream=20)
    builder.kernel("backward_2", 35, 55, launch=(22, 24))
    builder.call("cudaDeviceSynchronize", 30, 78)
    graph = graph_of(builder)
    assert steps_us(graph) == [100.0]
    # the collective takes 10 µs: backward_2 now ends last, at 55, and the wait returns 20 µs earlier
    assert steps_us(graph, lasting(graph, {1: 10, 2: 20})) == [80.0]


def test_a_cuda_graph_keeps_its_order_and_its_forks() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    correlation = builder.call("cudaGraphLaunch", 10, 15, correlation=500)
    builder.activity("k1", 20, 30, correlation=correlation)
    builder.activity("k3", 30, 50, correlation=correlation, stream=13)
    builder.activity("k2", 31, 41, correlation=correlation)
    builder.call("cudaDeviceSynchronize", 16, 55)
    graph = graph_of(builder)
    assert steps_us(graph) == [100.0]
    assert steps_us(graph, host(0, 5)) == [95.0]
    # k2 follows k1 after 1 µs and ends at 36; the fork still begins 10 µs after k1 and ends at 50
    assert steps_us(graph, lasting(graph, {0: 5})) == [100.0]
    # with the fork 5 µs long, k2 ends last at 36 and the wait returns at 41
    assert steps_us(graph, lasting(graph, {0: 5, 1: 5})) == [86.0]


def backward_pass() -> TraceBuilder:
    """Main works to 50 µs and from 420 on; the autograd thread from 60 to 400."""
    builder = TraceBuilder()
    builder.step(0, 0, 500)
    builder.operator("aten::mul", 5, 50)
    builder.kernel("f", 20, 30, launch=(10, 15))
    builder.operator("MulBackward0", 60, 400, thread=AUTOGRAD)
    builder.kernel("b", 110, 120, launch=(100, 105), thread=AUTOGRAD)
    builder.operator("aten::add_", 420, 450)
    builder.kernel("o", 440, 450, launch=(430, 435))
    return builder


def test_work_handed_to_another_thread_and_back_moves_with_it() -> None:
    graph = graph_of(backward_pass())
    assert steps_us(graph) == [500.0]
    assert steps_us(graph, host(200, 300, AUTOGRAD)) == [400.0]
    # 10 µs of main before the backward pass begins move everything
    assert steps_us(graph, host(35, 45)) == [490.0]


def test_host_time_scales_and_device_time_does_not() -> None:
    graph = graph_of(one_stream())
    # half of 10 to the launch; kernel 5+10 to 55; wait begins at 25 and ends at 60; half of the remaining 35
    assert steps_us(graph, None, HostModel(factor=np.array([0.5]))) == [77.5]


def rank_graphs(path: Path) -> list[tuple[Measures, Graph]]:
    found = []
    for opened in open_inputs([str(path)]):
        for trace in opened.recording.traces:
            measures = Measures(trace, None, opened.recorder)
            graph = build_graph(measures)
            if graph is not None:
                found.append((measures, graph))
    return found


@pytest.mark.shared
@pytest.mark.parametrize("relative", RECORDINGS)
def test_recordings_replay_to_their_own_length_and_as_a_second_simulator_says(relative: str) -> None:
    graphs = rank_graphs(shared(f"traces/{relative}"))
    assert graphs
    for measures, graph in graphs:
        borders = replay(graph)
        recorded = int(measures.steps.end_ns[-1] - measures.steps.start_ns[0])
        assert abs(int(borders[-1] - borders[0]) - recorded) <= 0.002 * recorded
        assert Simulator(graph).run() == borders.tolist()


@pytest.mark.parametrize("build", [one_stream, backward_pass])
def test_made_up_recordings_replay_as_a_second_simulator_says(build: object) -> None:
    graph = graph_of(build())  # type: ignore[operator]
    assert Simulator(graph).run() == replay(graph).tolist()
