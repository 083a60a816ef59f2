"""The part of an Analysis document that a comparison reads, and which document a file holds.

Decoding only this part of a long recording's document takes a tenth of the time, and a gate runs on every change.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgspec

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.results.analysis import SCHEMA as ANALYSIS
from traceanalyzer.results.analysis import Configuration, KernelsReport, PerStep, RecordedWith, Tool
from traceanalyzer.results.baseline import SCHEMA as BASELINE
from traceanalyzer.results.baseline import Baseline
from traceanalyzer.results.vocabulary import StepClass, StepSource

_HEAD_BYTES = 4096
_GZIP = b"\x1f\x8b"


class ComparableInput(msgspec.Struct, frozen=True, kw_only=True):
    """Format of one input; see ``Input``."""

    format: str


class ComparableSteps(msgspec.Struct, frozen=True, kw_only=True, rename={"step_class": "class"}):
    """Where the windows come from and their classes; see ``StepsReport``."""

    source: StepSource
    step_class: list[StepClass]


class ComparableDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device; see ``DeviceReport``."""

    device_id: int


class ComparableCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction; see ``CopyReport``."""

    time_ns: int
    overlapped_ns: int


class ComparableCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Copies by direction; see ``CopiesReport``."""

    h2d: ComparableCopy


class ComparableAllocator(msgspec.Struct, frozen=True, kw_only=True):
    """Peak of the allocator; see ``AllocatorReport``."""

    peak_reserved_bytes: int | None = None


class ComparablePositions(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of the modal step; see ``Positions``. The matrices stay text: they are four fifths of a document."""

    name: list[str]
    interval_ns: msgspec.Raw
    launch_call_ns: msgspec.Raw


class ComparableRank(msgspec.Struct, frozen=True, kw_only=True):
    """One process; see ``RankReport``."""

    rank: int
    steps: ComparableSteps
    per_step: PerStep
    positions: ComparablePositions
    devices: list[ComparableDevice]
    copies: ComparableCopies
    allocator: ComparableAllocator
    kernels: KernelsReport


class ComparableAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """A document as far as a comparison reads it; see ``Analysis``."""

    schema: str
    tool: Tool
    inputs: list[ComparableInput]
    configuration: Configuration
    recorded_with: RecordedWith
    ranks: list[ComparableRank]


class _Head(msgspec.Struct):
    schema: str = ""


def _is_document(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"traceanalyzer.' in head


def _beginning(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as stream:
            return stream.read(_HEAD_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""  # a recording may be salvaged even so, which is for its reader to say


def read_comparable(path: Path) -> ComparableAnalysis | Baseline | None:
    """Read what a comparison needs of a document; None where the file is not a document of this tool.

    Args:
        path: File to look at; it need not exist.

    Raises:
        TraceFormatError: It is a document of this tool, but damaged, or one that cannot be compared.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
        if head.startswith(_GZIP):
            # most gzip files are recordings, so only the beginning is unpacked to see
            if not _is_document(_beginning(path)):
                return None
            with gzip.open(path, "rb") as stream:
                text = stream.read()
            head = text[:_HEAD_BYTES]
        elif _is_document(head):
            text = path.read_bytes()
        else:
            return None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormatError(str(path), f"damaged gzip: {error}", "make it again") from error
    except OSError as error:
        raise TraceFormatError(str(path), f"cannot be read: {error.strerror or error}") from error
    try:
        # the schema is the first key this tool writes; a whole pass over a long document only to find it is waste
        schema = ANALYSIS if f'"{ANALYSIS}"'.encode() in head else msgspec.json.decode(text, type=_Head).schema
        if schema == ANALYSIS:
            return msgspec.json.decode(text, type=ComparableAnalysis)
        if schema == BASELINE:
            return Baseline.from_json(text)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise TraceFormatError(str(path), f"not a whole document: {error}", "make it again") from error
    raise TraceFormatError(
        str(path), f"its schema is {schema!r}", f"name a recording, an analysis ({ANALYSIS}) or a baseline ({BASELINE})"
    )
