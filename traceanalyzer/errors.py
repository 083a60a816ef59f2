"""Errors a user can act on: one line saying what, where and what to do next."""

from __future__ import annotations


class TraceAnalyzerError(Exception):
    """Base of every error the command line turns into one line on stderr.

    Attributes:
        exit_code: Process exit code the command line uses.
    """

    exit_code = 2


class TraceFormatError(TraceAnalyzerError):
    """The input is not a recording this tool can use.

    Args:
        path: The input as the user named it.
        problem: What is wrong, in a few words.
        hint: What to do about it.
        where: Place inside the input (byte offset, table, key); empty when it is the whole input.
    """

    def __init__(self, path: str, problem: str, hint: str = "", where: str = "") -> None:
        self.path = path
        self.problem = problem
        self.hint = hint
        self.where = where
        place = f" at {where}" if where else ""
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{path}{place}: {problem}{advice}")


class UsageError(TraceAnalyzerError):
    """The command or call cannot be carried out as asked."""
