"""The Chinese report in a browser: what scripts write is Chinese too, and Chinese characters have a glyph."""

from __future__ import annotations

import re
from pathlib import Path

from tests.browser.conftest import Open
from tests.shared_data import ROOT
from traceanalyzer.pipeline import analyze
from traceanalyzer.renderers.messages import in_language, speaking

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_what_the_script_writes_is_chinese(open_report: Open, tmp_path: Path) -> None:
    with speaking("zh"):
        opened = open_report(in_language(analyze([ROOT / "sample_traces" / "labelled" / "good"])))
    page = opened.page
    assert page.evaluate("document.documentElement.lang") == "zh"
    page.locator("a[data-from]").first.click()
    page.wait_for_function("document.querySelector('[data-part=info]').textContent.includes('证据')")
    assert "显示" in page.locator("[data-part=status]").inner_text()
    titles = page.evaluate("traceTimeline.tracks().map((track) => track.title)")
    assert [title for title in titles if not CHINESE.search(title)] == []
    assert page.evaluate("traceTimeline.search('等待输入')") > 0
    assert {button.text_content() for button in page.locator(".save button").all()} == {"复制", "CSV"}
    # text of figures is text, so the page's font with Chinese characters shows it
    assert page.locator("figure svg text", has_text="每步时间").count() == 1
    picture = page.screenshot(path=str(tmp_path / "chinese.png"))
    assert len(picture) > 50_000
    assert opened.problems == []
    assert opened.requests == []
