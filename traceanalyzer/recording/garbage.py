"""Garbage-collection pauses: as ranges in the recording and as sums per stage."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

RANGE_NAME = "garbage_collection"


class GarbageWatch:
    """Times every collection on the thread that runs it.

    Args:
        push: Opens a named range.
        pop: Closes it.
        thread: Identifier of the thread whose ranges may be emitted; collections elsewhere are only counted.
    """

    def __init__(self, push: Callable[[str], None], pop: Callable[[], None], thread: int) -> None:
        self._push = push
        self._pop = pop
        self._thread = thread
        self._start = 0
        self._emitted = False
        self.count = 0
        self.total_ns = 0

    def start(self) -> None:
        """Begin watching."""
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Stop watching."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def take(self) -> tuple[int, int]:
        """Return the number and summed time (ns) of collections since the last call."""
        taken = (self.count, self.total_ns)
        self.count = self.total_ns = 0
        return taken

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        import threading

        if phase == "start":
            self._emitted = threading.get_ident() == self._thread
            if self._emitted:
                self._push(RANGE_NAME)
            self._start = time.perf_counter_ns()
        else:
            self.total_ns += time.perf_counter_ns() - self._start
            self.count += 1
            if self._emitted:
                self._emitted = False
                self._pop()
