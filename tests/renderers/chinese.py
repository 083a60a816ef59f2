"""What of a Chinese report is still English: every word a reader sees that is neither a name nor a unit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from traceanalyzer.results.analysis import Analysis

# words Chinese readers use as they are: products, formats, units, and names of things in code and tools
KEPT = frozenset(
    """
    AMP BEFORE AdamW Analysis BF CCCL CPU CSV CUDA DataParallel DistributedDataParallel EMA Enter Esc FP Fisher GB
    GPU GiB GraphModule Holm INT JSON JavaScript Kernel KiB Kornia LMDB Mann MiB Mosaic MuSGD NVIDIA NVTX
    NaN Nsight PyTorch Python Rank SGD Systems TA TF TiB True Ultralytics Whitney batch bf bfloat channels
    copy cuBLAS cuDNN degrees epoch float float32 fp graph half imgsz int8 kernel kineto last loss max
    mixup mosaic ms nonzero ns nsys perspective rank shear sqlite stream tf torch torchvision traceanalyzer
    workers
    """.split()  # noqa: SIM905 - a list would fill a page
)
_HIDDEN = {"script", "style", "code", "data", "kbd", "pre"}
_SPOKEN = {"title", "aria-label", "placeholder", "alt"}
# an identifier, a path, a call, an option: anything that joins letters by other signs than a hyphen, or mixes cases
_NAME = re.compile(
    r"`[^`]*`|--[a-z-]+(?:=[\w-]+)?|[\w.]*[A-Za-z0-9][_./:=#@<>\[\]\\{}|][^\s，。；、：（）]*"
    r"|\b[A-Z]?[a-z]+[A-Z]\w*|\w*\d\w*"
)
_CALL = re.compile(r"[\w.]+\([^()]*\)|\w+(?=，位于 \S+:\d)")  # also a function in a stack, before its file and line
_WORD = re.compile(r"[A-Za-z]{2,}")


class _Seen(HTMLParser):
    """Collects texts that are shown or read out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in _SPOKEN and value]
        if tag in _HIDDEN:
            self._hidden += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden -= 1

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))


def texts_of_page(page: str) -> list[str]:
    """Return every text of a page that a reader sees or hears, outside code."""
    seen = _Seen()
    seen.feed(page)
    return seen.texts


def english_in(texts: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Return the English words left in texts, each with one text it stands in.

    Args:
        texts: What a reader sees.
        names: Names from the recording; texts may hold them whole.
    """
    known = sorted({name for name in names if _WORD.search(name)}, key=len, reverse=True)
    spaced = [name for name in known if " " in name]
    left: dict[str, str] = {}
    for text in texts:
        rest = text
        # whole names first: another one may begin alike, and a table cuts what is long
        for form in [*spaced, *(name[:41] for name in spaced if len(name) > 42)]:
            rest = rest.replace(form, " ")
        rest = _NAME.sub(" ", _CALL.sub(" ", rest))
        if not _WORD.search(rest):
            continue
        for name in known:
            if " " not in name and name in rest:
                rest = re.sub(rf"\b{re.escape(name)}\b", " ", rest)
        for word in _WORD.findall(rest):
            if word not in KEPT:
                left.setdefault(word, text)
    return left


def names_in(analysis: Analysis) -> set[str]:
    """Return every name that a document took from a recording."""
    c = analysis.configuration
    names: set[Any] = {
        c.gpu,
        c.model,
        c.torch,
        *(i.path for i in analysis.inputs),
        *(i.format for i in analysis.inputs),
    }
    for rank in analysis.ranks:
        names |= {k.name for k in rank.kernels.top} | {k.family for k in rank.kernels.top}
        names |= {k.family for k in rank.kernels.families} | {r.name for r in rank.ranges} | set(rank.steps.name)
        evidence = [place for f in analysis.findings for place in f.evidence]
        names |= {e.where for e in evidence} | {e.what for e in evidence if "<" in e.what}
        # operators and kernels with blanks in their names: the only ones the other patterns do not take out
        names |= {text for text in rank.timeline.strings if " " in text and re.search(r"[<(:]", text)}
        names |= {device.name for device in rank.devices}
    for finding in analysis.findings:
        names |= {value for value in finding.observed.values() if isinstance(value, str)}
        names |= {*finding.observed, *finding.thresholds}
    return {name for name in names if name}
