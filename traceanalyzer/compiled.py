"""Where compiled code is kept when neither the installation nor the user's cache can be written.

numba keeps what it compiles beside the source or in the user's cache folder, and refuses to start where it finds
neither: in a read-only installation run by a user without a home, as in many containers.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def place_compiled_code() -> None:
    """Point numba to a private folder for temporary files where it would find no place of its own."""
    if VARIABLE in os.environ or _is_writable(Path(__file__).parent) or _is_writable(_user_cache()):
        return
    import tempfile

    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"traceanalyzer-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # compiled code is executed: only a folder that nobody else could have filled will do
        is_private = (
            folder.is_dir() and not folder.is_symlink() and status.st_uid == user and not status.st_mode & 0o077
        )
    except OSError:
        is_private = False
    os.environ[VARIABLE] = str(folder) if is_private else tempfile.mkdtemp(prefix="traceanalyzer-")


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(base) if base else Path(os.path.expanduser("~"), ".cache")  # noqa: PTH111 (never raises)


def _is_writable(folder: Path) -> bool:
    """Say whether files can be made in a folder, or the folder itself where it does not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)
