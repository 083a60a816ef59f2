"""Settings of the recorded run, where a run folder holds them."""

from __future__ import annotations

from collections.abc import Mapping

from traceanalyzer.measures import Measures


def setting(measures: Measures, name: str) -> int | None:
    """Return a whole-number setting such as ``workers`` or ``cpu_cores``; None where nobody recorded it.

    Negative numbers stand for "choose for me" (``batch=-1``) and say nothing about what was chosen.
    """
    configuration = measures.recorder.get("configuration")
    for source in (configuration, measures.recorder):
        if isinstance(source, Mapping):
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None
