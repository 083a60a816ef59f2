"""The order of the pipeline, seen from outside: what is loaded when."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared_data import ROOT

PACKAGE = ROOT / "traceanalyzer"


def imported_by(path: Path) -> set[str]:
    """Return the absolute names of all modules a file imports, anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def test_import_contracts_hold() -> None:
    pytest.importorskip("importlinter")
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_only_the_command_line_prints_or_exits() -> None:
    # recording runs a training in a process of its own, which reports like one
    apart = (PACKAGE / "cli", PACKAGE / "recording", PACKAGE / "__main__.py")
    for path in PACKAGE.rglob("*.py"):
        if any(path.is_relative_to(place) for place in apart):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        assert not {"print", "exit", "input"} & set(calls), path


def test_nobody_imports_the_command_line_but_the_program() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(name.startswith("traceanalyzer.cli") for name in imported_by(path))
    }
    assert users <= {"cli", "__main__.py"}


@pytest.mark.parametrize("module", ["traceanalyzer", "traceanalyzer.results.analysis", "traceanalyzer.cli"])
def test_cheap_modules_stay_cheap(module: str) -> None:
    script = f"import sys, {module}; print([m for m in ('numpy', 'numba', 'pandas', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_files_are_short_enough_to_read() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 600
    }
    assert too_long == {}
