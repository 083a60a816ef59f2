"""Fixtures of the tests of damaged input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.answers import CommandLine


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(capsys, tmp_path)
