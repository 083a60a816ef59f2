"""Writes the rules' documentation: ``rules/README.md`` and one page per rule in ``rules/docs``.

python -m tests.tools.rule_pages
"""

from __future__ import annotations

import sys
from pathlib import Path

import traceanalyzer.rules as package
from traceanalyzer.rules import catalogue

FOLDER = Path(package.__file__).parent
# written by another tool: what other programs name
OTHERS = ("other-tools.md",)


def pages() -> dict[Path, str]:
    """Return the text of every generated page."""
    return {
        FOLDER / "README.md": catalogue.catalogue_markdown(),
        **{FOLDER / "docs" / name: text for name, text in catalogue.pages().items()},
    }


def strangers() -> list[Path]:
    """Return pages of rules that no longer exist."""
    return [p for p in (FOLDER / "docs").glob("*.md") if p not in pages() and p.name not in OTHERS]


def main() -> int:
    """Write the pages."""
    (FOLDER / "docs").mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    for path in strangers():
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
