"""A slow simulator of the same graph, event by event on a heap: another algorithm than the product's single sweep.

Threads are processes that stop at hand-offs and waits and are woken by what they wait for; streams are queues that
start their head when everything it needs has happened. Nothing is visited in recorded order.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque

from traceanalyzer.replay.graph import Graph
from traceanalyzer.replay.sweeps import ACTIVITY, EVERYTHING, STREAM, STREAM_FOR_ACTIVITY


class Simulator:
    """Runs a graph without edits.

    Args:
        graph: The graph; its columns are read, its order is not used except per thread and per stream.
    """

    def __init__(self, graph: Graph) -> None:
        self.g = graph
        self.heap: list[tuple[int, int, str, int]] = []
        self.serial = 0
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.ran: dict[int, tuple[int, int]] = {}
        self.queue: dict[int, deque[int]] = defaultdict(deque)  # per stream, activities enqueued and not begun
        self.stream_end: dict[int, int] = {}
        self.holds: dict[int, list[int]] = defaultdict(list)  # per stream, event activities its next work waits for
        self.waiting: list[int] = []
        self.order: dict[int, deque[int]] = defaultdict(deque)
        for i in range(len(graph.nodes)):
            self.order[int(graph.nodes[i, 2])].append(i)
        self.enqueued: dict[int, int] = {}
        self.before: dict[int, list[int]] = {}  # per waiting node, activities enqueued before it began

    def run(self) -> list[int]:
        """Return the moments of the step borders, ns."""
        for thread in self.order:
            self._advance(thread)
        while self.heap:
            now, _, what, which = heapq.heappop(self.heap)
            if what == "start":
                self._begin(which, now)
            elif what == "end":
                self.end[which] = now
                self._advance(int(self.g.nodes[which, 2]))
            self._wake()
        return [self.start[int(i)] for i in self.g.marks]

    def _push(self, at: int, what: str, which: int) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (at, self.serial, what, which))

    def _advance(self, thread: int) -> None:
        """Try to schedule the thread's next node; a hand-off that has not happened yet keeps it waiting."""
        if not self.order[thread]:
            return
        i = self.order[thread][0]
        row = [int(v) for v in self.g.nodes[i]]
        p, silence, resumed, giver, handed = row[3], row[4], row[5], row[6], row[7]
        origin = int(self.g.nodes[0, 0])
        since = min(int(self.g.nodes[p, 1]) if p >= 0 else origin, row[0])
        at = self.end[p] if p >= 0 else origin
        if giver < 0:
            at += row[0] - since
        else:
            if giver not in self.end:
                if i not in self.waiting:
                    self.waiting.append(i)
                return
            after = row[0] - resumed
            at += max(row[0] - since - (resumed - max(silence, since)) - after, 0) + after
            giver_end = int(self.g.nodes[giver, 1])
            if giver_end > handed:
                done = self.start[giver] + min(
                    handed - int(self.g.nodes[giver, 0]), self.end[giver] - self.start[giver]
                )
            else:
                done = self.end[giver] + handed - giver_end
            at = max(at, done + resumed - handed + after)
        self.order[thread].popleft()
        self._push(at, "start", i)

    def _begin(self, i: int, now: int) -> None:
        self.start[i] = now
        g = self.g
        self.before[i] = list(self.enqueued)
        for j in range(int(g.offsets[i]), int(g.offsets[i + 1])):
            self.queue[int(g.stream[j])].append(j)
            self.enqueued[j] = i
        self._run_streams()
        if g.waits[i] == STREAM_FOR_ACTIVITY and g.wait_for[i] >= 0:
            self.holds[int(g.wait_stream[i])].append(int(g.wait_for[i]))
        self.waiting.append(i)

    def _run_streams(self) -> None:
        moved = True
        while moved:
            moved = False
            for stream, queue in self.queue.items():
                if not queue:
                    continue
                j = queue[0]
                i = self.enqueued[j]
                anchor = self.start[i]
                head = int(self.g.offsets[i])
                if self.g.base[j] and j != head:
                    if head not in self.ran:
                        continue
                    anchor = self.ran[head][0]
                if any(event not in self.ran for event in self.holds[stream]):
                    continue
                at = anchor + int(self.g.delay[j])
                if stream in self.stream_end:
                    at = max(at, self.stream_end[stream] + int(self.g.gap[j]))
                for event in self.holds[stream]:
                    at = max(at, self.ran[event][1] + int(self.g.gap[j]))
                self.ran[j] = (at, at + int(self.g.duration[j]))
                self.stream_end[stream] = max(self.stream_end.get(stream, at), self.ran[j][1])
                queue.popleft()
                moved = True

    def _wake(self) -> None:
        """Finish nodes whose awaited work is known to end; try threads that waited for a hand-off."""
        self._run_streams()
        for i in list(self.waiting):
            if i not in self.start:
                self.waiting.remove(i)
                self._advance(int(self.g.nodes[i, 2]))
                continue
            wanted = self._awaited(i)
            if any(j not in self.ran for j in wanted):
                continue
            until = self.start[i] + int(self.g.length[i])
            if wanted:
                until = max(until, max(self.ran[j][1] for j in wanted) + int(self.g.wake[i]))
            self.waiting.remove(i)
            self._push(until, "end", i)

    def _awaited(self, i: int) -> list[int]:
        kind = self.g.waits[i]
        if kind == EVERYTHING:
            return self.before[i]
        if kind == STREAM:
            return [j for j in self.before[i] if self.g.stream[j] == self.g.wait_stream[i]]
        if kind == ACTIVITY and self.g.wait_for[i] >= 0:
            return [int(self.g.wait_for[i])]
        return []
