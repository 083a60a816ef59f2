"""Giving memory back: what a stage has freed, the next one would otherwise come on top of."""

from __future__ import annotations

import ctypes


def return_memory() -> None:
    """Give freed memory back to the operating system, where the C library can be asked to.

    It would keep some hundred MB of a long recording for later use, in pieces too small for what comes later.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return  # not glibc
    trim(0)
