"""What is known about the recorded run: the settings a comparison must hold equal, and how it was recorded."""

from __future__ import annotations

from collections.abc import Mapping

from traceanalyzer.measures import Measures
from traceanalyzer.results.analysis import Configuration, RecordedWith

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def configuration_of(measures: Measures) -> Configuration:
    """Fill the configuration from the recording's metadata and the run folder; unknown settings stay None."""
    facts = measures.metadata
    run = measures.recorder.get("configuration")
    if isinstance(run, Mapping):
        # the recorder knows what it asked for; the profiler only what it saw
        facts |= {str(key): str(value) for key, value in run.items() if value is not None}
    gpu = next((device.name for device in measures.devices if device.name), None)
    return Configuration(
        gpu=gpu or facts.get("gpu"),
        driver=facts.get("driver"),
        cuda=facts.get("cuda"),
        torch=facts.get("torch"),
        model=facts.get("model"),
        batch=_whole(facts.get("batch")),
        imgsz=_whole(facts.get("imgsz")),
        workers=_whole(facts.get("workers")),
        amp=_truth(facts.get("amp")),
        pin_memory=_truth(facts.get("pin_memory")),
    )


def recorded_with(measures: Measures) -> RecordedWith:
    """Say which costly options the recording was made with."""
    facts = measures.metadata
    return RecordedWith(
        stacks=bool(_truth(facts.get("with_stack"))),
        memory=bool(_truth(facts.get("profile_memory"))),
        shapes=bool(_truth(facts.get("record_shapes"))),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _truth(text: str | None) -> bool | None:
    word = (text or "").strip().lower()
    if word in _TRUE:
        return True
    return False if word in _FALSE else None
