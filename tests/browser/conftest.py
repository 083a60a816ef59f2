"""A headless Chromium that may reach nothing, opened on report files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from traceanalyzer.renderers.html import render_html
from traceanalyzer.results.analysis import Analysis

playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need the test extra (playwright)")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@dataclass
class Opened:
    """A report in the browser, and everything that went wrong in it.

    Attributes:
        page: The Playwright page.
        problems: Console errors, uncaught errors, dialogs.
        requests: Everything the page asked for besides itself.
    """

    page: playwright.Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def engine() -> Iterator[playwright.Playwright]:
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH: the report was NOT tried in a browser")
    with playwright.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def chromium(engine: playwright.Playwright) -> Iterator[playwright.Browser]:
    # one process for all tests: starting it takes longer than most of them
    browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
    yield browser
    browser.close()


@pytest.fixture
def open_report(chromium: playwright.Browser, tmp_path: Path) -> Iterator[Open]:
    """Return a function that renders an Analysis and opens the file."""
    contexts: list[playwright.BrowserContext] = []

    def opened(analysis: Analysis, *, javascript: bool = True, width: int = 1280, dark: bool = False) -> Opened:
        path = tmp_path / f"report{len(contexts)}.html"
        path.write_text(render_html(analysis), encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            offline=True,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        result = Opened(page)
        page.on(
            "console",
            lambda message: (
                result.problems.append(f"{message.type}: {message.text}")
                if message.type in {"error", "warning"}
                else None
            ),
        )
        page.on("pageerror", lambda error: result.problems.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (result.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: result.requests.append(request.url))
        page.goto(path.as_uri())
        if javascript:
            page.wait_for_function("window.__timeline && window.__timeline.ready")
        result.requests.remove(path.as_uri())
        return result

    yield opened
    for context in contexts:
        context.close()
