"""How much the profiler slowed the step, where the recorder measured steps without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures.steps import STEADY, Steps
from traceanalyzer.results.analysis import ObserverReport


@dataclass(frozen=True, slots=True)
class ObserverEffect:
    """Profiled against unprofiled step time.

    Attributes:
        report: The document part.
    """

    report: ObserverReport


def measure_observer_effect(steps: Steps, recorder: dict[str, object]) -> ObserverEffect:
    """Compare the recorded steps with the recorder's unprofiled ones.

    Both sides are means (savings are stated against the unprofiled mean).

    Args:
        steps: Step windows of the recording; used where the recorder did not time the profiled steps itself.
        recorder: One pass of ``run.json``, ``{"unprofiled": {"step_ns": […], "phase_ns": {phase: […]}}, "profiled":
            {…}}``, or the whole of it, where ``passes`` lists them and ``pass`` (else 0) says which one this
            recording belongs to. Any part may be absent.
    """
    recorder = recorded_pass(recorder)
    unprofiled = _mean(_part(recorder, "unprofiled", "step_ns"))
    profiled = _mean(_part(recorder, "profiled", "step_ns"))
    if profiled is None:
        steady = (steps.end_ns - steps.start_ns)[steps.step_class == STEADY]
        profiled = float(steady.mean()) if len(steady) and steps.thread >= 0 else None
    before, after = _part(recorder, "unprofiled", "phase_ns"), _part(recorder, "profiled", "phase_ns")
    by_phase: dict[str, float] = {}
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for phase in before:
            plain, slowed = _mean(before[phase]), _mean(after.get(phase))
            if plain and slowed is not None:
                by_phase[str(phase)] = slowed / plain
    return ObserverEffect(
        report=ObserverReport(
            profiled_step_ns=round(profiled) if profiled is not None else None,
            unprofiled_step_ns=round(unprofiled) if unprofiled is not None else None,
            inflation=profiled / unprofiled if profiled is not None and unprofiled else None,
            inflation_by_phase=by_phase,
        )
    )


def recorded_pass(recorder: dict[str, object]) -> dict[str, object]:
    """Return the pass of ``run.json`` a recording belongs to; what was given, where it is a single pass already."""
    passes, index = recorder.get("passes"), recorder.get("pass", 0)
    if "unprofiled" in recorder or not isinstance(passes, list) or not isinstance(index, int):
        return recorder
    chosen = passes[index] if 0 <= index < len(passes) else None
    return chosen if isinstance(chosen, dict) else recorder


def _part(recorder: Mapping[str, object], side: str, key: str) -> object:
    part = recorder.get(side)
    return part.get(key) if isinstance(part, Mapping) else None


def _mean(values: object) -> float | None:
    """Mean of a list of numbers (or a single number); None for anything else, or for an empty list."""
    if isinstance(values, bool):
        return None
    if isinstance(values, int | float):
        return float(values)
    if not isinstance(values, list):
        return None
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return float(np.mean(numbers)) if numbers else None
