"""Where in the user's code a moment of a host thread was."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from traceanalyzer.measures.arithmetic import flatten_innermost
from traceanalyzer.measures.host_nesting import RANGE_WRITTEN_AS_OPERATOR
from traceanalyzer.model.schema import (
    IntArray,
    SliceKind,
    among,
)
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


_FRAME = re.compile(r"^(?P<path>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_INSTALLED = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")
_STANDARD_LIBRARY = re.compile(r"^.*[/\\]lib[/\\]python\d(?:\.\d+)?[/\\](?!(?:site|dist)-packages)")
# installed packages whose frames only carry out what the user's frame asked for
_LIBRARIES = frozenset(
    (
        "torch",
        "torchvision",
        "torchaudio",
        "numpy",
        "triton",
        "cv2",
        "PIL",
        "tqdm",
        "nvtx",
        "pandas",
        "scipy",
        "functorch",
    )
)
# training frameworks installed as packages: their frames are where the user would look
_FRAMEWORKS = (
    "ultralytics",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
    "timm",
    "mmengine",
    "mmdet",
)
# operators that ``emit_nvtx`` writes as ranges: "aten::copy_, op_id = 991887"
_EMITTED_OPERATOR = re.compile(r"^(aten|autograd|nccl|c10d|torch)\w*::|, (seq|op_id) = \d+")
_EMITTED_SUFFIX = re.compile(r"(, (seq|op_id) = \d+)+$")
_AUTOGRAD = "autograd::engine::evaluate_function"

_USER, _LIBRARY, _NO_FRAME = range(3)


class Locations:
    """Looks up the innermost user frame, range and operator at a moment of a thread."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._index: dict[tuple[int, str], tuple[IntArray, IntArray]] = {}
        slices = trace.slices
        self._rows = {
            "python": np.flatnonzero(slices.kind == SliceKind.PYTHON),
        }
        self._rows["range"], self._rows["operator"] = self._ranges_and_operators()
        frames = self._rows["python"]
        codes = np.unique(slices.name[frames])
        rank = {c: _rank(trace.names[c]) for c in codes.tolist() if c >= 0}
        self._rows["user"] = frames[np.isin(slices.name[frames], [c for c, r in rank.items() if r == _USER])]
        self._rows["frame"] = frames[np.isin(slices.name[frames], [c for c, r in rank.items() if r != _NO_FRAME])]
        self._autograd = self._autograd_threads()
        self._driving = self._driving_thread()

    @property
    def has_stacks(self) -> bool:
        """Whether the recording holds Python frames."""
        return len(self._rows["frame"]) > 0

    def at(self, thread: int, time_ns: int) -> Place:
        """Return the place open on a thread at a moment; library frames are skipped where a user frame is open.

        Without any frame or range on an autograd thread, the driving thread's place stands in: it waits in the
        ``backward`` call that set the autograd thread to work.

        Args:
            thread: Index into ``Trace.threads``; -1 unknown.
            time_ns: Moment, ns.
        """
        operator = _EMITTED_SUFFIX.sub("", self._name(self._open(thread, time_ns, "operator")))
        where = self._where(thread, time_ns)
        if not where and thread in self._autograd and self._driving >= 0:
            where = self._where(self._driving, time_ns)
        return Place(where=where, operator=operator)

    def _ranges_and_operators(self) -> tuple[IntArray, IntArray]:
        """Tell user ranges from operators by name too: some recordings write either as the other.

        Step markers are no places: every moment of the step lies in one.
        """
        slices, names = self._trace.slices, self._trace.names
        rows = np.flatnonzero((slices.kind == SliceKind.ANNOTATION) | (slices.kind == SliceKind.OPERATOR))
        annotated = slices.kind[rows] == SliceKind.ANNOTATION
        codes = [c for c in np.unique(slices.name[rows]).tolist() if c >= 0]
        emitted = among(slices.name[rows], [c for c in codes if _EMITTED_OPERATOR.search(names[c])])
        ranges = among(slices.name[rows], [c for c in codes if RANGE_WRITTEN_AS_OPERATOR.match(names[c])])
        markers = among(slices.name[rows], [c for c in codes if names[c].startswith("ProfilerStep")])
        is_range = ((annotated & ~emitted) | ranges) & ~markers
        return rows[is_range], rows[~is_range & ~markers]

    def _where(self, thread: int, time_ns: int) -> str:
        for source in ("user", "frame", "range"):
            row = self._open(thread, time_ns, source)
            if row >= 0:
                name = self._name(row)
                return shorten_frame(name) if source != "range" else name
        return ""

    def _open(self, thread: int, time_ns: int, source: str) -> int:
        """Innermost row of a kind open on a thread at a moment; -1 none."""
        if thread < 0 or not len(self._rows[source]):
            return -1
        at_ns, row = self._changes(thread, source)
        last = int(np.searchsorted(at_ns, time_ns, side="right")) - 1
        return int(row[last]) if last >= 0 else -1

    def _changes(self, thread: int, source: str) -> tuple[IntArray, IntArray]:
        found = self._index.get((thread, source))
        if found is None:
            slices, rows = self._trace.slices, self._rows[source]
            rows = rows[slices.thread[rows] == thread]
            at_ns = np.empty(2 * len(rows) + 1, dtype=np.int64)
            innermost = np.empty(2 * len(rows) + 1, dtype=np.int64)
            count = flatten_innermost(slices.start_ns[rows], slices.end_ns[rows], at_ns, innermost)
            chosen = innermost[:count]
            open_row = np.where(chosen >= 0, rows[np.maximum(chosen, 0)], -1) if len(rows) else chosen
            found = self._index[(thread, source)] = (at_ns[:count], open_row)
        return found

    def _name(self, row: int) -> str:
        code = int(self._trace.slices.name[row]) if row >= 0 else -1
        return self._trace.names[code] if code >= 0 else ""

    def _autograd_threads(self) -> frozenset[int]:
        slices, rows = self._trace.slices, self._rows["operator"]
        codes = [c for c in np.unique(slices.name[rows]).tolist() if c >= 0 and _AUTOGRAD in self._trace.names[c]]
        return frozenset(np.unique(slices.thread[rows[among(slices.name[rows], codes)]]).tolist())

    def _driving_thread(self) -> int:
        """Thread with most user frames, else most ranges, that is no autograd thread; -1 none."""
        for source in ("user", "range"):
            threads, count = np.unique(self._trace.slices.thread[self._rows[source]], return_counts=True)
            ranked = sorted(zip(count.tolist(), threads.tolist(), strict=True), reverse=True)
            for _, thread in ranked:
                if thread not in self._autograd:
                    return int(thread)
        return -1


def shorten_frame(name: str) -> str:
    """Cut the installation folder off a frame's path: ``…/site-packages/torch/x.py(1): f`` → ``torch/x.py(1): f``."""
    return _INSTALLED.sub("", name)


@lru_cache(maxsize=65536)
def _rank(name: str) -> int:
    frame = _FRAME.match(name)
    if frame is None or name.startswith("<"):
        return _NO_FRAME  # built-in functions, modules' names, frozen imports
    path = frame["path"]
    if _STANDARD_LIBRARY.match(path):
        return _LIBRARY
    installed = _INSTALLED.match(path) is not None
    relative = _INSTALLED.sub("", path).replace("\\", "/")
    top = relative.split("/", 1)[0].removesuffix(".py")
    if top in _FRAMEWORKS:
        return _USER
    if installed or top in _LIBRARIES:
        return _LIBRARY
    # paths are recorded relative to the import path, so the standard library shows as ``threading.py``
    return _LIBRARY if top in sys.stdlib_module_names else _USER
