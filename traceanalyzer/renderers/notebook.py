"""What Jupyter shows for an Analysis: the sentence, the bar and the findings, as one piece of plain HTML.

Importing this module is what makes ``Analysis`` display itself; the package does so when its interface is used.
"""

from __future__ import annotations

from markupsafe import Markup

from traceanalyzer.renderers.html_answer import Card, cards, headline
from traceanalyzer.renderers.html_palette import BUSY, GROUPS, OTHER_BUSY
from traceanalyzer.renderers.html_view import Bar, is_episodic, step_bar
from traceanalyzer.renderers.text import visible
from traceanalyzer.results import analysis as documents
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.answer import answer
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.units import format_ns, format_share

_COLOURS = {f"c-{cause}": colour for g in GROUPS for cause, colour in zip(g.causes, g.light, strict=True)} | {
    f"b-{kind}": light for kind, (_, light, _) in BUSY.items()
}
_LISTED = 8


def render_notebook(analysis: Analysis) -> str:
    """Render the answer as HTML without scripts and without style sheets, so that a notebook keeps it as it is."""
    bar = None
    if analysis.ranks:
        bar = step_bar(analysis.ranks[0], episodes=is_episodic(answer(analysis)))
    sentence, outlook = headline(analysis, bar)
    parts = [Markup("<p><strong>{}</strong><br>{}</p>").format(sentence, outlook)]
    parts += [
        Markup("<p>Rank {}: the recording is <strong>{}</strong>.</p>").format(
            rank.rank, visible(rank.integrity.verdict)
        )
        for rank in analysis.ranks
        if rank.integrity.verdict != "complete"
    ]
    if bar is not None:
        parts.append(_bar(bar))
    shown = cards(analysis, FindingKind.FAULT) + cards(analysis, FindingKind.LIMITER)
    if shown:
        parts.append(_findings(shown))
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def _bar(bar: Bar) -> Markup:
    pieces = [
        Markup('<span title="{}" style="width:{}%;background:{}"></span>').format(
            f"{part.label}: {format_ns(part.mean_ns)}, {format_share(part.share, 1.0)}",
            f"{100 * part.share:.3f}",
            _COLOURS.get(part.key, OTHER_BUSY[1]),
        )
        for part in bar.parts
    ]
    largest = sorted(bar.parts, key=lambda part: -part.total_ns)[:_LISTED]
    legend = [
        Markup('<span style="white-space:nowrap"><span style="color:{}">■</span> {} {}</span> ').format(
            _COLOURS.get(part.key, OTHER_BUSY[1]), part.label, format_ns(part.mean_ns)
        )
        for part in largest
    ]
    return Markup(
        '<div style="display:flex;height:22px;max-width:900px" role="img" aria-label="{}">{}</div><p>{}{}</p>'
    ).format(
        f"where {bar.of} go",
        Markup("").join(pieces),
        f"Mean of {bar.of}, {format_ns(bar.mean_ns)}: ",
        Markup("").join(legend),
    )


def _findings(shown: list[Card]) -> Markup:
    rows = [
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} %</td><td>{}</td></tr>").format(
            card.finding.code,
            card.finding.severity.value if card.finding.severity else "",
            visible(card.finding.title),
            f"{card.gain} ({card.basis})",
            f"{100 * card.finding.confidence:.0f}",
            visible(card.finding.fix[0]) if card.finding.fix else "",
        )
        for card in shown
    ]
    headings = ("code", "severity", "cause", "gain per step", "confidence", "do this first")
    head = Markup("").join(Markup("<th>{}</th>").format(heading) for heading in headings)
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, Markup("").join(rows))


documents.show_in_notebooks(render_notebook)
