"""Where a step's time goes, from one clock reading per phase border.

Every moment of a step belongs to its innermost open phase (``other`` where none is open), so the phases of a step sum
to the step exactly. On a GPU an event is put into the stream at the same borders; they are read only when the block of
steps is over, because reading one inside it would make the host wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

OTHER = "other"


@dataclass
class StepTimes:
    """Times of a number of steps.

    Attributes:
        step_ns: Host time of each step, from its begin to its end (the loader's ``next`` included).
        phase_ns: Phase → host time of each step spent with that phase innermost; 0 where the step lacks it.
        device_step_ns: Time the device's stream took from the step's first to its last border; empty without events.
        device_phase_ns: Phase → the same, between that phase's borders.
        between_ns: Host time from a step's end to the next step's begin (epoch ends lie here).
        block_ns: Wall time of each whole block, device work included.
        block_steps: Number of steps of each block.
    """

    step_ns: list[int] = field(default_factory=list)
    phase_ns: dict[str, list[int]] = field(default_factory=dict)
    device_step_ns: list[int] = field(default_factory=list)
    device_phase_ns: dict[str, list[int]] = field(default_factory=dict)
    between_ns: list[int] = field(default_factory=list)
    block_ns: list[int] = field(default_factory=list)
    block_steps: list[int] = field(default_factory=list)

    def add_step(self, total_ns: int, phases: dict[str, int]) -> None:
        """Append one step's host times."""
        _append(self.phase_ns, phases, len(self.step_ns))
        self.step_ns.append(total_ns)

    def add_device_step(self, phases: dict[str, int]) -> None:
        """Append one step's device times."""
        _append(self.device_phase_ns, phases, len(self.device_step_ns))
        self.device_step_ns.append(sum(phases.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the lists as ``run.json`` holds them."""
        return {
            "step_ns": list(self.step_ns),
            "phase_ns": {name: list(values) for name, values in sorted(self.phase_ns.items())},
            "device_step_ns": list(self.device_step_ns),
            "device_phase_ns": {name: list(values) for name, values in sorted(self.device_phase_ns.items())},
            "between_ns": list(self.between_ns),
            "block_ns": list(self.block_ns),
            "block_steps": list(self.block_steps),
        }


def _append(columns: dict[str, list[int]], values: dict[str, int], rows: int) -> None:
    for name, value in values.items():
        column = columns.get(name)
        if column is None:
            column = columns[name] = [0] * rows
        column.append(value)
    for column in columns.values():
        if len(column) == rows:
            column.append(0)


class PhaseClock:
    """Attributes a step's time to phases.

    Args:
        now: Clock in nanoseconds.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._phases: list[str] = []
        self._spent: dict[str, int] = {}
        self._step_start = 0
        self._border = 0
        self._in_step = False
        self._last_end: int | None = None
        self._outside_start: list[int] = []
        self._events: EventTrack | None = None
        self.episodes: list[tuple[str, int]] = []

    @property
    def in_step(self) -> bool:
        """Whether a step is open."""
        return self._in_step

    @property
    def depth(self) -> int:
        """Number of open phases."""
        return len(self._phases)

    @property
    def innermost(self) -> str | None:
        """Name of the innermost open phase."""
        return self._phases[-1] if self._phases else None

    def begin_step(self, events: EventTrack | None = None) -> int | None:
        """Open a step and return the time since the previous one's end (None for the first).

        Args:
            events: Where to record device events in this step; None records none.
        """
        self._spent = {}
        self._events = events
        if events is not None:
            events.begin_step()
        now = self._now()
        self._step_start = self._border = now
        self._in_step = True
        return None if self._last_end is None else now - self._last_end

    def end_step(self) -> tuple[int, dict[str, int]]:
        """Close the step (and any phase left open) and return its time and its time per phase."""
        now = self._now()
        self._charge(now)
        if self._events is not None:
            self._events.border(self._current)
        self._in_step = False
        self._phases.clear()
        self._last_end = now
        return now - self._step_start, self._spent

    def push(self, name: str) -> None:
        """Open a phase."""
        now = self._now()
        if self._in_step:
            self._charge(now)
            if self._events is not None:
                self._events.border(self._current)
        else:
            self._outside_start.append(now)
        self._phases.append(name)

    def pop(self) -> None:
        """Close the innermost phase."""
        now = self._now()
        if self._in_step:
            self._charge(now)
            if self._events is not None:
                self._events.border(self._current)
        name = self._phases.pop()
        if not self._in_step and self._outside_start:
            start = self._outside_start.pop()
            if not self._outside_start:
                self.episodes.append((name, now - start))

    @property
    def _current(self) -> str:
        return self._phases[-1] if self._phases else OTHER

    def _charge(self, now: int) -> None:
        name = self._current
        self._spent[name] = self._spent.get(name, 0) + now - self._border
        self._border = now


class EventTrack:
    """CUDA events at phase borders, read after the block.

    Args:
        make_event: Returns a fresh timing event with ``record()`` and ``elapsed_time(later)`` in ms.
        capacity: Events made (and used once, which is when the driver allocates them) before the block begins.
    """

    def __init__(self, make_event: Callable[[], Any], capacity: int) -> None:
        self._make = make_event
        self._free = [make_event() for _ in range(capacity)]
        for event in self._free:
            event.record()
        self._steps: list[list[tuple[Any, str]]] = []

    def _next(self) -> Any:
        event = self._free.pop() if self._free else self._make()
        event.record()
        return event

    def begin_step(self) -> None:
        """Record the event every device time of the step is counted from."""
        self._steps.append([(self._next(), OTHER)])

    def border(self, ended: str) -> None:
        """Record the end of a stretch of phase ``ended``."""
        self._steps[-1].append((self._next(), ended))

    def drop_step(self) -> None:
        """Forget the last step."""
        self._free.extend(event for event, _ in self._steps.pop())

    def resolve(self, into: StepTimes) -> None:
        """Add the device times of every step seen so far; the device must have finished them."""
        for borders in self._steps:
            phases: dict[str, int] = {}
            for (before, _), (after, name) in pairwise(borders):
                phases[name] = phases.get(name, 0) + round(before.elapsed_time(after) * 1e6)
            into.add_device_step(phases)
            self._free.extend(event for event, _ in borders)
        self._steps = []
