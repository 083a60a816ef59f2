"""Finds a file that a recording names in the repository at hand, which may lie elsewhere than where it was recorded."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

_INSTALLED = {"site-packages", "dist-packages"}


class SourceTree:
    """The repository around a folder, or the folder itself where none is."""

    def __init__(self, start: Path) -> None:
        self._start = start.resolve()
        self.root = next((f for f in (self._start, *self._start.parents) if (f / ".git").exists()), self._start)

    def relative(self, recorded: str) -> str | None:
        """Return a recorded file's path relative to the repository; None where it is not a file of it.

        A relative path is looked for below the current folder, the repository and its ``src``. An absolute one that
        was recorded elsewhere is recognised by its end, the longest one that exists here.

        Args:
            recorded: The path as the recording has it, with forward slashes.
        """
        parts = PurePosixPath(recorded).parts
        if not parts or ".." in parts or _INSTALLED & set(parts) or "\0" in recorded:
            return None
        is_absolute = recorded.startswith("/") or parts[0].endswith(":")
        if not is_absolute:
            return self._inside(parts, (self._start, self.root, self.root / "src"))
        for first in range(1, len(parts)):
            found = self._inside(parts[first:], (self.root,))
            if found is not None:
                return found
        return None

    def _inside(self, parts: tuple[str, ...], folders: tuple[Path, ...]) -> str | None:
        for folder in folders:
            path = folder.joinpath(*parts)
            try:
                if path.is_file() and path.resolve().is_relative_to(self.root):
                    return path.resolve().relative_to(self.root).as_posix()
            except (OSError, ValueError):  # a name this file system cannot hold
                continue
        return None
