"""Measures what will be needed on a second processor, while the first attributes idle time and checks rules.

The long loops (numpy's and the compiled ones) run outside the interpreter's lock, so that two threads use two
processors. What is computed and what comes out does not change: the main thread asks for the same properties as
without, and finds them made or in the making (``once.measured_once``).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from traceanalyzer.measures import Measures
from traceanalyzer.measures.timeline import TimelineDraft, draft_timeline

# what rules and the summary of every recording need and idle attribution does not, longest first
_MEASURES = ("launches", "kernels", "nesting", "copies", "positions", "step_series")


@contextmanager
def measured_ahead(measures: Measures) -> Iterator[Future[TimelineDraft]]:
    """Measure one rank ahead of the thread that judges it.

    Args:
        measures: The rank's measures; those that cannot be had raise their error when they are asked for, not here.

    Yields:
        The draft of its timeline, to come.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="measure-ahead") as thread:
        thread.submit(_measure, measures)
        draft = thread.submit(_draft, measures)
        try:
            yield draft
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _measure(measures: Measures) -> None:
    for name in _MEASURES:
        getattr(measures, name)


def _draft(measures: Measures) -> TimelineDraft:
    return draft_timeline(measures.trace, measures.steps, measures.idle, measures.devices, measures.host)
