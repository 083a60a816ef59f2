"""Root causes of idle GPU time, from PyTorch-profiler and Nsight Systems recordings.

The public Python interface is what this module exports; everything is imported on first use, so that
``import traceanalyzer`` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceanalyzer.compiled import place_compiled_code

__version__ = "0.1.0"

if TYPE_CHECKING:
    from traceanalyzer.gate import compare
    from traceanalyzer.pipeline import analyze
    from traceanalyzer.results.analysis import Analysis
    from traceanalyzer.results.comparison import Comparison

__all__ = ["Analysis", "Comparison", "__version__", "analyze", "compare"]

place_compiled_code()  # before anything imports numba

_HOMES = {
    "Analysis": "traceanalyzer.results.analysis",
    "Comparison": "traceanalyzer.results.comparison",
    "analyze": "traceanalyzer.pipeline",
    "compare": "traceanalyzer.gate",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        import_module("traceanalyzer.renderers.notebook")  # lets Jupyter show an Analysis
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
