"""Ranges are seen by both profilers, and nothing is emitted where nobody listens."""

from __future__ import annotations

import pytest

from traceanalyzer.recording.ranges import RangeEmitter, nvtx_problem, parse_version


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0.2.12", (0, 2, 12)), ("2023.4.1.97-234", (2023, 4, 1, 97, 234)), ("2025.3", (2025, 3)), ("0.2.rc1", (0, 2))],
)
def test_a_version_is_read_up_to_its_first_word(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_a_new_nvtx_under_nsys_2023_is_said_to_record_nothing() -> None:
    problem = nvtx_problem("0.2.12", "2023.4.1")
    assert problem is not None
    assert "records nothing" in problem
    assert "nvtx<0.2.12" in problem


@pytest.mark.parametrize(("nvtx", "nsys"), [("0.2.11", "2023.4.1"), ("0.2.12", "2024.1.1"), ("0.2.17", None)])
def test_pairs_that_work_are_quiet(nvtx: str, nsys: str | None) -> None:
    assert nvtx_problem(nvtx, nsys) is None


def test_a_missing_nvtx_is_said_only_under_nsys() -> None:
    assert nvtx_problem(None, None) is None
    assert "not installed" in (nvtx_problem(None, "2025.3") or "")


@pytest.mark.torch
def test_ranges_reach_torch_profiler_only_while_enabled() -> None:
    torch = pytest.importorskip("torch")
    ranges = RangeEmitter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ranges.push("unheard")
        ranges.torch_enabled = True
        ranges.push("heard")
        ranges.torch_enabled = False
        ranges.pop()
        ranges.pop()
    names = [event.name for event in profile.events()]
    assert "heard" in names
    assert "unheard" not in names
