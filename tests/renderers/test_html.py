"""The HTML report as text: safe, complete, exact and the same every time."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from tests.sample_analysis import HOSTILE, MS, cpu_only_analysis, hostile_analysis, sample_analysis
from traceanalyzer.renderers.embed import script_json
from traceanalyzer.renderers.html import page_script, render_html
from traceanalyzer.renderers.html_answer import cards, headline, lower_first, spot
from traceanalyzer.renderers.html_palette import CAUSE_MEANING, GROUP_OF
from traceanalyzer.renderers.html_timeline import timeline_payload
from traceanalyzer.renderers.html_view import left_out, matrix, range_rows, step_bar
from traceanalyzer.results.analysis import Analysis, DroppedRecords, ObserverReport, PlanStep, RangeReport
from traceanalyzer.results.finding import Episode, Saving
from traceanalyzer.results.vocabulary import CAUSES, Basis, FindingKind, StepClass


class Outline(HTMLParser):
    """Collects tags, ids and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "input", "br", "path", "use", "rect"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(sample_analysis())


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    return Outline(page)


def test_script_json_leaves_no_way_out_of_its_block_and_decodes_to_the_same_value() -> None:
    value = {"</script>": ["<!--", "\u2028\u2029", "<img src=x>", HOSTILE, "plain & simple"]}
    text = script_json(value)
    assert "<" not in text
    assert "\u2028" not in text
    assert "\u2029" not in text
    assert msgspec.json.decode(text) == value


def test_equal_documents_give_equal_pages(page: str) -> None:
    assert render_html(Analysis.from_json(sample_analysis().to_json())) == page


def test_nothing_in_the_page_points_outside_it(outline: Outline) -> None:
    for tag, attributes in outline.tags:
        assert tag not in {"link", "iframe", "object", "embed", "img", "base", "form"}
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")


def test_every_link_inside_the_page_has_its_target_and_no_id_comes_twice(outline: Outline) -> None:
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {(a.get("href") or "")[1:] for _, a in outline.tags if a.get("href")}
    labelled = {a["aria-labelledby"] for _, a in outline.tags if a.get("aria-labelledby")}
    assert links | labelled <= set(ids)


def test_the_policy_forbids_everything_but_the_one_script(outline: Outline) -> None:
    policy = next(a["content"] for _, a in outline.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert sum(tag == "script" for tag, _ in outline.tags) == 2


def test_hostile_names_never_become_tags() -> None:
    page = render_html(hostile_analysis())
    hostile = Outline(page)
    assert HOSTILE not in page
    assert not [tag for tag, _ in hostile.tags if tag == "img"]
    assert not [a for _, a in hostile.tags if any(name.startswith("on") for name in a)]
    shown = "".join(text for _, text in hostile.texts)
    for expected in (f"title {HOSTILE}", f"message {HOSTILE}", f"fix {HOSTILE}"):
        assert expected in shown


def test_every_table_has_a_caption_and_scoped_headers(outline: Outline) -> None:
    tables = sum(tag == "table" for tag, _ in outline.tags)
    assert tables == sum(tag == "caption" for tag, _ in outline.tags)
    assert all("scope" in attributes for tag, attributes in outline.tags if tag == "th")


def test_the_answer_names_the_busy_share_the_cause_and_what_fixing_it_gives(outline: Outline) -> None:
    heading = "".join(text for tag, text in outline.texts if tag == "h1")
    assert heading == "The GPU worked 5.9 % of the time. First to fix: batches are loaded in the training process."
    assert (
        "Fixing it would take the step from 70.0 ms to about 48.0 ms. "
        "Most of the idle time has another cause: the host cannot launch kernels fast enough."
    ) in [text for _, text in outline.texts]


def test_a_fault_that_explains_most_of_the_idle_time_is_called_the_reason() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    first, *rest = analysis.findings
    # 40 of the 52 ms without the profiler, of which the GPU is busy 5.9 %
    large = msgspec.structs.replace(first, saving_per_step_ns=Saving(likely=40 * MS, basis=Basis.REPLAY))
    analysis = msgspec.structs.replace(analysis, findings=[large, *rest])
    sentence, outlook = headline(analysis, step_bar(analysis.ranks[0]))
    assert sentence == "The GPU worked 5.9 % of the time; batches are loaded in the training process."
    assert outlook == "Fixing it would take the step without the profiler from 52.0 ms to about 12.0 ms."


def test_the_first_screen_says_what_to_do_first_and_leads_to_how(page: str) -> None:
    (advice,) = re.findall(r'<p class="first">(.*?)</p>', page)
    assert "<b>Do this first:</b> Set num_workers to 4 in the DataLoader at train.py:41." in advice
    assert '<a href="#TA101-0">' in advice
    assert 'id="TA101-0"' in page
    assert page.index('class="first"') < page.index('id="where"')
    quiet = msgspec.structs.replace(sample_analysis(), findings=[])
    assert 'class="first"' not in render_html(quiet)


def test_a_plan_that_starts_without_the_profiler_says_so() -> None:
    analysis = sample_analysis()
    plan = [
        PlanStep(fixes=[], step_ns=52 * MS, limit=""),
        PlanStep(fixes=["TA101"], step_ns=30 * MS, limit="host"),
        PlanStep(fixes=["TA101", "TA301"], step_ns=20 * MS, limit="host"),
    ]
    bar = step_bar(analysis.ranks[0])
    one = headline(msgspec.structs.replace(analysis, plan=plan[:2]), bar)[1]
    assert one.startswith("Fixing it would take the step without the profiler from 52.0 ms to about 30.0 ms.")
    two = headline(msgspec.structs.replace(analysis, plan=plan), bar)[1]
    assert two.startswith(
        "Fixing TA101, then TA301, would take the step without the profiler from 52.0 ms → 30.0 ms → 20.0 ms."
    )


def test_a_bound_is_called_at_most() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    bar = step_bar(analysis.ranks[0])
    first = msgspec.structs.replace(
        analysis.findings[0], saving_per_step_ns=Saving(low=0, high=18 * MS, basis=Basis.BOUND)
    )
    bounded = msgspec.structs.replace(analysis, findings=[first])
    assert headline(bounded, bar)[1] == (
        "Removing all of it would win at most 18.0 ms: the step without the profiler from 52.0 ms to 34.0 ms at best."
    )
    assert cards(bounded, FindingKind.FAULT)[0].gain == "≤ 18.0 ms"


def test_an_estimate_below_its_bound_is_called_about() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    # the sample's first finding: likely 16.2 ms, at most 18 ms
    assert headline(analysis, step_bar(analysis.ranks[0]))[1].startswith(
        "Fixing it would take the step without the profiler from 52.0 ms to about 35.8 ms. "
    )
    card = cards(analysis, FindingKind.FAULT)[0]
    assert (card.gain, card.basis) == ("≈ 16.2 ms", "estimate")


def test_savings_are_set_against_the_step_without_the_profiler_where_it_was_measured() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    rank = analysis.ranks[0]
    observer = ObserverReport(
        profiled_step_ns=70 * MS, unprofiled_step_ns=56 * MS, inflation=1.25, inflation_by_phase={"forward": 1.5}
    )
    rank = msgspec.structs.replace(rank, observer=observer)
    analysis = msgspec.structs.replace(analysis, ranks=[rank])
    assert headline(analysis, step_bar(rank))[1].startswith(
        "Fixing it would take the step without the profiler from 56.0 ms to about 39.8 ms. "
    )
    page = " ".join(text.strip() for _, text in Outline(render_html(analysis)).texts)
    assert "without one a step takes 56.0 ms ( 1.25 times as long with it)" in page
    assert "forward 1.50" in page


def test_a_limiter_alone_is_the_answer_and_is_not_called_a_mistake() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    only = [f for f in analysis.findings if f.kind is FindingKind.LIMITER]
    analysis = msgspec.structs.replace(analysis, findings=only)
    sentence, outlook = headline(analysis, step_bar(analysis.ranks[0]))
    assert sentence.endswith("the host cannot launch kernels fast enough.")
    assert outlook.startswith("Nothing here is set up wrongly; this is what bounds the step.")


def test_a_partial_recording_says_so_before_any_number() -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    integrity = msgspec.structs.replace(
        rank.integrity,
        verdict="partial",
        dropped=[DroppedRecords(reason="cut off in the middle", count=3, example="{")],
    )
    partial = msgspec.structs.replace(analysis, ranks=[msgspec.structs.replace(rank, integrity=integrity)])
    page = render_html(partial)
    assert page.index("Part of this recording is missing") < page.index('<h1 id="answer">')
    assert "3 records were left out: cut off in the middle." in page
    assert "Part of this recording is missing" not in render_html(analysis)


def test_ranges_show_their_projection_and_leave_step_marks_to_the_steps_table() -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    mark = rank.steps.name[0] if rank.steps.name else "ProfilerStep#0"
    ranges = [
        RangeReport(
            name=name,
            domain="",
            count=count,
            time_ns=9 * MS,
            activities=4,
            projected_ns=8 * MS,
            projected_idle_ns=6 * MS,
        )
        for name, count in ((HOSTILE, 3), (mark, 1))
    ]
    rank = msgspec.structs.replace(rank, ranges=ranges)
    assert [r.name for r in range_rows(rank)] == [HOSTILE]
    page = render_html(msgspec.structs.replace(analysis, ranks=[rank]))
    row = page[page.index('id="ranges-0"') :]
    assert HOSTILE not in page
    for expected in ('value="3000000"', 'value="8000000"', 'value="6000000"', "75.0 %"):
        assert expected in row


def test_an_episode_is_set_against_the_mean_step_with_episodes_and_the_bar_shows_it() -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    classes = [*[StepClass.STEADY] * 4, StepClass.EPISODIC]
    rank = msgspec.structs.replace(rank, steps=msgspec.structs.replace(rank.steps, step_class=classes))
    first = msgspec.structs.replace(analysis.findings[0], episode=Episode(ns=90 * MS, per_1000_steps=200.0))
    episodic = msgspec.structs.replace(analysis, ranks=[rank], plan=[], findings=[first])
    sentence, outlook = headline(episodic, step_bar(rank, episodes=True))
    assert "in steady steps" not in sentence
    # (64 + 67 + 70 + 73 + 76) / 5 as recorded, of which 16.2 are won
    unobserved = ObserverReport()
    bare = msgspec.structs.replace(episodic, ranks=[msgspec.structs.replace(rank, observer=unobserved)])
    outlook = headline(bare, step_bar(rank, episodes=True))[1]
    assert outlook == (
        "It costs 90.0 ms each time, in 20 % of the steps of this recording. "
        "Fixing it would take the mean step, episodes included, from 70.0 ms to about 53.8 ms."
    )
    page = render_html(episodic)
    assert "4 steady steps and 1 episodic exactly: 350,000,000 ns" in page
    assert "Not in this bar" not in page


def test_episodes_that_are_not_the_answer_are_left_out_of_the_bar_and_the_page_says_so() -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    classes = [*[StepClass.STEADY] * 4, StepClass.EPISODIC]
    rank = msgspec.structs.replace(rank, steps=msgspec.structs.replace(rank.steps, step_class=classes))
    assert left_out(rank) == ["1 episodic step of 76.0 ms"]
    assert left_out(rank, episodes=True) == []
    steady = msgspec.structs.replace(analysis, ranks=[rank])
    assert "in steady steps" in headline(steady, step_bar(rank))[0]
    assert "Not in this bar: 1 episodic step of 76.0 ms" in render_html(steady)


def test_the_bar_adds_up_to_the_steady_steps_exactly() -> None:
    bar = step_bar(sample_analysis().ranks[0])
    assert bar is not None
    assert bar.total_ns == (64 + 67 + 70 + 73 + 76) * MS
    assert sum(part.total_ns for part in bar.parts) == bar.total_ns
    assert bar.unaccounted_ns == 0


def test_a_document_that_does_not_add_up_is_said_to(page: str) -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    series = rank.per_step
    short = msgspec.structs.replace(series, window_ns=[w + 7 for w in series.window_ns])
    wrong = msgspec.structs.replace(analysis, ranks=[msgspec.structs.replace(rank, per_step=short)])
    assert "by 35 ns: the document contradicts itself" in render_html(wrong)
    assert "contradicts" not in page


def test_only_steady_steps_are_averaged_when_there_are_any() -> None:
    rank = sample_analysis().ranks[0]
    classes = [StepClass.WARM_UP, *[StepClass.STEADY] * 4]
    steps = msgspec.structs.replace(rank.steps, step_class=classes)
    bar = step_bar(msgspec.structs.replace(rank, steps=steps))
    assert bar is not None
    assert bar.total_ns == (67 + 70 + 73 + 76) * MS
    assert bar.of == "4 steady steps"


def test_the_matrix_of_causes_and_phases_sums_to_idle() -> None:
    rank = sample_analysis().ranks[0]
    table = matrix(rank)
    assert table is not None
    assert table.total * 5 == rank.devices[0].idle_ns
    assert sum(table.column_sums) == pytest.approx(table.total)
    assert table.rows[0][0] == "autograd_engine"


def test_every_finding_that_fired_is_shown_with_gain_basis_confidence_place_and_fix(outline: Outline) -> None:
    shown = " ".join(text.strip() for _, text in outline.texts)
    for expected in (
        "Batches are loaded in the training process",
        "≈ 16.2 ms",
        "estimate",
        "95 % confident",
        "train.py:41",
        "Set num_workers to 4 in the DataLoader at train.py:41.",
        "Input is copied from pageable memory",
        "1.20 ms",
        "predicted by replay",
        "The host cannot launch kernels fast enough",
        "What bounds the step once these are fixed",
    ):
        assert expected in shown
    for quiet in ("No validation stalls the device", "Augmentation cost is unknown", "A few records were left out"):
        assert quiet in shown


def test_a_recording_without_gpu_activity_renders() -> None:
    page = render_html(cpu_only_analysis())
    assert "No GPU activity was recorded, so there is no idle time to explain." in page
    assert 'id="timeline-title"' not in page


def test_several_ranks_each_get_their_sections_and_unique_ids() -> None:
    analysis = sample_analysis()
    second = msgspec.structs.replace(analysis.ranks[0], rank=1, world_size=2)
    moved = [msgspec.structs.replace(analysis.findings[0], rank=1)]
    both = msgspec.structs.replace(analysis, ranks=[analysis.ranks[0], second], findings=[*analysis.findings, *moved])
    outline = Outline(render_html(both))
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"steps-0", "steps-1"} <= set(ids)
    assert sum(tag == "option" for tag, _ in outline.tags) == 2


def test_the_payload_restores_every_slice() -> None:
    rank = sample_analysis().ranks[0]
    payload = timeline_payload(rank)
    for original, encoded in zip(rank.timeline.tracks, payload["tracks"], strict=True):
        if original.slices is None:
            continue
        start = 0
        for i, difference in enumerate(encoded["s"]):
            start += difference
            name, category = payload["pairs"][2 * encoded["n"][i] : 2 * encoded["n"][i] + 2]
            assert start == original.slices.start_ns[i]
            assert encoded["d"][i] == original.slices.duration_ns[i]
            assert (name, category) == (original.slices.name[i], original.slices.category[i])
        last, links = 0, []
        for link in encoded.get("l", []):
            last += link - 1 if link > 0 else link
            links.append(last if link else -1)
        assert links == original.slices.link


def test_every_cause_has_a_colour_a_group_and_a_meaning() -> None:
    assert set(GROUP_OF) == set(CAUSES) == set(CAUSE_MEANING)
    for group in set(GROUP_OF.values()):
        assert len(group.causes) == len(group.light) == len(group.dark)
    assert len({colour for group in set(GROUP_OF.values()) for colour in group.light}) == len(CAUSES)


def test_the_scripts_fit_their_budget_and_stand_alone() -> None:
    script = page_script()
    assert len(script.encode()) < 60_000
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^(?:class|function|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names))


def test_figures_carry_no_fixed_colours_no_dates_and_no_style_sheet(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        assert "<style" not in drawing
        assert "<metadata" not in drawing
        assert not re.findall(r"(?:fill|stroke): #f0", drawing)
        assert "var(--" in drawing
        assert "<text" in drawing


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Batches are loaded", "batches are loaded"),
        ("GPU memory is full", "GPU memory is full"),
        ("PyTorch falls back", "PyTorch falls back"),
        ("", ""),
    ],
)
def test_titles_continue_the_sentence(title: str, expected: str) -> None:
    assert lower_first(title) == expected


def test_a_change_is_shown_as_code_in_a_closed_part_of_its_finding(page: str) -> None:
    parts = re.findall(r"<details class=\"remedy\">(.*?)</details>", page, re.DOTALL)
    assert len(parts) == 1
    assert re.findall(r"<pre[^>]*>(.*?)</pre>", parts[0], re.DOTALL) == [
        "for batch in loader:\n    train_step(batch)",
        "for batch in prefetched(loader):\n    train_step(batch)",
        "traceanalyzer record script --out=AFTER -- python train.py\ntraceanalyzer compare BEFORE AFTER\n",
    ]
    assert "<code>train.py(41): main</code>" in parts[0]


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("train.py(41): main", "train.py(41): main"),
        ("train.py:41", "train.py:41"),
        ("phase optimizer", "phase optimizer"),
        ("Optimizer.step#SGD.step", "Optimizer.step#SGD.step"),
        ("log", "range log"),
        ("my range", "range my range"),
    ],
)
def test_a_range_is_told_from_a_line_of_code(where: str, shown: str) -> None:
    assert spot(where) == shown
