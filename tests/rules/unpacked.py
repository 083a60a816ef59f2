"""Uncompressed copies of shared databases."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=8)
def unpacked(path: Path) -> Path:
    """Return an uncompressed copy of a gzip file, made once per test run."""
    target = Path(tempfile.mkdtemp(prefix="recording-")) / path.stem
    with gzip.open(path) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    return target
