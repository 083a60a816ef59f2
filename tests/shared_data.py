"""Recordings that are not part of the repository; tests that need them skip, saying so, where they are absent."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


def shared(relative: str) -> Path:
    """Return a shared file or folder, or skip the calling test with the reason.

    Args:
        relative: Path below the shared folder.
    """
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"shared recording {relative} is not beside the checkout ({SHARED})")
    return path


def shared_files(pattern: str) -> list[Path]:
    """Return the shared files matching a glob, sorted; empty where the folder is absent."""
    return sorted(SHARED.glob(pattern)) if SHARED.exists() else []
