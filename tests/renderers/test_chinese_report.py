"""The whole report in Chinese: on every labelled recording no English word is left that is neither name nor unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.renderers.chinese import english_in, names_in, texts_of_page
from tests.shared_data import ROOT
from traceanalyzer.pipeline import analyze
from traceanalyzer.renderers.html import page_script, render_html
from traceanalyzer.renderers.markdown import render_markdown
from traceanalyzer.renderers.messages import catalogue, in_language, speaking
from traceanalyzer.renderers.messages.page import SAID, rewrite
from traceanalyzer.renderers.terminal import render_terminal

RECORDINGS = sorted(path for path in (ROOT / "sample_traces" / "labelled").iterdir() if path.is_dir())


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_no_english_is_left_in_any_report_of_a_labelled_recording(recording: Path) -> None:
    analysis = analyze([recording])
    with speaking("zh"):
        shown = in_language(analysis)
        page, markdown, terminal = render_html(shown), render_markdown(shown), render_terminal(shown, width=200)
    names = names_in(analysis) | names_in(shown)
    plain = re.sub(r"</?[a-z ]+>|^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE).replace("\\", "")
    assert '<html lang="zh">' in page
    assert english_in(texts_of_page(page), names) == {}
    assert english_in(plain.splitlines(), names) == {}
    assert english_in(terminal.splitlines(), names) == {}


def test_every_sentence_of_the_script_is_in_the_catalogue() -> None:
    said = set(SAID.findall(page_script()))
    assert len(said) > 15
    assert [text for text in said if catalogue("zh").lookup(text) is None] == []


def test_a_sentence_keeps_the_elements_inside_it_and_code_stays_untouched() -> None:
    page = '<p title="Idle">Idle <b>Idle</b> x <code>Idle</code></p>'
    assert rewrite(page, {"Idle": "空闲"}.get) == '<p title="空闲">空闲 <b>空闲</b> x <code>Idle</code></p>'
