"""TensorBoard event files: per-step scalars and the report's figures as images.

The files are written with the ``tensorboard`` package alone (neither torch nor TensorFlow), and hold no clock and no
host name: equal documents give equal bytes, and a second run replaces the files of the first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.renderers.figures import (
    BOTTOM_IN,
    HEIGHT_IN,
    LEFT_IN,
    RIGHT_IN,
    SETTINGS,
    TOP_IN,
    Figure,
    draw_figures,
)
from traceanalyzer.renderers.html_palette import css_variables
from traceanalyzer.results.analysis import Analysis, RankReport

# TensorBoard recognises an event file by "tfevents" in its name, nothing else.
FILE_NAME = "events.out.tfevents.0000000000.traceanalyzer"
DPI = 110
LEGEND_ROW_IN = 0.22
LEGEND_COLUMNS = 3
_PAGE_COLOURS = {"ink": "#18212c", "soft": "#586474", "line": "#dfe3e8"}
_GIB = 1024**3

Scalar = tuple[str, int, float]


def require_tensorboard() -> None:
    """Check that event files can be written.

    Raises:
        UsageError: The ``tensorboard`` package is not installed.
    """
    if find_spec("tensorboard") is None:
        raise UsageError("--tensorboard needs the tensorboard package: pip install tensorboard")


def render_tensorboard(analysis: Analysis) -> dict[str, bytes]:
    """Return event files by path relative to the log directory: one, or one per rank in a folder ``rankN``.

    Steps count from 0 in the order of the recording's step windows; an event's wall time is the step's own start.

    Raises:
        UsageError: The ``tensorboard`` package is not installed.
    """
    require_tensorboard()
    several = len(analysis.ranks) > 1
    return {
        f"rank{rank.rank}/{FILE_NAME}" if several else FILE_NAME: _event_file(rank, analysis.tool.version)
        for rank in analysis.ranks
    }


def step_scalars(rank: RankReport) -> Iterator[Scalar]:
    """Yield ``(tag, step, value)`` of everything known per step window: times in ms, shares in %, memory in GiB."""
    series = rank.per_step
    for step, (window, idle) in enumerate(zip(series.window_ns, series.idle_ns, strict=True)):
        yield "step/time_ms", step, window / 1e6
        if window:
            yield "gpu/busy_percent", step, 100 * (window - idle) / window
            yield "gpu/idle_percent", step, 100 * idle / window
        yield "gpu/idle_ms", step, idle / 1e6
    for cause, values in series.idle_by_cause_ns.items():
        for step, value in enumerate(values):
            yield f"idle_by_cause_ms/{cause}", step, value / 1e6
    for step, value in enumerate(series.exposed_h2d_ns):
        yield "h2d/exposed_ms", step, value / 1e6
    yield from _memory_scalars(rank)


def run_scalars(rank: RankReport) -> Iterator[Scalar]:
    """Yield ``(tag, 0, value)`` of what is one number for the whole recording."""
    for device in rank.devices:
        if device.span_ns:
            yield f"run/device{device.device_id}_busy_percent", 0, 100 * device.busy_ns / device.span_ns
    h2d = rank.copies.h2d
    if h2d.time_ns:
        yield "h2d/overlap_percent", 0, 100 * h2d.overlapped_ns / h2d.time_ns
    if rank.allocator.peak_allocated_bytes is not None:
        yield "run/peak_allocated_gib", 0, rank.allocator.peak_allocated_bytes / _GIB
    if rank.allocator.peak_reserved_bytes is not None:
        yield "run/peak_reserved_gib", 0, rank.allocator.peak_reserved_bytes / _GIB


def _memory_scalars(rank: RankReport) -> Iterator[Scalar]:
    """Highest values of the memory curve inside each step; a step without a point holds the value it began with."""
    curve = rank.series.memory
    if curve is None:
        return
    for what, values in (("allocated", curve.allocated_bytes), ("reserved", curve.reserved_bytes)):
        if not values:
            continue
        point, held = 0, None
        for step, (start, window) in enumerate(zip(rank.per_step.start_ns, rank.per_step.window_ns, strict=True)):
            while point < len(values) and curve.time_ns[point] < start:
                held = values[point]
                point += 1
            peak = held
            while point < len(values) and curve.time_ns[point] < start + window:
                held = values[point]
                peak = held if peak is None else max(peak, held)
                point += 1
            if peak is not None:
                yield f"memory/{what}_gib", step, peak / _GIB


def _event_file(rank: RankReport, version: str) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    origin_ns = int(rank.origin_ns)
    starts = rank.per_step.start_ns
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)

    def write(step: int, value: Any) -> None:
        since_ns = starts[step] if step < len(starts) else 0
        event = Event(wall_time=(origin_ns + since_ns) / 1e9, step=step, summary=Summary(value=[value]))
        writer.write(event.SerializeToString(deterministic=True))

    writer.write(Event(wall_time=origin_ns / 1e9, file_version="brain.Event:2").SerializeToString())
    for tag, step, number in (*run_scalars(rank), *step_scalars(rank)):
        write(step, Summary.Value(tag=tag, simple_value=number))
    for figure in draw_figures(rank):
        png, width, height = draw_png(figure, f"traceanalyzer {version}")
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        write(0, Summary.Value(tag=f"report/{figure.key}", image=image))
    return buffer.getvalue()


def draw_png(figure: Figure, software: str) -> tuple[bytes, int, int]:
    """Draw a figure of the report in its light colours, with title and legend.

    Returns:
        The PNG file, its width and its height in pixels.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    colours = _light_colours()
    rows = -(-len(figure.legend) // LEGEND_COLUMNS)
    below, above = BOTTOM_IN + LEGEND_ROW_IN * rows, TOP_IN + 0.3
    height_in = HEIGHT_IN + (below - BOTTOM_IN) + 0.3
    with mpl.rc_context(SETTINGS | {"grid.color": colours["line"]}):
        canvas = Canvas(figsize=(figure.width_in, height_in), dpi=DPI, facecolor="white")
        agg = FigureCanvasAgg(canvas)
        left = LEFT_IN / figure.width_in
        box = (left, below / height_in, 1 - left - RIGHT_IN / figure.width_in, 1 - (below + above) / height_in)
        axes = canvas.add_axes(box)
        figure.paint(axes, colours.__getitem__)
        axes.set_title(figure.title, loc="left", fontsize=11)
        canvas.legend(
            handles=[Patch(color=colours[variable], label=label) for variable, label in figure.legend],
            loc="lower left",
            bbox_to_anchor=(left, 0.0),
            ncols=LEGEND_COLUMNS,
            fontsize=8.5,
        )
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", metadata={"Software": software})
        width, height = agg.get_width_height()
    return buffer.getvalue(), width, height


def _light_colours() -> dict[str, str]:
    pairs = (entry.split(":", 1) for entry in css_variables()[0].split(";"))
    return _PAGE_COLOURS | {name.removeprefix("--"): colour for name, colour in pairs}
