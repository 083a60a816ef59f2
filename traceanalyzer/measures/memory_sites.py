"""Which place in the code holds how much memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceanalyzer.model.memory_snapshot import Frame, MemorySnapshot
from traceanalyzer.model.schema import CodeArray, IntArray
from traceanalyzer.results.memory import CallSite

MOST_SITES = 12
SHOWN_FRAMES = 5
NO_STACK = "no Python stack recorded (backward pass or library)"

_INSTALLED = re.compile(r"^.*[/\\](?:(?:site|dist)-packages|python3\.\d+)[/\\]")
# frames of these only carry out what the frame outside them asked for
_LIBRARY = re.compile(r"^(?:torch|torchvision|numpy|functorch|triton)[/\\]")


class Sites:
    """Names stacks; equal places share a name."""

    def __init__(self, snapshot: MemorySnapshot) -> None:
        self._stacks = snapshot.stacks
        self._known: dict[int, tuple[str, list[str]]] = {}

    def of(self, stack: int) -> tuple[str, list[str]]:
        """Return the place of a stack code and the frames around it."""
        if stack not in self._known:
            self._known[stack] = _describe(self._stacks[stack]) if stack >= 0 else (NO_STACK, [])
        return self._known[stack]

    def top(self, stack: CodeArray, size: IntArray) -> list[CallSite]:
        """Sum blocks by place, largest first, at most ``MOST_SITES``.

        Args:
            stack: Stack code of each block.
            size: Its size.
        """
        codes, inverse = np.unique(stack, return_inverse=True)
        total = np.zeros(len(codes), dtype=np.int64)
        np.add.at(total, inverse, size)
        count = np.bincount(inverse, minlength=len(codes))
        made: dict[str, tuple[int, int, list[str]]] = {}
        for code, number, held in zip(codes.tolist(), count.tolist(), total.tolist(), strict=True):
            where, frames = self.of(code)
            before = made.get(where, (0, 0, frames))
            made[where] = (before[0] + number, before[1] + held, before[2])
        ordered = sorted(made.items(), key=lambda item: (-item[1][1], item[0]))[:MOST_SITES]
        return [CallSite(where=name, count=n, size_bytes=held, stack=frames) for name, (n, held, frames) in ordered]


def _describe(frames: Sequence[Frame]) -> tuple[str, list[str]]:
    python = [frame for frame in frames if frame.file.endswith(".py")]
    if not python:
        return NO_STACK, []
    texts = [f"{frame.function} at {short_file(frame.file)}:{frame.line}" for frame in python]
    own = next((i for i, frame in enumerate(python) if not _LIBRARY.match(short_file(frame.file))), 0)
    return texts[own], texts[own : own + SHOWN_FRAMES]


def short_file(name: str) -> str:
    """Return a library's file below its package folder, and the bare name of any other."""
    inside, found = _INSTALLED.subn("", name)
    if found or name.startswith("torch/"):
        return inside
    # recorders may have shortened it already: a relative path tells nothing about the machine
    return name if not name.startswith(("/", "~")) and ":" not in name else re.split(r"[/\\]", name)[-1]
