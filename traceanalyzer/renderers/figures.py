"""Figures as inline SVG: matplotlib draws them, the page's own colours and fonts dress them.

Every colour is drawn as a placeholder and replaced by a CSS variable afterwards, so that one drawing suits light,
dark and paper. Output is byte-stable: fixed id salt, no date, text as text.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceanalyzer.renderers.html_palette import BUSY, GROUP_OF, GROUPS
from traceanalyzer.renderers.text import cause_title, shorten, visible
from traceanalyzer.results.analysis import (
    CopyPoints,
    DepthDelay,
    Histogram,
    KernelsReport,
    MemoryCurve,
    PerStep,
    RankReport,
)
from traceanalyzer.units import format_bytes, format_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Colours = Callable[[str], str]
Painter = Callable[["Axes", Colours], None]

WIDTH_IN = 7.4
WIDE_IN = 13.0
HEIGHT_IN = 2.7
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.68, 0.28, 0.1, 0.58
MAX_BARS = 240
MAX_POINTS = 400
MAX_FAMILIES = 12

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "traceanalyzer",
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "path.simplify": True,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing.

    Attributes:
        key: Stable short name.
        title: What it shows.
        caption: How to read it, and what was left out.
        svg: The ``<svg>`` element; only text of this module and numbers are in it.
        legend: ``(css variable, label)`` of the colours used, in drawing order.
        paint: Draws it again, on any axes and in other colours, within ``rc_context(SETTINGS)``.
        width_in: Width of the drawing in inches.
    """

    key: str
    title: str
    caption: str
    svg: str
    legend: tuple[tuple[str, str], ...]
    paint: Painter
    width_in: float = WIDTH_IN


class _Colours:
    """Hands out one placeholder colour per CSS variable and puts the variables back into the SVG."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, variable: str) -> str:
        return self._known.setdefault(variable, f"#f0{0x1000 + len(self._known):04x}")

    def dress(self, svg: str) -> str:
        for variable, placeholder in self._known.items():
            svg = svg.replace(placeholder, f"var(--{variable})")
        return svg


def draw_figures(rank: RankReport, prefix: str = "") -> list[Figure]:
    """Draw every figure the rank has numbers for.

    Args:
        rank: The rank.
        prefix: Put before the ids inside the SVG, so that the figures of several ranks can share a page.

    Returns:
        The figures, in the report's order; empty where there is nothing to draw.
    """
    made = [
        _steps_figure(rank.per_step, prefix),
        _gaps_figure(rank.series.gap_histogram_by_cause, prefix),
        _memory_figure(rank.series.memory, prefix),
        _copies_figure(rank.series.copy_size_bandwidth, prefix),
        _delay_figure(rank.series.launch_delay_by_queue_depth, prefix),
        _families_figure(rank.kernels, prefix),
    ]
    return [figure for figure in made if figure is not None]


def _render(
    key: str,
    prefix: str,
    description: str,
    paint: Painter,
    width_in: float = WIDTH_IN,
    left_in: float = LEFT_IN,
    height_in: float = HEIGHT_IN,
) -> str:
    """Draw one pair of axes and return the ``<svg>`` element, dressed in CSS variables."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    colours = _Colours()
    ink, line = colours("soft"), colours("line")
    settings = SETTINGS | {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": line,
        "xtick.color": line,
        "ytick.color": line,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "grid.color": line,
    }
    with mpl.rc_context(settings):
        canvas = Canvas(figsize=(width_in, height_in))
        FigureCanvasSVG(canvas)
        # fixed margins: measuring every label to lay them out would double the time
        left, bottom = left_in / width_in, BOTTOM_IN / height_in
        box = (left, bottom, 1 - left - RIGHT_IN / width_in, 1 - bottom - TOP_IN / height_in)
        paint(canvas.add_axes(box), colours)
        buffer = io.BytesIO()
        canvas.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _tidy(colours.dress(buffer.getvalue().decode("utf-8")), f"{prefix}{key}", description)


def _tidy(svg: str, prefix: str, description: str) -> str:
    svg = svg[svg.index("<svg") :].strip()
    # matplotlib's own style sheet would apply to the whole page
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", svg))

    def rename(match: re.Match[str]) -> str:
        return f' id="{prefix}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r' id="([\w.-]+)"', rename, svg)
    svg = re.sub(r"url\(#([\w-]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = re.sub(r'href="#([\w-]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"<defs>\s*</defs>", "", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    size = re.match(r'<svg[^>]*viewBox="([^"]*)"', svg)
    box = size[1] if size else "0 0 500 200"
    body = svg[svg.index(">") + 1 :]
    head = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" role="img" aria-label="{description}">'
    return head + body


def _bars(axes: Axes, boxes: Sequence[tuple[float, float, float, float]], colour: str) -> None:
    """Draw rectangles ``(left, width, bottom, height)`` as one path; hundreds of patches would bloat the page."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices: list[tuple[float, float]] = []
    codes: list[int] = []
    for left, width, bottom, height in boxes:
        right, top = left + width, bottom + height
        vertices += [(left, bottom), (left, top), (right, top), (right, bottom), (left, bottom)]
        codes += [1, 2, 2, 2, 79]  # move, three lines, close
    if vertices:
        axes.add_patch(PathPatch(Path(vertices, codes), facecolor=colour, edgecolor="none", linewidth=0))


def _time_unit(largest_ns: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if largest_ns >= scale:
            return scale, unit
    return 1.0, "ns"


def _layers(series: PerStep) -> list[tuple[str, str, list[int]]]:
    """Busy kinds, then causes in the fixed order: css variable, label, one value per step."""
    layers = [
        (f"b-{kind}" if kind in BUSY else "b-other", BUSY[kind][0] if kind in BUSY else kind, values)
        for kind, values in series.busy_by_kind_ns.items()
        if any(values)
    ]
    for group in GROUPS:
        layers += [
            (f"c-{cause}", cause_title(cause), series.idle_by_cause_ns[cause])
            for cause in group.causes
            if any(series.idle_by_cause_ns.get(cause, ()))
        ]
    layers += [
        ("c-unknown", "other", values)
        for cause, values in series.idle_by_cause_ns.items()
        if cause not in GROUP_OF and any(values)
    ]
    return layers


def _steps_figure(series: PerStep, prefix: str) -> Figure | None:
    count = len(series.window_ns)
    layers = _layers(series)
    if count < 2 or not layers:
        return None
    # several steps share a bar once there are more than the page has room for
    per_bar = -(-count // MAX_BARS)
    bars = [range(i, min(i + per_bar, count)) for i in range(0, count, per_bar)]
    scale, unit = _time_unit(max(series.window_ns))

    def paint(axes: Axes, colours: Colours) -> None:
        from matplotlib.ticker import MaxNLocator

        bottoms = [0.0] * len(bars)
        gap = 0.16 if len(bars) <= 60 else 0.0
        for variable, _, values in layers:
            boxes = []
            for i, steps in enumerate(bars):
                height = sum(values[step] for step in steps) / len(steps) / scale
                boxes.append((i * per_bar - 0.5 + gap / 2, per_bar - gap, bottoms[i], height))
                bottoms[i] += height
            _bars(axes, boxes, colours(variable))
        axes.set_xlim(-0.5, len(bars) * per_bar - 0.5)
        axes.set_ylim(0, max(bottoms) * 1.04)
        axes.set_xlabel("step")
        axes.set_ylabel(f"time per step, {unit}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    title = "Step times, by what the GPU did or waited for"
    note = f" Each bar is the mean of {per_bar} steps." if per_bar > 1 else ""
    return Figure(
        "steps",
        title,
        f"One bar per step; its parts add up to the step.{note}",
        _render("steps", prefix, title, paint, WIDE_IN),
        tuple((variable, label) for variable, label, _ in layers),
        paint,
        WIDE_IN,
    )


def _gaps_figure(histograms: dict[str, Histogram], prefix: str) -> Figure | None:
    ordered = [c for group in GROUPS for c in group.causes if c in histograms and any(histograms[c].ns)]
    if not ordered:
        return None
    totals: Counter[tuple[int, int]] = Counter()
    for cause in ordered:
        histogram = histograms[cause]
        for i, ns in enumerate(histogram.ns):
            totals[histogram.edges[i], histogram.edges[i + 1]] += ns
    scale, unit = _time_unit(max(totals.values()))

    def paint(axes: Axes, colours: Colours) -> None:
        bottoms: dict[tuple[int, int], float] = {}
        for cause in ordered:
            boxes = []
            histogram = histograms[cause]
            for i, ns in enumerate(histogram.ns):
                low, high = histogram.edges[i], histogram.edges[i + 1]
                if not ns:
                    continue
                left = max(low, high / 10, 1)
                bottom = bottoms.get((low, high), 0.0)
                boxes.append((left, (high - left) * 0.97, bottom, ns / scale))
                bottoms[low, high] = bottom + ns / scale
            _bars(axes, boxes, colours(f"c-{cause}"))
        axes.set_xscale("log")
        shown = [edge for edge, ns in totals.items() if ns]
        axes.set_xlim(
            max(min(low for low, _ in shown), min(high for _, high in shown) / 10, 1), max(h for _, h in shown)
        )
        axes.set_ylim(0, max(bottoms.values()) * 1.06)
        axes.xaxis.set_major_formatter(lambda value, _: format_ns(value).replace(".00", ""))
        axes.minorticks_off()
        axes.set_xlabel("length of the idle piece")
        axes.set_ylabel(f"idle time, {unit}")

    title = "Idle time by length of its pieces and cause"
    return Figure(
        "gaps",
        title,
        "Summed over the whole recording. Many short pieces are dispatch, few long ones are waits.",
        _render("gaps", prefix, title, paint),
        tuple((f"c-{cause}", cause_title(cause)) for cause in ordered),
        paint,
    )


def _memory_figure(curve: MemoryCurve | None, prefix: str) -> Figure | None:
    if curve is None or len(curve.time_ns) < 2:
        return None
    scale, unit = _time_unit(curve.time_ns[-1])
    time = [t / scale for t in curve.time_ns]
    gib = 1024**3

    def paint(axes: Axes, colours: Colours) -> None:
        allocated = [b / gib for b in curve.allocated_bytes]
        axes.fill_between(time, allocated, step="post", color=colours("g-memory"), alpha=0.45, linewidth=0)
        axes.plot(time, allocated, drawstyle="steps-post", color=colours("g-memory"), linewidth=1)
        if curve.reserved_bytes:
            reserved = [b / gib for b in curve.reserved_bytes]
            axes.plot(time, reserved, drawstyle="steps-post", color=colours("ink"), linewidth=1.3, dashes=(4, 2))
        axes.set_xlim(time[0], time[-1] if time[-1] > time[0] else time[0] + 1)  # one moment still needs a width
        axes.set_ylim(0)
        axes.set_xlabel(f"time, {unit}")
        axes.set_ylabel("GiB")

    title = "Framework allocator: memory over time"
    peak = format_bytes(max(curve.allocated_bytes))
    return Figure(
        "memory",
        title,
        f"Filled: allocated (peak {peak}). Dashed: reserved from the device.",
        _render("memory", prefix, title, paint),
        (("g-memory", "allocated"), ("ink", "reserved (dashed)")),
        paint,
    )


_MEMORY_MARKS = {
    "pageable": ("g-sync", "o"),
    "pinned": ("b-compute", "s"),
    "managed": ("g-host", "^"),
    "unknown": ("soft", "x"),
}


def _copies_figure(points: CopyPoints | None, prefix: str) -> Figure | None:
    if points is None:
        return None
    rows = [i for i in range(len(points.size_bytes)) if points.size_bytes[i] > 0 and points.duration_ns[i] > 0]
    if len(rows) < 2:
        return None
    every = -(-len(rows) // MAX_POINTS)
    drawn = rows[::every]
    kinds = [kind for kind in _MEMORY_MARKS if any(points.host_memory[i] == kind for i in drawn)]

    def paint(axes: Axes, colours: Colours) -> None:
        for kind in kinds:
            chosen = [i for i in drawn if points.host_memory[i] == kind]
            variable, marker = _MEMORY_MARKS[kind]
            axes.plot(
                [points.size_bytes[i] for i in chosen],
                [points.size_bytes[i] / points.duration_ns[i] for i in chosen],
                linestyle="none",
                marker=marker,
                markersize=4.5,
                color=colours(variable),
                alpha=0.75,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: format_bytes(value).replace(".00", ""))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlabel("size of the copy")
        axes.set_ylabel("GB/s")

    title = "Copy bandwidth against size, by host memory"
    sampled = f" {len(drawn)} of {max(points.sampled_from, len(rows))} copies are drawn." if every > 1 else ""
    return Figure(
        "copies",
        title,
        f"Large pinned copies show what the link can do; pageable ones fall below it.{sampled}",
        _render("copies", prefix, title, paint),
        tuple((_MEMORY_MARKS[kind][0], f"{kind} ({_MARK_NAMES[_MEMORY_MARKS[kind][1]]})") for kind in kinds),
        paint,
    )


_MARK_NAMES = {"o": "circle", "s": "square", "^": "triangle", "x": "cross"}


def _delay_figure(delays: DepthDelay | None, prefix: str) -> Figure | None:
    if delays is None or len(delays.depth) < 2:
        return None
    scale, unit = _time_unit(max(*delays.p50_ns, *delays.p90_ns, 1))

    def paint(axes: Axes, colours: Colours) -> None:
        axes.plot(delays.depth, [v / scale for v in delays.p50_ns], color=colours("g-host"), marker="o", markersize=3.5)
        axes.plot(delays.depth, [v / scale for v in delays.p90_ns], color=colours("g-sync"), marker="^", markersize=3.5)
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_ylim(0)
        axes.set_xlabel("activities queued when the launch began")
        axes.set_ylabel(f"launch to start, {unit}")

    title = "Launch delay against queue depth"
    return Figure(
        "delay",
        title,
        "A delay that grows with the queue is work in line; a delay at depth 0 is the cost of launching itself.",
        _render("delay", prefix, title, paint),
        (("g-host", "median (circles)"), ("g-sync", "90th percentile (triangles)")),
        paint,
    )


# narrow formats, which tensor cores like best, in green; wide ones in blue; a name that does not tell in grey
_PRECISION_COLOURS = {
    "fp8": "b-communication",
    "fp16": "b-compute",
    "bf16": "b-exposed_copy",
    "int8": "g-cycle",
    "tf32": "c-launch_latency",
    "fp32": "g-host",
    "fp64": "g-pause",
}


def _families_figure(kernels: KernelsReport, prefix: str) -> Figure | None:
    by_family: Counter[str] = Counter()
    for total in kernels.families:
        by_family[total.family] += total.time_ns
    if len(by_family) < 2:
        return None
    shown = [family for family, _ in by_family.most_common() if family != "other"][:MAX_FAMILIES]
    rows = [*shown, "all others"]
    sums: dict[tuple[int, str], int] = {}
    for total in kernels.families:
        row = shown.index(total.family) if total.family in shown else len(shown)
        sums[row, total.precision] = sums.get((row, total.precision), 0) + total.time_ns
    precisions = [p for p in [*_PRECISION_COLOURS, "unknown"] if any(key[1] == p for key in sums)]
    scale, unit = _time_unit(max(by_family.values()))

    def paint(axes: Axes, colours: Colours) -> None:
        lefts = [0.0] * len(rows)
        for precision in precisions:
            boxes = []
            for row in range(len(rows)):
                width = sums.get((row, precision), 0) / scale
                if width:
                    boxes.append((lefts[row], width, row - 0.38, 0.76))
                lefts[row] += width
            _bars(axes, boxes, colours(_PRECISION_COLOURS.get(precision, "soft")))
        axes.set_xlim(0, max(lefts) * 1.03)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [shorten(visible(family), 42) for family in rows])
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel(f"kernel time, summed, {unit}")

    title = "Kernel time by family and precision"
    return Figure(
        "families",
        title,
        "Variants of one kernel count as one family; the precision is what its name states.",
        _render("families", prefix, title, paint, WIDE_IN, 3.6, 0.26 * len(rows) + 0.7),
        tuple(
            (_PRECISION_COLOURS.get(p, "soft"), "not in the name" if p == "unknown" else p.upper()) for p in precisions
        ),
        paint,
    )
