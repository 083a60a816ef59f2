"""The terminal, as every command writes to it."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class Terminal(Console):
    """A console that reports a closed pipe (``| head``) as what it is, instead of leaving with exit code 1.

    Exit code 1 means that a gate fired; ``cli.main`` turns the exception into a quiet 0.
    """

    def on_broken_pipe(self) -> NoReturn:
        """Tell ``cli.main`` that nobody is left to read."""
        raise BrokenPipeError
