"""The HTML report as text: safe, complete, exact and the same every time."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from tests.sample_analysis import HOSTILE, MS, cpu_only_analysis, hostile_analysis, sample_analysis
from traceanalyzer.renderers.embed import script_json
from traceanalyzer.renderers.html import page_script, render_html
from traceanalyzer.renderers.html_palette import CAUSE_MEANING, GROUP_OF
from traceanalyzer.renderers.html_timeline import timeline_payload
from traceanalyzer.renderers.html_view import headline, lower_first, matrix, step_bar
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.finding import Episode
from traceanalyzer.results.vocabulary import CAUSES, StepClass


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
    assert heading == "The GPU worked 5.9 % of the time; batches are loaded in the training process."
    assert "Fixing TA101 would take the step from 70.0 ms to about 48.0 ms." in [text for _, text in outline.texts]


def test_a_bound_is_called_at_most() -> None:
    analysis = msgspec.structs.replace(sample_analysis(), plan=[])
    bar = step_bar(analysis.ranks[0])
    assert headline(analysis, bar)[1] == "Fixing it can win at most 18.0 ms of the mean step of 70.0 ms."


def test_an_episode_is_set_against_the_mean_step_with_episodes_which_the_page_says_it_leaves_out_of_the_bar() -> None:
    analysis = sample_analysis()
    rank = analysis.ranks[0]
    classes = [*[StepClass.STEADY] * 4, StepClass.EPISODIC]
    rank = msgspec.structs.replace(rank, steps=msgspec.structs.replace(rank.steps, step_class=classes))
    first = msgspec.structs.replace(analysis.findings[0], episode=Episode(ns=90 * MS, per_1000_steps=200.0))
    episodic = msgspec.structs.replace(analysis, ranks=[rank], plan=[], findings=[first])
    sentence, outlook = headline(episodic, step_bar(rank))
    assert "of the time in steady steps" in sentence
    # (64 + 67 + 70 + 73 + 76) / 5
    assert outlook == "Fixing it can win at most 18.0 ms of the mean step, episodes included, of 70.0 ms."
    assert "Not in this bar: 1 episodic step of 76.0 ms" in render_html(episodic)


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
        "≤ 16.2 ms",
        "upper bound",
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
