"""Where in the user's code a moment of a host thread was."""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Place:
    """A code location.

    Attributes:
        where: ``file.py(12): function`` from a Python frame, else the innermost range's name, else empty.
        operator: Innermost operator, or empty.
    """

    where: str
    operator: str


class Locations:
    """Looks up the innermost user frame, range and operator at a moment of a thread."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def has_stacks(self) -> bool:
        """Whether the recording holds Python frames."""
        raise NotImplementedError

    def at(self, thread: int, time_ns: int) -> Place:
        """Return the place open on a thread at a moment; library frames are skipped where a user frame is open."""
        raise NotImplementedError
