"""A finished HTML page in another language: its sentences replaced where they stand, its markup left alone.

Translating the page after it was made keeps templates, figures and tables free of any second mechanism: what a reader
sees is looked up in the same catalogue as a finding's sentence. Code, numbers with their exact value, scripts and
whatever says ``translate="no"`` are never looked into, so a name from a recording in them cannot change.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from traceanalyzer.renderers.messages import catalogue, language
from traceanalyzer.results.vocabulary import Cause, Phase, StepClass

_TOKEN = re.compile(r"<!--.*?-->|<!doctype[^>]*>|<(/?)([A-Za-z][\w:-]*)((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>", re.S | re.I)
# what stands inside a sentence; every other element begins and ends one
_INLINE = {"a", "abbr", "b", "br", "code", "data", "em", "i", "kbd", "small", "span", "strong"}
_OPAQUE = {"code", "data", "kbd", "pre", "script", "style"}
_VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "line", "use", "circle"}
_SPOKEN = re.compile(r"(\s(?:title|aria-label|placeholder|alt)=\")([^\"]*)(\")")
_WORD = re.compile(r"[A-Za-z]{2,}")
_HTML_LANG = re.compile(r"(<html\b[^>]*\blang=\")[^\"]*(\")")
# names from a recording never hold these: ``visible`` spells private-use characters out
_FIRST = 0xE000
SAID = re.compile(r'\bsay\("([^"]*)"')

Find = Callable[[str], str | None]


def translated_page(page: str) -> str:
    """Return a finished page in the language spoken; English stays as it is.

    Args:
        page: HTML as the templates write it: attributes in double quotes, text escaped.
    """
    if language() == "en":
        return page
    spoken = rewrite(page, catalogue(language()).find)
    return _HTML_LANG.sub(rf"\g<1>{language()}\g<2>", spoken, count=1)


def page_words(script: str) -> dict[str, str]:
    """Return the sentences of a script in the language spoken, as its ``say`` looks them up; empty in English.

    Args:
        script: JavaScript whose sentences are string literals inside ``say(...)``.
    """
    if language() == "en":
        return {}
    known = catalogue(language())
    fixed = [*Cause, *Phase, *StepClass, *known.section("slices")]
    wanted = {*(word.replace("_", " ") for word in fixed), *SAID.findall(script)}
    return {text: found for text in sorted(wanted) if (found := known.find(text)) is not None}


def rewrite(page: str, find: Find) -> str:
    """Pass every sentence, label and hover text of a page through ``find``; None keeps it.

    Args:
        page: HTML.
        find: Gets a sentence with one private-use character for every element inside it, white space collapsed.
    """
    return _Rewriter(page, find).run()


@dataclass(slots=True)
class _Element:
    """An inline element: its tags as written, and what is between them."""

    opening: str
    children: list[str | _Element] = field(default_factory=list)
    closing: str = ""


class _Rewriter:
    """Reads tags one after the other and rewrites the run of text and inline elements between two blocks."""

    def __init__(self, page: str, find: Find) -> None:
        self._page = page
        self._find = find
        self._out: list[str] = []
        self._run: list[str | _Element] = []
        self._open: list[tuple[str, _Element]] = []

    def run(self) -> str:
        at = 0
        while (token := _TOKEN.search(self._page, at)) is not None:
            self._children().append(self._page[at : token.start()])
            at = token.end()
            name = (token[2] or "").lower()
            tag = self._spoken_tag(token[0])
            if not name or (name not in _INLINE and not _is_opaque(name, tag)):
                self._flush()
                self._out.append(tag)
            elif token[1]:
                self._close(name, tag)
            elif _is_opaque(name, tag) and not tag.endswith("/>"):
                at = self._end_of(name, at)
                whole = _Element(tag + self._page[token.end() : at])
                if name in _INLINE:
                    self._children().append(whole)
                else:
                    self._flush()
                    self._out.append(whole.opening)
            else:
                element = _Element(tag)
                self._children().append(element)
                if name not in _VOID and not tag.endswith("/>"):
                    self._open.append((name, element))
        self._children().append(self._page[at:])
        self._flush()
        return "".join(self._out)

    def _children(self) -> list[str | _Element]:
        return self._open[-1][1].children if self._open else self._run

    def _close(self, name: str, tag: str) -> None:
        if self._open and self._open[-1][0] == name:
            self._open.pop()[1].closing = tag
        else:
            # its opening tag was already written, because a block began inside it
            self._flush()
            self._out.append(tag)

    def _end_of(self, name: str, at: int) -> int:
        """Return where the element that was just opened ends; elements of its own name may be inside it."""
        depth = 1
        for token in re.compile(rf"<(/?){name}\b[^>]*>", re.IGNORECASE).finditer(self._page, at):
            depth += -1 if token[1] else 1
            if depth == 0:
                return token.end()
        return len(self._page)

    def _flush(self) -> None:
        self._open.clear()
        if self._run:
            self._out.append(self._said(self._run))
            self._run = []

    def _said(self, run: list[str | _Element]) -> str:
        """Rewrite one run: as a whole where it is known, else its pieces of text one by one."""
        elements = [child for child in run if isinstance(child, _Element)]
        marks = iter(range(_FIRST, _FIRST + len(elements)))
        text = "".join(html.unescape(child) if isinstance(child, str) else chr(next(marks)) for child in run)
        inner = [element.opening + self._said(element.children) + element.closing for element in elements]
        core = " ".join(text.split())
        pieces = [child if isinstance(child, _Element) else self._piece(child) for child in run]
        if _WORD.search(core) and (found := self._whole(core, len(elements))) is not None:
            # a sentence known only in parts may be better known piece by piece
            apart = "".join(piece for piece in pieces if isinstance(piece, str))
            if not elements or _left(found) <= _left(html.unescape(apart)):
                lead, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
                said = html.escape(lead + found + tail, quote=False)
                return re.sub(r"[\ue000-\uf8ff]", lambda mark: inner[ord(mark[0]) - _FIRST], said)
        rendered = iter(inner)
        return "".join(piece if isinstance(piece, str) else next(rendered) for piece in pieces)

    def _whole(self, core: str, elements: int) -> str | None:
        found = self._find(core)
        marks = [chr(_FIRST + i) for i in range(elements)]
        # a translation that lost or doubled an element of the page is none
        return found if found is not None and all(found.count(mark) == 1 for mark in marks) else None

    def _piece(self, text: str) -> str:
        plain = html.unescape(text)
        core = " ".join(plain.split())
        found = self._find(core) if _WORD.search(core) else None
        if found is None:
            return text
        lead, tail = plain[: len(plain) - len(plain.lstrip())], plain[len(plain.rstrip()) :]
        return html.escape(lead + found + tail, quote=False)

    def _spoken_tag(self, tag: str) -> str:
        def said(match: re.Match[str]) -> str:
            text = html.unescape(match[2])
            found = self._find(text) if _WORD.search(text) else None
            return match[0] if found is None else match[1] + html.escape(found) + match[3]

        return _SPOKEN.sub(said, tag)


def _left(text: str) -> int:
    """Count the English words in a text."""
    return len(_WORD.findall(text))


def _is_opaque(name: str, tag: str) -> bool:
    return name in _OPAQUE or 'translate="no"' in tag
