"""The instrumented training loop; the only place that imports torch.

Torch is imported by the functions that need it, so that naming this package costs nothing. The package itself needs
nothing beyond the standard library and torch (and Ultralytics for YOLO, nvtx for Nsight Systems), so it also runs on
a training machine where the analysis half is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.recording.recorder import Recorder
    from traceanalyzer.recording.yolo import record_ultralytics, record_yolo

__all__ = ["Recorder", "record_ultralytics", "record_yolo"]

_HOMES = {
    "Recorder": "traceanalyzer.recording.recorder",
    "record_ultralytics": "traceanalyzer.recording.yolo",
    "record_yolo": "traceanalyzer.recording.yolo",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
