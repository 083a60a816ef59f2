"""The report: one HTML file that opens from disk, needs no network and reads without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from traceanalyzer.renderers import html_memory as memory_view
from traceanalyzer.renderers import html_view as view
from traceanalyzer.renderers.embed import script_json
from traceanalyzer.renderers.figures import draw_figures
from traceanalyzer.renderers.html_answer import cards, first_step, headline, spot
from traceanalyzer.renderers.html_palette import css_variables
from traceanalyzer.renderers.html_timeline import slice_count, timeline_payload
from traceanalyzer.renderers.job_text import HEAD, job_lines, job_rows
from traceanalyzer.renderers.messages.page import page_words, translated_page
from traceanalyzer.renderers.text import marker_hint, visible, visible_code
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.answer import answer
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.units import format_bytes, format_ns, format_share

# each module may use only those before it; the last one starts everything
SCRIPTS = ("words.js", "scale.js", "model.js", "draw.js", "input.js", "minimap.js", "tables.js", "app.js")
MAX_STEP_ROWS = 400


def render_html(analysis: Analysis) -> str:
    """Render the report.

    Args:
        analysis: The document; equal documents give equal text.

    Returns:
        A complete page with a content-security policy that forbids every connection.
    """
    script = page_script()
    timelines = [timeline_payload(rank) for rank in analysis.ranks if rank.timeline.tracks]
    main = analysis.ranks[0] if analysis.ranks else None
    # where the answer is an episode, the bar has to show it
    episodes = view.is_episodic(answer(analysis))
    bar = view.step_bar(main, episodes=episodes) if main is not None else None
    sentence, outlook = headline(analysis, bar)
    light, dark = css_variables()
    page = (
        _environment()
        .get_template("report.html")
        .render(
            analysis=analysis,
            bar=bar,
            episodes=episodes,
            sentence=sentence,
            outlook=outlook,
            first_step=first_step(analysis),
            faults=cards(analysis, FindingKind.FAULT),
            limiters=cards(analysis, FindingKind.LIMITER),
            notes=cards(analysis, FindingKind.NOTE),
            others=[
                (title, [f for f in analysis.findings if f.status is status])
                for title, status in (
                    ("Informative", Status.INFORMATIVE),
                    ("Passed", Status.PASS),
                    ("Not applicable", Status.NOT_APPLICABLE),
                    ("Checks that failed to run", Status.ERROR),
                )
            ],
            job_lines=job_lines(analysis.job) if analysis.job else [],
            job_head=HEAD,
            job_rows=job_rows(analysis.job) if analysis.job else [],
            view=view,
            marker_hint=marker_hint,
            memory_view=memory_view,
            figures={rank.rank: draw_figures(rank, f"r{rank.rank}-") for rank in analysis.ranks},
            slices={rank.rank: slice_count(rank.timeline) for rank in analysis.ranks},
            max_step_rows=MAX_STEP_ROWS,
            timeline_ranks=[payload["rank"] for payload in timelines],
            timeline_json=Markup(script_json(timelines)),
            words_json=Markup(script_json(page_words(script))),
            script=Markup(script),
            script_hash=_hash(script),
            styles=Markup(_asset("report.css")),
            light=Markup(light),
            dark=Markup(dark),
        )
    )
    return translated_page(page)


@lru_cache(maxsize=1)
def page_script() -> str:
    """Return the page's modules as one: imports between them dropped, exports made plain declarations."""
    parts = []
    for name in SCRIPTS:
        text = re.sub(r"^import [^;]*? from \"\./[\w.]+\";\n", "", _asset(name), flags=re.MULTILINE)
        parts.append(f"// {name}\n" + re.sub(r"^export (?=class|function|const)", "", text, flags=re.MULTILINE))
    script = "\n" + "\n".join(parts)
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise AssertionError("a script of the page would end its own block")
    return script


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("traceanalyzer.renderers").joinpath("assets", name).read_text(encoding="utf-8")


def _template(name: str) -> str:
    return files("traceanalyzer.renderers").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ns": format_ns,
        "bytes": format_bytes,
        "share": lambda fraction: format_share(fraction, 1.0),
        "ns_cell": lambda value: _cell(value, format_ns(value), "ns"),
        "bytes_cell": lambda value: _cell(value, format_bytes(value), "bytes"),
        "share_cell": lambda value: _cell(value, format_share(value, 1.0), "share"),
        "visible": visible,
        "visible_code": visible_code,
        "spot": spot,
        "exact": lambda value: f"{value:,}",
        "percent": lambda fraction: f"{100 * fraction:.3f}%",
        "number": _number,
    }
    return environment


def _cell(value: float | None, text: str, unit: str) -> str:
    """Write a table's number for reading, with the exact one behind it for copying and hovering."""
    if value is None:
        return text
    exact = f"{value:.6g}" if unit == "share" else f"{round(value)}"
    hover = (
        "" if unit == "share" else Markup(' title="{} {}"').format(f"{round(value):,}", "ns" if unit == "ns" else "B")
    )
    return Markup('<data class="{}" value="{}"{}>{}</data>').format(unit, exact, hover, text)


def _number(value: float | str | bool | None, name: str = "") -> str:
    """Write an observed value or a threshold; the unit is in its name."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return visible(value)
    if "_ns" in name:
        return format_ns(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if "share" in name:
        return format_share(value, 1.0)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
