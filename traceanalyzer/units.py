"""Nanoseconds, bytes and counts: the only place where they become text for people."""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def format_ns(value: float | None, *, signed: bool = False) -> str:
    """Write a duration for a reader, with three significant digits.

    Args:
        value: Nanoseconds, or None where the quantity could not be measured.
        signed: Put a plus sign before positive values.

    Returns:
        For example ``"64.2 ms"``; ``"n/a"`` for None.
    """
    if value is None:
        return "n/a"
    if value == 0:
        return "0 ns"
    sign = "-" if value < 0 else ("+" if signed and value > 0 else "")
    size = abs(value)
    for limit, scale, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        # 999.95 µs would round to "1000 µs", so it moves to the next unit
        if size < limit * 0.9995:
            return f"{sign}{_three_digits(size / scale)} {unit}"
    return f"{sign}{_three_digits(size / 1e9)} s"


def format_bytes(value: float | None) -> str:
    """Write a size with binary prefixes, for example ``"39.3 MiB"``; ``"n/a"`` for None."""
    if value is None:
        return "n/a"
    sign = "-" if value < 0 else ""
    size = abs(float(value))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1023.5:
            text = f"{size:.0f}" if unit == "B" else _three_digits(size)
            return f"{sign}{text} {unit}"
        size /= 1024
    return f"{sign}{_three_digits(size)} TiB"


def format_count(value: float) -> str:
    """Write how often something happens, three digits at least and never with an exponent: ``"0.33"``, ``"1,050"``."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 1e-4 or value == 0:
        return f"{value:.3g}"
    return f"{value:.7f}".rstrip("0").rstrip(".")


def format_share(part: float | None, whole: float | None) -> str:
    """Write ``part / whole`` as a percentage; ``"n/a"`` where either is missing or the whole is 0."""
    if part is None or not whole:
        return "n/a"
    percent = 100.0 * part / whole
    if percent != 0 and abs(percent) < 0.1:
        return f"{percent:.2g} %"
    return f"{percent:.1f} %"


def _three_digits(size: float) -> str:
    if size >= 99.95:
        return f"{size:.0f}"
    if size >= 9.995:
        return f"{size:.1f}"
    return f"{size:.2f}"
