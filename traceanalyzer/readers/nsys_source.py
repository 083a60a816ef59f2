"""Size and identity of an Nsight Systems input, which may be a file or a folder of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

_EDGE_BYTES = 64 << 10
_SAMPLES = 64
_SAMPLE_BYTES = 4096


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files directly in a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size


def fingerprint(path: Path) -> str:
    """Identify a file or folder by its size and a hash of sampled content; file names count in a folder."""
    digest = hashlib.blake2b(digest_size=16)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(file.name.encode() if path.is_dir() else b"")
        size = file.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with file.open("rb") as data:
            digest.update(data.read(_EDGE_BYTES))
            for i in range(_SAMPLES if size > 2 * _EDGE_BYTES else 0):
                data.seek(size * (i + 1) // (_SAMPLES + 1))
                digest.update(data.read(_SAMPLE_BYTES))
            data.seek(max(0, size - _EDGE_BYTES))
            digest.update(data.read(_EDGE_BYTES))
    return f"{size_on_disk(path)}-{digest.hexdigest()}"
