"""What the reports say in another language: one catalogue per language, English itself being the key.

A key is an English sentence with ``{}`` where a value stands (``{n}``: a whole number, ``{w}``: no space); its
translation may number the values (``{1}``) to put them into its own order. Reports ask for their own sentences with
``say``, and ``page`` translates a finished HTML page.
The sentences of findings come from a
document that holds them as finished English text, so ``translated`` finds the key a text was made from; that way a
document of any age can be shown in any language, and documents stay the same in all of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from markupsafe import Markup

from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.finding import Evidence, Finding, Remedy

LANGUAGES = ("en", "zh")
# below this many letters a key is a fragment (", mostly at {}") that also occurs inside sentences
_FRAGMENT = 16
_SENTENCE_END = re.compile(r"(?<=[.!?])(?= )")
_LIST = re.compile(r"(?:, |; )(?![^(]*\))")
_HOLE, _NARROW = re.compile(r"\{[nw]?\}"), {"{n}": r"(\d[\d,]*)", "{w}": r"(\S+)"}
_AMOUNT = r"[≤≈+-]? ?\d[\d.,]*(?:e-?\d+)?(?: ?(?:ns|µs|ms|s|%|B|[KMGT]iB))?"
_MEASURED = re.compile(rf"(.*[^\W\d].*?)(:?) ({_AMOUNT}(?:, {_AMOUNT})*)")
# a value, which goes on past the end of a sentence only where it stands behind one: text added to a message
_VALUE, _ADDED = r"((?:(?!\. [A-Z]).)*?)", r"(.*?)"
# Chinese is set with a space beside Latin letters and digits
_SEAM = re.compile(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9`])|(?<=[A-Za-z0-9%`])(?=[\u4e00-\u9fff])")
_language: ContextVar[str] = ContextVar("language", default="en")


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Let ``say`` and ``translated`` answer in a language within a block.

    Args:
        language: One of ``LANGUAGES``.
    """
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


def language() -> str:
    """Return the language spoken."""
    return _language.get()


def say(template: str, *values: Any) -> str:
    """Put values into a sentence of the report, in the language spoken; an unknown sentence stays English."""
    known = template if language() == "en" else catalogue(language()).lookup(template) or template
    return known.format(*values)


def say_markup(template: str, *values: Any) -> Markup:
    """As ``say``, for a sentence with HTML in it; the values are escaped."""
    known = template if language() == "en" else catalogue(language()).lookup(template) or template
    return Markup(known).format(*values)


def translated(text: str) -> str:
    """Return a finished English text in the language spoken; what the catalogue does not know stays as it is."""
    return text if language() == "en" or not text else catalogue(language()).translate(text)


@lru_cache(maxsize=2)
def catalogue(name: str) -> Catalogue:
    """Return the catalogue of a language; that of English is empty."""
    if name == "en":
        return Catalogue({})
    text = files("traceanalyzer.renderers").joinpath("messages", f"{name}.toml").read_text(encoding="utf-8")
    sections: dict[str, dict[str, str]] = tomllib.loads(text)
    return Catalogue(sections)


class Catalogue:
    """The sentences of one language.

    Attributes:
        sentences: Translation by English key.
    """

    def __init__(self, sections: dict[str, dict[str, str]]) -> None:
        self._sections = sections
        self.sentences = {key: value for section in sections.values() for key, value in section.items()}
        sentences = self.sentences
        keyed = sorted(((_letters(key), key) for key in sentences), reverse=True)
        self._long = [_Pattern(key, sentences[key]) for size, key in keyed if size >= _FRAGMENT and _HOLE.search(key)]
        self._short = [_Pattern(key, sentences[key]) for size, key in keyed if size < _FRAGMENT and _HOLE.search(key)]
        self._known: dict[str, str | None] = {}

    def lookup(self, key: str) -> str | None:
        """Return the entry of a key, whatever the case of its first letter."""
        return self.sentences.get(key) or self.sentences.get(_other_case(key))

    def section(self, name: str) -> list[str]:
        """Return the keys of one section."""
        return list(self._sections[name])

    def translate(self, text: str) -> str:
        """Translate a text sentence by sentence; unknown parts stay as they are."""
        found = self.find(text)
        return found if found is not None else text

    def find(self, text: str) -> str | None:
        """Translate a whole text, or return None where no key fits."""
        known = self.lookup(text)
        if known is not None:
            return known
        if text not in self._known:
            # before the search: a hole that is the whole text again must not recurse for ever
            self._known[text] = None
            self._known[text] = (
                self._match(text, self._long)
                # a sentence that is added to another brings the space between them
                or (self._match(text.lstrip(), self._long) if text.startswith(" ") else None)
                or self._in_sentences(text)
                or self._match(text, self._short)
                or self._measured(text)
                or self._in_list(text)
                or (self.find(text.lstrip()) if text.startswith(" ") else None)
            )
        return self._known[text]

    def _match(self, text: str, patterns: list[_Pattern]) -> str | None:
        for pattern in patterns:
            values = pattern.values(text)
            if values is not None:
                return _SEAM.sub(" ", pattern.translation.format(*(self.translate(value) for value in values)))
        return None

    def _in_sentences(self, text: str) -> str | None:
        """Translate sentences one after the other, trying to take as many as possible as one."""
        ends = [match.start() for match in _SENTENCE_END.finditer(text)]
        for end in reversed(ends):
            head = self._as_one(text[:end]) if end != ends[0] else self.find(text[:end])
            if head is not None:
                # a sentence that is added to another begins with the space between them
                rest = self.find(text[end:]) or self.find(text[end:].lstrip()) or text[end:]
                return head + rest
        return None

    def _as_one(self, text: str) -> str | None:
        """Translate several sentences that one key holds together."""
        return (
            self.lookup(text)
            or self._match(text, self._long)
            or (self._match(text.lstrip(), self._long) if text.startswith(" ") else None)
            or self._match(text, self._short)
        )

    def _measured(self, text: str) -> str | None:
        """Translate words with what was measured behind them: ``launch latency 12 µs``."""
        match = _MEASURED.fullmatch(text)
        found = self.find(match[1]) if match else None
        return None if match is None or found is None else f"{found}{'：' if match[2] else ' '}{match[3]}"

    def _in_list(self, text: str) -> str | None:
        parts = _LIST.split(text)
        found = [self.find(part) for part in parts] if len(parts) > 1 else []
        if not any(found):
            return None
        between = "；" if "; " in text else "、"
        return between.join(new if new is not None else old for new, old in zip(found, parts, strict=True))


class _Pattern:
    """A key with values in it, as something that recognises its own text."""

    def __init__(self, key: str, translation: str) -> None:
        self.translation = translation
        self._parts = _HOLE.split(key)
        self._holes = _HOLE.findall(key)
        self._expression: re.Pattern[str] | None = None

    def values(self, text: str) -> tuple[str, ...] | None:
        """Return the values a text was made with; None where it was made from another key."""
        head, tail = self._parts[0], self._parts[-1]
        if not text.startswith(head) or not text.endswith(tail):
            return None
        if self._expression is None:
            self._expression = re.compile(self._written(), re.DOTALL)
        match = self._expression.fullmatch(text)
        return match.groups() if match else None

    def _written(self) -> str:
        written = ""
        before = ""
        for number, part in enumerate(self._parts):
            if number and self._holes[number - 1] in _NARROW:
                written += _NARROW[self._holes[number - 1]]
            elif number:
                written += _ADDED if before.rstrip().endswith(".") else _VALUE
            # the point of "2.26 s" ends no sentence
            written += re.escape(part) + (r"(?!\d)" if part.endswith(".") else "")
            before = part or before
        return written


def _other_case(text: str) -> str:
    """Swap the case of the first letter: a heading and the same words inside a sentence share one entry."""
    return text[:1].swapcase() + text[1:]


def _letters(key: str) -> int:
    return len(_HOLE.sub("", key))


def in_language(analysis: Analysis) -> Analysis:
    """Return a document whose findings and notes are in the language spoken, for renderers only."""
    if language() == "en":
        return analysis
    return msgspec.structs.replace(
        analysis,
        findings=[_finding(finding) for finding in analysis.findings],
        ranks=[_rank(rank) for rank in analysis.ranks],
    )


def _finding(finding: Finding) -> Finding:
    return msgspec.structs.replace(
        finding,
        title=translated(finding.title),
        message=translated(finding.message),
        fix=[translated(step) for step in finding.fix],
        remedy=None if finding.remedy is None else _remedy(finding.remedy),
        evidence=[_evidence(place) for place in finding.evidence],
        observed={
            name: translated(value) if name == "most_time_in" and isinstance(value, str) else value
            for name, value in finding.observed.items()
        },
    )


def _remedy(remedy: Remedy) -> Remedy:
    return msgspec.structs.replace(remedy, settings=[translated(setting) for setting in remedy.settings])


def _evidence(place: Evidence) -> Evidence:
    return msgspec.structs.replace(place, what=translated(place.what))


def _rank(rank: RankReport) -> RankReport:
    state = rank.integrity
    dropped = [msgspec.structs.replace(d, reason=translated(d.reason)) for d in state.dropped]
    state = msgspec.structs.replace(state, notes=[translated(note) for note in state.notes], dropped=dropped)
    notes = [translated(note) for note in rank.timeline.notes]
    return msgspec.structs.replace(rank, integrity=state, timeline=msgspec.structs.replace(rank.timeline, notes=notes))


Say = Callable[..., str]
