"""An Analysis in Jupyter, and a report made again from its JSON."""

from __future__ import annotations

from tests.sample_analysis import HOSTILE, cpu_only_analysis, hostile_analysis, sample_analysis
from traceanalyzer import Analysis
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.notebook import render_notebook
from traceanalyzer.renderers.perfetto import render_perfetto


def test_an_analysis_shows_its_answer_bar_and_findings() -> None:
    shown = sample_analysis()._repr_html_()
    assert shown == render_notebook(sample_analysis())
    for expected in (
        "The GPU worked 5.9 % of the time. First to fix: batches are loaded in the training process.",
        "TA101",
        "Set num_workers to 4",
        "5 steady steps",
    ):
        assert expected in shown
    assert "<script" not in shown
    assert "<style" not in shown


def test_hostile_names_stay_text_in_a_notebook() -> None:
    shown = hostile_analysis()._repr_html_()
    assert shown is not None
    assert HOSTILE not in shown
    assert "<img" not in shown


def test_a_recording_without_gpu_activity_is_shown_too() -> None:
    assert "No GPU activity was recorded" in (cpu_only_analysis()._repr_html_() or "")


def test_json_gives_the_same_outputs_as_the_recording() -> None:
    for made in (sample_analysis(), hostile_analysis(), cpu_only_analysis()):
        again = Analysis.from_json(made.to_json())
        assert render_html(again) == render_html(made)
        assert render_perfetto(again) == render_perfetto(made)
        assert render_notebook(again) == render_notebook(made)
