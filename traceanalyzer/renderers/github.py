"""Workflow commands: lines that GitHub Actions turns into annotations of a run, or of a line of code.

The runner reads every line of a step's output, so a text must not be able to start a command of its own: line breaks
are escaped, and so is what would end a property.
"""

from __future__ import annotations


def annotation(level: str, title: str, message: str, *, file: str | None = None, line: int | None = None) -> str:
    """Write one annotation.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        title: A few words, without characters that change how a line is shown (see ``text.visible``).
        message: What happened; the same holds.
        file: Path relative to the repository, with forward slashes.
        line: Line of the file, counted from 1; only with ``file``.
    """
    place = "" if file is None else f"file={_property(file)},"
    if file is not None and line is not None:
        place += f"line={line},"
    return f"::{level} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
