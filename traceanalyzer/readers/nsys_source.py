"""Size and identity of an Nsight Systems input, which may be a file or a folder of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from traceanalyzer.readers import files


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files directly in a folder."""
    return sum(file.stat().st_size for file in _files(path))


def fingerprint(path: Path) -> str:
    """Identify a file, or a folder by the names and fingerprints of its files."""
    if not path.is_dir():
        return files.fingerprint(path)
    digest = hashlib.blake2b(digest_size=16)
    for file in _files(path):
        digest.update(f"{file.name}\0{files.fingerprint(file)}\n".encode())
    return f"{size_on_disk(path)}-{digest.hexdigest()}"


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
