"""Named ranges on the host, seen by both profilers.

torch.profiler records ``record_function`` ranges and Nsight Systems records NVTX ranges; a recording must show the same
phases whichever profiler made it. Each costs microseconds, so ranges are emitted only while something listens: the
unprofiled steps must stay unprofiled.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

NSYS_VERSION_VARIABLE = "TRACEANALYZER_NSYS_VERSION"
"""Set by the launcher in the profiled process: version of the Nsight Systems around it."""

APPEND_VARIABLE = "TRACEANALYZER_APPEND"
"""Set by the launcher in the profiled process when it adds a pass to a run instead of starting one."""

# The first nvtx release whose ranges an Nsight Systems of 2023 does not see: it registers through a newer NVTX
# entry point than that profiler injects itself into.
NVTX_UNSEEN_SINCE = (0, 2, 12)
NSYS_SEES_NEW_NVTX_SINCE = (2024, 1)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version (``"2023.4.1.97-234"`` → ``(2023, 4, 1, 97)``); empty when none."""
    numbers = []
    for part in text.replace("-", ".").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def nvtx_version() -> str | None:
    """Return the version of the installed nvtx package, or None."""
    try:
        return version("nvtx")
    except PackageNotFoundError:
        return None


def nvtx_problem(nvtx: str | None, nsys: str | None) -> str | None:
    """Say why Nsight Systems will not see the ranges, or None when it will.

    Args:
        nvtx: Version of the nvtx package; None when it is not installed.
        nsys: Version of Nsight Systems; None when unknown or not used.
    """
    if nsys is None:
        return None
    if nvtx is None:
        return "the nvtx package is not installed: Nsight Systems will show no steps or phases"
    profiler = parse_version(nsys)
    if profiler and profiler < NSYS_SEES_NEW_NVTX_SINCE and parse_version(nvtx) >= NVTX_UNSEEN_SINCE:
        return (
            f"nvtx {nvtx} records nothing under Nsight Systems {nsys}: "
            "install nvtx<0.2.12 or use Nsight Systems 2024 or later to see steps and phases"
        )
    return None


class RangeEmitter:
    """Opens and closes named ranges in whichever profilers listen.

    Attributes:
        torch_enabled: Emit ``record_function`` ranges (set while torch.profiler collects).
        nvtx_enabled: Emit NVTX ranges (set under Nsight Systems).
    """

    def __init__(self) -> None:
        self.torch_enabled = False
        self.nvtx_enabled = NSYS_VERSION_VARIABLE in os.environ
        self._open: list[tuple[Any, bool] | None] = []
        self._push_nvtx: Any = None
        self._pop_nvtx: Any = None
        if self.nvtx_enabled:
            self._load_nvtx()

    def _load_nvtx(self) -> None:
        try:
            import nvtx
        except ImportError:
            self.nvtx_enabled = False
            return
        self._push_nvtx = nvtx.push_range
        self._pop_nvtx = nvtx.pop_range

    def push(self, name: str) -> None:
        """Open a range; it must be closed by ``pop`` on the same thread."""
        if not (self.torch_enabled or self.nvtx_enabled):
            self._open.append(None)
            return
        function = None
        if self.torch_enabled:
            from torch.profiler import record_function

            function = record_function(name)
            function.__enter__()
        if self.nvtx_enabled:
            self._push_nvtx(name)
        self._open.append((function, self.nvtx_enabled))

    def pop(self) -> None:
        """Close the innermost range, in the profilers it was opened in."""
        opened = self._open.pop()
        if opened is None:
            return
        function, in_nvtx = opened
        if in_nvtx:
            self._pop_nvtx()
        if function is not None:
            function.__exit__(None, None, None)
