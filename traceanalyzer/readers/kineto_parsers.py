"""Which of the two parsers reads a recording: both give the same columns, one is faster to start, one to run."""

from __future__ import annotations

import importlib.util

from traceanalyzer.model.trace import Integrity
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.kineto_columns import ChunkParser
from traceanalyzer.readers.kineto_msgspec import MsgspecParser

# Loading the compiled loop takes as long as the tolerant parser needs for so much text.
SCANNED_FROM_BYTES = 32 << 20
_USUAL_COMPRESSION = 14  # of Kineto's repetitive text


def choose_parser(stream: Stream, integrity: Integrity) -> ChunkParser:
    """Return the parser that reads a file sooner."""
    size = stream.size_bytes * (_USUAL_COMPRESSION if stream.compression else 1)
    if size < SCANNED_FROM_BYTES or importlib.util.find_spec("numba") is None:
        return MsgspecParser(integrity)
    from traceanalyzer.readers.kineto_scanner import ScannerParser  # compiled code takes a while to load

    return ScannerParser(integrity)
