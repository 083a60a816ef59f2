"""What every reader offers, and the few things all of them share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from traceanalyzer.model.trace import Recording

HEAD_BYTES = 65_536

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) while a recording is read; bytes in all is 0 when unknown."""


class Reader(Protocol):
    """The shape of a reader module."""

    NAME: str
    """Format name used in the document's ``inputs``."""

    def sniff(self, path: Path, head: bytes) -> bool:
        """Say whether the content (never the name alone) is this format.

        Args:
            path: File or folder.
            head: First ``HEAD_BYTES`` of the file, already decompressed when it is gzip or xz; empty for a folder.
        """

    def read(self, path: Path, progress: Progress | None = None) -> Recording:
        """Read a whole recording.

        Raises:
            TraceFormatError: Nothing usable is in it.
        """
