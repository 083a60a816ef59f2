"""How fast a report opens and zooms in a browser, and what it takes: file size, first paint, frames, heap.

python -m tests.benchmarks.report_in_browser INPUT… [--times 5]

Each input (a recording, a run folder or an Analysis document) becomes an HTML file, which headless Chromium opens anew
as often as asked. The view then zooms from the whole recording down to microseconds at nine places. A frame's time is
that between two animation frames while every one of them redraws; "redraw" is the page's own share of it. The smallest
view is also drawn with every track in sight, whatever the size of the window.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

import traceanalyzer
from traceanalyzer.renderers.html import render_html

ZOOM = """
async () => {
  const timeline = window.traceTimeline;
  timeline.setView(-1e18, 1e18);
  const whole = timeline.view();
  const length = whole.end - whole.start;
  const redraws = [], frames = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let before = await frame();
  for (let place = 1; place < 10; place++) {
    for (let size = length; size > 2000; size *= 0.7) {
      const middle = whole.start + (length * place) / 10;
      const begun = performance.now();
      timeline.setView(middle - size / 2, middle + size / 2);
      redraws.push(performance.now() - begun);
      const now = await frame();
      frames.push(now - before);
      before = now;
    }
  }
  return { redraws, frames };
}
"""


@dataclass(frozen=True)
class Opening:
    """One opening of a report; times in ms, heap in bytes."""

    first_paint: float
    ready: float
    heap: float
    redraws: list[float]
    frames: list[float]


def open_once(browser: Browser, file: Path) -> Opening:
    """Open a report in a fresh page and zoom through it."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    try:
        page.goto(file.as_uri())
        page.wait_for_function("window.__timeline && window.__timeline.ready")
        ready = float(page.evaluate("performance.now()"))
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        paint = float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        zoomed: dict[str, Any] = page.evaluate(ZOOM) if page.evaluate("Boolean(window.traceTimeline)") else {}
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        heap = float(session.send("Runtime.getHeapUsage")["usedSize"])
    finally:
        page.close()
    return Opening(paint, ready, heap, zoomed.get("redraws", []), zoomed.get("frames", []))


def row(browser: Browser, name: str, times: int) -> str:
    """Measure one input."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(render_html(traceanalyzer.analyze(name)), encoding="utf-8")
        size = file.stat().st_size
        opened = [open_once(browser, file) for _ in range(times)]
    redraws = sorted(time for each in opened for time in each.redraws)
    frames = sorted(time for each in opened for time in each.frames)

    def median(values: list[float]) -> str:
        return f"{statistics.median(values):.1f}" if values else "–"

    def most(values: list[float]) -> str:
        return f"{values[int(0.95 * (len(values) - 1))]:.1f}" if values else "–"

    cells = [
        Path(name).name,
        f"{size / 1e6:.2f} MB",
        f"{statistics.median(each.first_paint for each in opened):.0f} ms",
        f"{statistics.median(each.ready for each in opened):.0f} ms",
        f"{median(redraws)} ms ({most(redraws)})",
        f"{median(frames)} ms ({most(frames)})",
        f"{statistics.median(each.heap for each in opened) / 1e6:.1f} MB",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time reports in a browser.")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("no chromium on the PATH\n")
        return 2
    sys.stdout.write(
        "| input | file | first paint | ready | redraw, median (95th percentile) | frame | heap |\n"
        "| --- | --: | --: | --: | --: | --: | --: |\n"
    )
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name in options.inputs:
            sys.stdout.write(row(browser, name, options.times) + "\n")
            sys.stdout.flush()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
