"""What a memory snapshot holds, as the report draws it: the map of segments as inline SVG, and its tables' words."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from traceanalyzer.results.memory import DeviceMemory, SegmentMap
from traceanalyzer.units import format_bytes

WIDTH = 1000
ROW = 9
GAP = 2
LEAST = 2.0  # narrower segments would not be seen
_COLOURS = ("b-compute", "c-sync_wait", "line")  # used, pending, free
LEGEND = (("b-compute", "in use"), ("c-sync_wait", "freed, a stream still uses it"), ("line", "free"))


def device_name(device: DeviceMemory) -> str:
    """Name a device of the allocator."""
    return "Pinned host memory" if device.device_id < 0 else f"GPU {device.device_id}"


def segment_map(device: DeviceMemory) -> Markup:
    """Draw a device's largest segments, one bar each, wrapped into rows; lengths are in proportion to bytes.

    Args:
        device: The device.

    Returns:
        An ``<svg>`` element of numbers and fixed words; empty without segments.
    """
    if not device.map:
        return Markup("")
    scale = (WIDTH - 1) / max(segment.total_bytes for segment in device.map) if device.map else 1.0
    parts: list[str] = []
    x, y = 0.0, 0
    for segment in device.map:
        width = max(segment.total_bytes * scale, LEAST)
        if x and x + width > WIDTH:
            x, y = 0.0, y + ROW + GAP
        parts.append(_bar(segment, x, y, width))
        x += width + GAP
    height = y + ROW
    size = format_bytes(sum(segment.total_bytes for segment in device.map))
    label = f"{len(device.map)} segments, {size}, drawn in proportion to size"
    return Markup(
        f'<svg class="segments" viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _bar(segment: SegmentMap, x: float, y: int, width: float) -> str:
    boxes = [_box(x, y, width, _COLOURS[2])]
    scale = width / segment.total_bytes if segment.total_bytes else 0.0
    at = x
    for size, state in zip(segment.size_bytes, segment.state, strict=True):
        if state != 2:
            boxes.append(_box(at, y, size * scale, _COLOURS[state]))
        at += size * scale
    return "".join(boxes)


def _box(x: float, y: int, width: float, colour: str) -> str:
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW}" style="fill:var(--{colour})"/>'


def shown(values: Sequence[object], most: int = 8) -> Sequence[object]:
    """Cut a list for a table."""
    return values[:most]
