"""The folder a recording leaves: ``run.json`` and the files it names.

``run.json`` is rewritten as a whole, atomically, at every stage of the run, so a crash, an interrupt or a full disk
leaves the last complete state. It never holds environment variables, host or user names, or absolute paths.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError

SCHEMA = "traceanalyzer.run/1"
RUN_FILE = "run.json"
_WAIT_S = 120
_RESERVE_FILE = ".reserve"
_RESERVE_BYTES = 1 << 20  # more than any run.json: what the last state is written into when the disk is full


class RunFolder:
    """One run's folder and document.

    Args:
        path: The folder; made when absent.
        overwrite: Replace an earlier run there. A folder that holds anything else is refused all the same.
        rank: Process rank; ranks above 0 write ``run.rankN.json`` beside rank 0's document.
        append: Continue the run found there (a second pass with another profiler).

    Raises:
        UsageError: The folder cannot be used.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, rank: int = 0, append: bool = False) -> None:
        self.path = Path(path)
        self.rank = rank
        self.document: dict[str, Any] = {"schema": SCHEMA, "state": "running", "error": None}
        if append:
            self.document = read_document(self.path)
        elif rank == 0:
            prepare_folder(self.path, overwrite=overwrite)
        else:
            _wait_for_first_rank(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._reserve = self.path / (_RESERVE_FILE if rank == 0 else f"{_RESERVE_FILE}.rank{rank}")
        self._reserve.write_bytes(b"\0" * _RESERVE_BYTES)
        self.save()

    @property
    def document_path(self) -> Path:
        """Where this rank's document lies."""
        return self.path / (RUN_FILE if self.rank == 0 else f"run.rank{self.rank}.json")

    def save(self) -> None:
        """Write the document atomically, giving up the reserve when the disk is full.

        Raises:
            OSError: It cannot be written even so; the previous state stays readable.
        """
        text = json.dumps(self.document, indent=1, sort_keys=True, allow_nan=False) + "\n"
        try:
            _write_atomically(self.document_path, text)
        except OSError:
            if not self._reserve.exists():
                raise
            self._reserve.unlink()
            _write_atomically(self.document_path, text)

    def note(self, sentence: str) -> None:
        """Add a sentence for the reader, once."""
        notes = self.document.setdefault("notes", [])
        if sentence not in notes:
            notes.append(sentence)

    def close(self, state: str, error: str | None = None) -> None:
        """Write the last state and remove the reserve.

        Args:
            state: ``complete``, ``interrupted`` or ``failed``.
            error: One line, where it did not complete.
        """
        self.document["state"] = state
        self.document["error"] = error
        self.save()
        self._reserve.unlink(missing_ok=True)


def prepare_folder(path: Path, *, overwrite: bool) -> None:
    """Make sure a new run may be written there.

    Raises:
        UsageError: Something is in the way.
    """
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file; name a folder that does not exist yet")
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise UsageError(f"{path}: already exists; name a new folder or add --overwrite")
    if not (path / RUN_FILE).is_file():
        raise UsageError(f"{path}: not a run folder, so --overwrite will not empty it; name another")
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def read_document(path: Path) -> dict[str, Any]:
    """Read a run's document.

    Raises:
        UsageError: There is none, or it is not one.
    """
    file = path / RUN_FILE
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: holds no {RUN_FILE}") from None
    except ValueError:
        raise UsageError(f"{file}: not valid JSON") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{file}: not a {SCHEMA} document")
    return document


def _wait_for_first_rank(path: Path) -> None:
    """Wait until rank 0 has begun the run: only it decides whether the folder may be used.

    Raises:
        UsageError: It did not within two minutes.
    """
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with suppress(UsageError):
            if read_document(path)["state"] == "running":
                return
        time.sleep(0.1)
    raise UsageError(f"{path}: rank 0 did not begin a run there")


def describe_error(error: BaseException) -> str:
    """Return one line about an exception: its type and first line, without paths."""
    first = (str(error).strip().splitlines() or [""])[0]
    words = [Path(word).name if word.startswith(("/", "'/", '"/')) else word for word in first.split(" ")]
    return f"{type(error).__name__}: {' '.join(words)}"[:300]


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
