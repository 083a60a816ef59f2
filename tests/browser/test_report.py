"""The report as a person uses it: in a real browser, from disk, without a network."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import msgspec
import pytest

from tests.browser.conftest import Open, Opened
from tests.sample_analysis import HOSTILE, cpu_only_analysis, hostile_analysis, sample_analysis

pytestmark = pytest.mark.browser


def view(opened: Opened) -> dict[str, Any]:
    result: dict[str, Any] = opened.page.evaluate("traceTimeline.view()")
    return result


def length(opened: Opened) -> float:
    now = view(opened)
    return float(now["end"] - now["start"])


def sound(opened: Opened) -> None:
    assert opened.problems == []
    assert opened.requests == []


def test_opens_without_a_message_or_a_request_in_light_and_dark_and_on_a_phone(open_report: Open) -> None:
    for options in ({}, {"dark": True}, {"width": 390}):
        opened = open_report(sample_analysis(), **options)
        assert "The GPU worked 5.9 % of the time" in opened.page.inner_text("h1")
        # nothing is wider than the window, so a phone does not scroll sideways
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        sound(opened)


def test_long_code_scrolls_in_its_own_box_on_a_phone(open_report: Open) -> None:
    analysis = sample_analysis()
    first, *rest = analysis.findings
    assert first.remedy is not None
    remedy = msgspec.structs.replace(first.remedy, after="x = " + "long_name + " * 20, verify=["word " * 60])
    long = msgspec.structs.replace(first, remedy=remedy)
    page = open_report(msgspec.structs.replace(analysis, findings=[long, *rest]), width=390).page
    page.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
    inside = "[...document.querySelectorAll('.card *')].filter((e) => !e.closest('pre, .scroll'))"
    assert page.evaluate(f"Math.max(...{inside}.map((e) => e.getBoundingClientRect().right)) <= innerWidth")
    assert page.evaluate("[...document.querySelectorAll('.remedy pre')].some((e) => e.scrollWidth > e.clientWidth)")


def test_the_policy_stops_what_a_script_would_fetch(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    outcome = opened.page.evaluate("fetch('https://example.org/').then(() => 'reached', () => 'refused')")
    assert outcome == "refused"
    assert any("Content Security Policy" in problem for problem in opened.problems)


def test_wheel_zooms_around_the_pointer_once_the_timeline_has_the_focus(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    page = opened.page
    whole = length(opened)
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline [data-part=canvas]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 12)
    page.mouse.wheel(0, -100)
    assert length(opened) == whole  # the page scrolls, the timeline stays
    page.locator("#timeline").scroll_into_view_if_needed()
    page.focus("#timeline [data-part=frame]")
    box = page.locator("#timeline [data-part=canvas]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 12)
    page.mouse.wheel(0, -60)
    page.wait_for_function("whole => traceTimeline.view().end - traceTimeline.view().start < whole * 0.9", arg=whole)
    now = view(opened)
    pointer = now["start"] + (now["end"] - now["start"]) / 4
    assert pointer == pytest.approx(whole / 4, rel=0.01)
    sound(opened)


def test_keyboard_zooms_pans_and_returns(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    page = opened.page
    whole = view(opened)
    page.focus("#timeline [data-part=frame]")
    page.keyboard.press("+")
    page.keyboard.press("+")
    zoomed = view(opened)
    assert zoomed["end"] - zoomed["start"] == pytest.approx((whole["end"] - whole["start"]) / 2.25)
    page.keyboard.press("ArrowRight")
    assert view(opened)["start"] > zoomed["start"]
    page.keyboard.press("0")
    assert view(opened) == whole
    sound(opened)


def test_dragging_moves_the_window(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    page = opened.page
    page.evaluate("traceTimeline.setView(100e6, 200e6)")
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline [data-part=canvas]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 600 - box["width"] / 10, box["y"] + 60, steps=4)
    page.mouse.up()
    now = view(opened)
    assert now["start"] == pytest.approx(110e6, rel=1e-6)
    assert now["end"] == pytest.approx(210e6, rel=1e-6)
    sound(opened)


def test_the_strip_above_the_timeline_moves_its_window_and_shows_the_whole_again(open_report: Open) -> None:
    page = open_report(sample_analysis()).page
    strip = page.locator("[data-part=minimap]")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    assert box is not None
    whole = page.evaluate("traceTimeline.view()")
    length = whole["end"] - whole["start"]
    page.evaluate(f"traceTimeline.setView({whole['start']}, {whole['start'] + length / 10})")
    page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 10)
    moved = page.evaluate("traceTimeline.view()")
    # pressed outside the window: its middle comes there, its length stays
    assert (moved["start"] + moved["end"]) / 2 - whole["start"] == pytest.approx(0.75 * length, abs=length / 200)
    assert moved["end"] - moved["start"] == pytest.approx(length / 10)
    # taken hold of inside, it moves by as much as the pointer does
    page.mouse.move(box["x"] + 0.72 * box["width"], box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.22 * box["width"], box["y"] + 10, steps=4)
    page.mouse.up()
    dragged = page.evaluate("traceTimeline.view()")
    assert moved["start"] - dragged["start"] == pytest.approx(length / 2, abs=length / 200)
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], box["y"] + 10)
    assert page.evaluate("traceTimeline.view()") == whole


def test_clicking_evidence_moves_the_timeline_to_it_and_marks_it(open_report: Open) -> None:
    analysis = sample_analysis()
    opened = open_report(analysis)
    page = opened.page
    evidence = analysis.findings[0].evidence[2]
    page.click(f"#findings a[data-from='{evidence.start_ns}']")
    now = view(opened)
    assert now["start"] < evidence.start_ns
    assert now["end"] > evidence.end_ns
    assert now["end"] - now["start"] < 3 * (evidence.end_ns - evidence.start_ns)
    marked = page.evaluate("traceTimeline.highlight()")
    assert (marked["start"], marked["end"]) == (evidence.start_ns, evidence.end_ns)
    assert marked["tracks"] == ["idle:0", "thread:656"]
    assert page.evaluate("document.activeElement === document.querySelector('#timeline [data-part=frame]')")
    assert page.locator("#timeline").evaluate("e => e.getBoundingClientRect().top < innerHeight / 2")
    sound(opened)


def test_evidence_is_reached_with_the_keyboard_alone(open_report: Open) -> None:
    analysis = sample_analysis()
    opened = open_report(analysis)
    page = opened.page
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.from !== undefined"):
            break
    page.keyboard.press("Enter")
    first = analysis.findings[0].evidence[0]
    assert page.evaluate("traceTimeline.highlight().start") == first.start_ns
    page.keyboard.press("ArrowDown")
    assert page.evaluate("traceTimeline.selection()") is not None
    sound(opened)


def test_hovering_a_gap_says_its_cause_to_the_nanosecond(open_report: Open) -> None:
    analysis = sample_analysis()
    opened = open_report(analysis)
    page = opened.page
    wait = analysis.findings[0].evidence[1]
    page.locator("#timeline").scroll_into_view_if_needed()
    place = next(t for t in page.evaluate("traceTimeline.tracks()") if t["id"] == "idle:0")
    page.evaluate("([start, end]) => traceTimeline.setView(start, end)", [wait.start_ns, wait.end_ns])
    box = page.locator("#timeline [data-part=canvas]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + place["top"] + 28)
    tip = page.locator("#timeline [data-part=tip]")
    tip.wait_for(state="visible")
    assert f"{wait.end_ns - wait.start_ns:,} ns" in tip.inner_text()
    assert "input wait" in tip.inner_text()
    sound(opened)


def test_selecting_a_launch_names_the_kernel_it_started(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    page = opened.page
    page.fill("#timeline [data-part=search]", "cudaLaunchKernel")
    page.press("#timeline [data-part=search]", "Enter")
    selected = page.evaluate("traceTimeline.selection()")
    assert selected["name"] == "cudaLaunchKernel"
    assert "started sm90_xmma_fprop" in page.inner_text("#timeline [data-part=info]")
    sound(opened)


def test_search_counts_what_it_finds(open_report: Open) -> None:
    opened = open_report(sample_analysis())
    # two copies a step, five steps
    opened.page.fill("#timeline [data-part=search]", "memcpy htod")
    assert opened.page.inner_text("#timeline [data-part=found]").startswith("10 found")
    sound(opened)


def test_reads_without_javascript(open_report: Open) -> None:
    opened = open_report(sample_analysis(), javascript=False)
    text = opened.page.inner_text("body")
    for expected in (
        "The GPU worked 5.9 % of the time",
        "Batches are loaded in the training process",
        "Set num_workers to 4",
        "Waiting for input",
        "train.py:41",
        "The drawing needs JavaScript",
        "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32",
    ):
        assert expected in text
    assert opened.page.locator("#timeline [data-part=canvas]").is_hidden()
    assert opened.requests == []


def test_hostile_names_stay_text_everywhere(open_report: Open) -> None:
    opened = open_report(hostile_analysis())
    page = opened.page
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("#findings")
    assert HOSTILE in page.inner_text(".kernels")
    assert HOSTILE in page.inner_text("#recording")
    page.fill("#timeline [data-part=search]", "onerror")
    page.press("#timeline [data-part=search]", "Enter")
    assert page.evaluate("traceTimeline.selection().name") == HOSTILE
    assert HOSTILE in page.inner_text("#timeline [data-part=info]")
    assert page.locator("img").count() == 0
    sound(opened)


def test_a_recording_without_gpu_activity_says_so(open_report: Open) -> None:
    opened = open_report(cpu_only_analysis())
    assert "No GPU activity was recorded" in opened.page.inner_text("h1")
    assert opened.page.locator("#timeline").count() == 0
    sound(opened)


def test_a_table_is_saved_with_exact_numbers_and_their_unit(open_report: Open) -> None:
    analysis = sample_analysis()
    opened = open_report(analysis)
    page = opened.page
    with page.expect_download() as saved:
        page.click("button[aria-label='Save table as CSV: Devices']")
    assert saved.value.suggested_filename == "devices.csv"
    text = saved.value.path().read_text(encoding="utf-8")
    device = analysis.ranks[0].devices[0]
    assert text.splitlines()[0] == "Quantity,GPU 0 [ns]"
    assert f"Idle,{device.idle_ns}" in text.splitlines()
    assert opened.problems == []


def test_a_name_that_looks_like_a_formula_is_saved_as_text(open_report: Open) -> None:
    opened = open_report(sample_analysis(kernel_name='=HYPERLINK("x"), y'))
    text = opened.page.evaluate(
        """() => {
            const found = URL.createObjectURL;
            return new Promise((resolve) => {
                URL.createObjectURL = (blob) => { blob.text().then(resolve); return found(blob); };
                document.querySelector("button[aria-label='Save table as CSV: Kernels by summed time']").click();
            });
        }"""
    )
    assert '"\'=HYPERLINK(""x""), y",' in text


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, fetched into a scratch folder; it is no part of the project."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm: accessibility was NOT checked")
    scratch = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(scratch), "axe-core@4"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=40, check=False, cwd=scratch)
    except subprocess.TimeoutExpired:
        pytest.skip("axe-core could not be fetched in time: accessibility was NOT checked")
    if done.returncode:
        pytest.skip("axe-core could not be fetched: accessibility was NOT checked")
    return (scratch / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [{}, {"dark": True}, {"width": 390}], ids=["light", "dark", "phone"])
def test_axe_finds_nothing(open_report: Open, axe: str, options: dict[str, Any]) -> None:
    page = open_report(sample_analysis(), **options).page
    page.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
    page.evaluate(axe)  # the debugger's way in: the page's policy would refuse a script tag
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)")
    told = [f"{v['id']}: {v['help']} {[node['target'] for node in v['nodes'][:3]]}" for v in found]
    assert told == []


def test_a_finding_leads_to_its_evidence_and_on_to_the_launch_by_keyboard(open_report: Open) -> None:
    analysis = sample_analysis()
    opened = open_report(analysis)
    page = opened.page

    def tab_to(condition: str) -> None:
        for _ in range(200):
            page.keyboard.press("Tab")
            if page.evaluate(f"(() => {{ const e = document.activeElement; return {condition}; }})()"):
                return
        raise AssertionError(f"no Tab reached {condition}")

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the skip link
    assert page.evaluate("location.hash") == "#findings"
    first = analysis.findings[0]
    tab_to(f"e.getAttribute('href') === '#{first.code}-{first.rank}'")
    page.keyboard.press("Enter")
    tab_to("e.dataset.from !== undefined")
    page.keyboard.press("Enter")
    assert page.evaluate("traceTimeline.highlight().start") == first.evidence[0].start_ns
    assert "Evidence:" in page.inner_text("#timeline [data-part=info]")
    page.keyboard.press("/")
    page.keyboard.type("cudaLaunchKernel")
    page.keyboard.press("Enter")
    assert page.evaluate("traceTimeline.selection().name") == "cudaLaunchKernel"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.part") == "frame"
    # and out again: the timeline is no trap
    tab_to("!e.closest('#timeline')")
    sound(opened)
