"""How faithful and how fast replay is: run ``python -m tests.benchmarks.replay_check [recording …]``.

Prints, per recording with launches, the error of a replay without change, the largest error of a step, and every
cause's saving as a share of the step; then the predicted step of the ResNet pair, and the time of replaying a graph of
one million nodes for twenty causes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.measures import Measures
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.replay.bounds import judged_steps
from traceanalyzer.replay.editors import EDITORS
from traceanalyzer.replay.graph import Graph, build_graph
from traceanalyzer.replay.pricing import Replayer
from traceanalyzer.replay.replayed import Edit, replay

SHARED = Path(__file__).parents[2] / ".." / "shared" / "traces"
SUFFIXES = (".json", ".json.gz", ".sqlite.gz", ".sqlite.xz")
RESNET = "resnet50_num_workers_0"
RESNET_TRUTH_MS = 126.6
MILLION = 1_000_000
CAUSES = 20


def main(paths: list[str]) -> None:
    """Check every recording."""
    largest: Graph | None = None
    for path in paths or sorted(str(p) for p in SHARED.rglob("*") if p.name.endswith(SUFFIXES)):
        try:
            opened = open_inputs([path])
        except TraceAnalyzerError as error:
            print(f"{Path(path).name}: {error}")
            continue
        for one in opened:
            for trace in one.recording.traces:
                graph = _check(Path(path).name, Measures(trace, None, one.recorder))
                if graph is not None and (largest is None or len(graph.nodes) > len(largest.nodes)):
                    largest = graph
    if largest is not None:
        _speed(largest)


def _check(name: str, measures: Measures) -> Graph | None:
    begun = time.perf_counter()
    graph = build_graph(measures)
    built = time.perf_counter() - begun
    if graph is None:
        return None
    steps = measures.steps
    recorded = np.diff(np.append(steps.start_ns, steps.end_ns[-1]))
    replayed = np.diff(replay(graph))
    total = replayed.sum() / recorded.sum() - 1
    worst = float(np.abs(replayed / np.maximum(recorded, 1) - 1).max())
    print(
        f"{name[:44]:44} nodes {len(graph.nodes):7} streams {graph.streams:2} unplaced {graph.unplaced:4} "
        f"total {total:+.3%} worst step {worst:.2%} build {built:.3f} s"
    )
    judged = judged_steps(measures)
    if judged is None:
        return graph
    player = Replayer(measures, graph, frozenset())
    found = []
    for code in EDITORS:
        price = player.price(code)
        if price is not None and price.saving.likely is not None:
            found.append((price.saving.likely / judged.mean_step_ns, code))
            if RESNET in name and code == "TA101":
                after = np.median(replayed) - price.saving.likely
                print(f"    predicted {after / 1e6:.1f} ms, measured {RESNET_TRUTH_MS} ms (medians)")
    print("    " + ", ".join(f"{code} {share:.2%}" for share, code in sorted(found, reverse=True)))
    return graph


def _speed(graph: Graph) -> None:
    """Replay a million nodes for twenty causes; the graph is repeated until it is long enough."""
    times = -(-MILLION // len(graph.nodes))
    count, activities = len(graph.nodes), len(graph.activity)
    length = int(graph.nodes[:, 1].max() - graph.nodes[0, 0]) + 1
    nodes = np.concatenate([_shifted(graph.nodes, k * count, k * length) for k in range(times)])
    columns = ("length", "waits", "wait_stream", "wake", "stream", "base", "delay", "gap", "duration", "activity")
    long = replace(
        graph,
        nodes=nodes,
        offsets=np.append(
            np.concatenate([graph.offsets[:-1] + k * activities for k in range(times)]), times * activities
        ),
        wait_for=np.concatenate(
            [np.where(graph.wait_for >= 0, graph.wait_for + k * activities, -1) for k in range(times)]
        ),
        marks=np.concatenate([graph.marks + k * count for k in range(times)]),
        **{name: np.tile(getattr(graph, name), times) for name in columns},
    )
    threads = np.flatnonzero(graph.thread_of >= 0)
    rng = np.random.default_rng(7)
    replay(long)
    begun = time.perf_counter()
    for _ in range(CAUSES):
        start = np.sort(rng.integers(nodes[0, 0], nodes[-1, 0], 5_000))
        thread = rng.choice(threads, len(start))
        replay(long, Edit(thread=thread, start_ns=start, end_ns=start + 20_000))
    print(f"{len(nodes)} nodes, {len(long.activity)} activities, {CAUSES} causes: {time.perf_counter() - begun:.2f} s")


def _shifted(nodes: np.ndarray, by: int, ns: int) -> np.ndarray:  # type: ignore[type-arg]
    moved = nodes.copy()
    for column in (0, 1, 4, 5, 7):
        moved[:, column] += ns
    for column in (3, 6):
        moved[:, column] = np.where(moved[:, column] >= 0, moved[:, column] + by, -1)
    return moved


if __name__ == "__main__":
    main(sys.argv[1:])
