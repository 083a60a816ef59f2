"""Make ``reports/report.png``, the README's picture: the first screen of the report on a sample recording.

python -m tests.tools.screenshot
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import traceanalyzer
from traceanalyzer.renderers.html import render_html

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "sample_traces/labelled/single-process-loader"
PICTURE = Path("reports/report.png")
MAX_BYTES = 300_000


def main() -> None:
    """Render the sample, photograph its first screen and write the picture."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no chromium on the PATH")
    os.chdir(ROOT)
    page_text = render_html(traceanalyzer.analyze(SAMPLE))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        path = Path(folder, "report.html")
        path.write_text(page_text, encoding="utf-8")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1240, "height": 980}, device_scale_factor=1.25)
        page.goto(path.as_uri())
        page.wait_for_function("window.__timeline && window.__timeline.ready")
        picture = page.screenshot()
        browser.close()
    if len(picture) > MAX_BYTES:
        sys.exit(f"the picture has {len(picture):,} bytes, more than {MAX_BYTES:,}")
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
