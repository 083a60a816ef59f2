"""Finds the sentences that the package says, as templates: what a translation has to cover.

A template is the text of a string literal, with ``{}`` where a value stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.shared_data import ROOT

PACKAGE = ROOT / "traceanalyzer"
# calls whose texts are names of the recorded program, or are read by nobody
_NOT_SAID = {"slices_named", "named_with", "startswith", "endswith", "get", "removeprefix", "has_slices", "compile"}
_NOT_SAID |= {"search", "match", "sub", "ValueError", "TypeError", "AssertionError", "UsageError", "split", "partition"}


def template(node: ast.Constant | ast.JoinedStr) -> str:
    """Write a literal as a template."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def literals(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield string literals outside docstrings, dictionary keys, subscripts and calls that say nothing."""
    if isinstance(tree, ast.JoinedStr):
        yield tree
        for part in tree.values:
            if isinstance(part, ast.FormattedValue):
                yield from literals(part.value)
        return
    if isinstance(tree, ast.Constant):
        if isinstance(tree.value, str):
            yield tree
        return
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    if isinstance(tree, ast.Call):
        name = tree.func.attr if isinstance(tree.func, ast.Attribute) else getattr(tree.func, "id", "")
        if name in _NOT_SAID:
            return
    for field, value in ast.iter_fields(tree):
        if (isinstance(tree, ast.Dict) and field == "keys") or (isinstance(tree, ast.Subscript) and field == "slice"):
            continue
        if field == "annotation" or field == "returns":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from literals(child)


def is_prose(text: str) -> bool:
    """Whether a template is something a person reads: words with a space between."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    return bool(words) and " " in text.strip() + ("  " if text != text.strip() else "")


def prose_of(path: Path) -> list[str]:
    """Return the prose templates of one module, in order, each once."""
    found = [template(node) for node in literals(ast.parse(path.read_text(encoding="utf-8")))]
    return list(dict.fromkeys(text for text in found if is_prose(text)))


def rule_modules() -> list[Path]:
    """Modules whose sentences end up in findings."""
    return sorted((PACKAGE / "rules").glob("*.py"))


def main() -> None:
    """Print the templates of all rules."""
    for path in rule_modules():
        print(f"# {path.name}")
        for text in prose_of(path):
            print(repr(text))


if __name__ == "__main__":
    main()
