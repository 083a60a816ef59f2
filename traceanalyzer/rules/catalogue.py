"""The rules as documentation: one page per rule and the list of all, made from the rules' own docstrings."""

from __future__ import annotations

import inspect
from dataclasses import fields

from traceanalyzer.errors import UsageError
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules import RULES
from traceanalyzer.rules.base import Meta, RuleModule
from traceanalyzer.rules.remedies import snippet, verify

HEADINGS = (
    "Detects",
    "Why it matters",
    "How it is measured",
    "Does not apply when",
    "How to fix",
    "Limits and false positives",
    "References",
)


def find_rule(name: str) -> RuleModule:
    """Return a rule by code or slug, in any letter case.

    Raises:
        UsageError: There is no such rule.
    """
    for rule in RULES:
        if name.upper() == rule.META.code or name.lower().replace("_", "-") == rule.META.slug:
            return rule
    raise UsageError(f"no rule {name!r}; `traceanalyzer rules` lists them")


def explain(name: str) -> str:
    """Return the documentation page of a rule as Markdown.

    Args:
        name: Code or slug.

    Raises:
        UsageError: There is no such rule.
    """
    rule = find_rule(name)
    meta = rule.META
    title = f"# {meta.code} {meta.slug}\n\n*{meta.kind.value}, {meta.category}, since {meta.since}*"
    lines = [title, "", _summary(rule), ""]
    for heading, text in sections(rule).items():
        lines += [f"## {heading}", "", text, ""]
        if heading == "How to fix":
            lines += _example(meta)
    sources = _threshold_sources(rule)
    values = [f"- `{f.name}` = {f.default}: {sources[f.name]}." for f in fields(rule.Thresholds())]
    if values:
        lines += ["## Thresholds", "", *values, ""]
    return "\n".join(lines)


def sections(rule: RuleModule) -> dict[str, str]:
    """Split a rule's docstring at its headings.

    Returns:
        Text by heading, in the order written; the summary line is left out.
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in inspect.cleandoc(rule.__doc__ or "").splitlines():
        if line.startswith("## "):
            current = found.setdefault(line[3:], [])
        else:
            current.append(line)
    return {heading: "\n".join(lines).strip() for heading, lines in found.items()}


def catalogue_markdown() -> str:
    """Return the list of all rules as Markdown, the content of ``rules/README.md``."""
    lines = [
        "# Rules",
        "",
        "Generated from the rules' docstrings; `traceanalyzer explain CODE` prints a whole page, and `docs/` keeps all",
        "of them. A **fault** can be changed, a **limiter** bounds the step once the faults are gone, a **note**",
        "informs. A finding that only follows from another is folded under it (`folding.py`). What other tools name on",
        "the same labelled recordings is in [docs/other-tools.md](docs/other-tools.md).",
        "",
        "| code | rule | kind | detects |",
        "|---|---|---|---|",
    ]
    for rule in RULES:
        meta = rule.META
        detects = " ".join(sections(rule)["Detects"].split()).replace("|", "\\|")
        page = f"docs/{meta.code}-{meta.slug}.md"
        lines.append(f"| {meta.code} | [{meta.slug}]({page}) | {meta.kind.value} | {detects} |")
    lines += [
        "",
        "## Adding a rule",
        "",
        "One file (its name is the slug with underscores; its docstring is its page, with the headings of any other",
        "rule), one line in `__init__.py`, one test file with `fires()` and `quiet()`, and the pages regenerated with",
        "`python -m tests.tools.rule_pages`.",
        "",
    ]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return every rule's page, the content of ``rules/docs``.

    Returns:
        Page by file name.
    """
    return {f"{rule.META.code}-{rule.META.slug}.md": explain(rule.META.code) for rule in RULES}


def _example(meta: Meta) -> list[str]:
    """Write a rule's remedy: what to set, before and after, and the commands that check it."""
    change = meta.remedy
    lines = []
    if change is not None:
        settings = ", ".join(f"`{setting}`" for setting in change.settings)
        before, after = (snippet(change, code, {}) for code in (change.before, change.after))
        lines += ["## Example", "", f"Sets: {settings}.", "", "Before:", "", "```python", before, "```", ""]
        lines += ["After:", "", "```python", after, "```", ""]
    if meta.kind is not FindingKind.NOTE:
        lines += ["## Verify", "", "Record again (`BEFORE` is the first recording); the second command ends with exit"]
        lines += ["code 0 when the rule no longer fires:", "", "```sh", *verify(meta, None, {}), "```", ""]
    return lines


def _threshold_sources(rule: RuleModule) -> dict[str, str]:
    """Read where each threshold comes from: the comment above it."""
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in inspect.getsource(type(rule.Thresholds())).splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.lstrip("# "))
        elif ":" in text:
            found[text.split(":")[0]] = " ".join(comment)
            comment = []
    return found


def _summary(rule: RuleModule) -> str:
    return inspect.cleandoc(rule.__doc__ or "").splitlines()[0]
