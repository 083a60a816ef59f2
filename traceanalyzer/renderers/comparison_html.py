"""A comparison as one HTML file: the verdict, both timelines, and every test."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from traceanalyzer.renderers.comparison_strips import draw_strips
from traceanalyzer.renderers.comparison_text import format_interval, format_level, format_ratio, test_name
from traceanalyzer.renderers.html_palette import css_variables
from traceanalyzer.renderers.messages.page import translated_page
from traceanalyzer.renderers.text import visible
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.comparison import Comparison, Family, Verdict

_CHANGED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)


def render_comparison_html(
    comparison: Comparison, base: Analysis | None = None, candidate: Analysis | None = None
) -> str:
    """Render the comparison.

    Args:
        comparison: The document.
        base: The first base run, for its timeline; None where only a baseline is at hand.
        candidate: The first candidate run likewise.

    Returns:
        A complete page without scripts, whose content-security policy forbids every connection.
    """
    light, dark = css_variables()
    deciding = [t for t in comparison.tests if t.family is not Family.ADVISORY]
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    page = environment.get_template("comparison.html").render(
        comparison=comparison,
        strips=draw_strips(comparison, base, candidate),
        changed=[t for t in deciding if t.verdict in _CHANGED],
        unchanged=[t for t in deciding if t.verdict not in _CHANGED],
        advisory=[t for t in comparison.tests if t.family is Family.ADVISORY and t.base != t.candidate],
        level=format_level,
        ratio=format_ratio,
        interval=format_interval,
        name=test_name,
        styles=Markup(files("traceanalyzer.renderers").joinpath("assets", "report.css").read_text(encoding="utf-8")),
        light=Markup(light),
        dark=Markup(dark),
    )
    return translated_page(page)


def _template(name: str) -> str:
    return files("traceanalyzer.renderers").joinpath("templates", name).read_text(encoding="utf-8")
