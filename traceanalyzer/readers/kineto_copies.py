"""What the title of a copy says: its direction and the memory at its host end."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceanalyzer.model.schema import ByteArray, CodeArray, CopyDirection, MemoryKind

# "Memcpy HtoD (Pinned -> Device)" (NVIDIA), "CopyHostToDevice" or "Memcpy HtoD (Host -> Device)" (AMD);
# A is a CUDA array, which lies on the device
_ENDS = re.compile(r"(?<![A-Za-z])([HDAP])to([HDAP])(?![a-z])|(Host|Device|Peer)To(Host|Device|Peer)")
_HOST_KINDS = (
    ("pageable", MemoryKind.PAGEABLE),
    ("pinned", MemoryKind.PINNED),
    ("managed", MemoryKind.MANAGED),
    ("unified", MemoryKind.MANAGED),
)
_DIRECTIONS = {
    "HD": CopyDirection.H2D,
    "DH": CopyDirection.D2H,
    "DD": CopyDirection.D2D,
    "PP": CopyDirection.P2P,
}


def direction(title: str) -> CopyDirection:
    """Return the direction a copy's title names, ``OTHER`` where it names none of the four."""
    match = _ENDS.search(title)
    if match is None:
        return CopyDirection.OTHER
    source, target = match.group(1, 2) if match.group(1) else match.group(3, 4)
    ends = (source[0] + target[0]).replace("A", "D")
    return _DIRECTIONS.get(ends, CopyDirection.P2P if "P" in ends else CopyDirection.OTHER)


def host_memory(title: str) -> MemoryKind:
    """Return the kind of host memory a copy's title names, ``UNKNOWN`` where it does not."""
    lower = title.lower()
    return next((kind for word, kind in _HOST_KINDS if word in lower), MemoryKind.UNKNOWN)


def describe(name_codes: CodeArray, names: Sequence[str]) -> tuple[ByteArray, ByteArray]:
    """Return direction and host memory kind of every copy.

    Args:
        name_codes: Title of each copy, code into ``names``.
        names: The string table.
    """
    titles, row = np.unique(name_codes, return_inverse=True)
    directions = np.array([direction(names[code]) for code in titles], dtype=np.int8)
    kinds = np.array([host_memory(names[code]) for code in titles], dtype=np.int8)
    return directions[row], kinds[row]
