"""The report's part about memory."""

from __future__ import annotations

import re
from pathlib import Path

import traceanalyzer
from tests.snapshots import MIB, History, block, segment, snapshot, write
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.html_memory import WIDTH, segment_map


def document(path: Path) -> traceanalyzer.Analysis:
    made = History()
    made.add(1, "alloc", 100 * MIB, 8 * MIB, "<b>keeps</b>")
    made.add(2, "oom", 0, 64 * MIB, "asks", device_free=MIB)
    state = [
        segment(100 * MIB, [block(8 * MIB, function="<b>keeps</b>"), block(8 * MIB, "inactive")]),
        segment(200 * MIB, [block(4 * MIB)], total_size=5 * MIB),
    ]
    return traceanalyzer.analyze(write(path / "s.pickle", snapshot(state, made)))


def test_the_section_shows_map_sites_errors_and_contradictions(tmp_path: Path) -> None:
    page = render_html(document(tmp_path))
    assert "Memory snapshot" in page
    assert "&lt;b&gt;keeps" in page
    assert "<b>keeps" not in page
    assert "does not add up" in page
    assert "Out of memory" in page
    assert "smaller batch" in page
    assert '<svg class="segments"' in page


def test_boxes_of_the_map_are_in_proportion_and_inside_it(tmp_path: Path) -> None:
    memory = document(tmp_path).ranks[0].memory
    assert memory is not None
    boxes = [
        tuple(map(float, box))
        for box in re.findall(r'x="([\d.]+)" y="\d+" width="([\d.]+)"', segment_map(memory.devices[0]))
    ]
    assert all(x + width <= WIDTH + 0.01 for x, width in boxes)
    # the first segment spans the width, and half of it is in use
    assert boxes[0][1] == WIDTH - 1
    assert abs(boxes[1][1] - (WIDTH - 1) / 2) < 0.01
