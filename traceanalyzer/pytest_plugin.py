"""A pytest plugin: a project's own GPU tests can fail when kernel gaps get worse.

::

    @pytest.mark.gap_baseline("baselines/train.json", budgets=["h2d_overlap>=80%"])
    def test_training_step(assert_no_gap_regression, tmp_path):
        recording = record_some_steps(tmp_path)
        assert_no_gap_regression(recording)

``pytest --update-gap-baselines`` puts the recordings into their baselines instead of comparing with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from traceanalyzer.results.comparison import Comparison

MARK = "gap_baseline"
UPDATE = "--update-gap-baselines"
SHOWN = 10

Recording = str | PathLike[str]
GapAssertion = Callable[..., "Comparison | None"]


def assert_no_gap_regression(
    recording: Recording | Sequence[Recording],
    baseline: Recording,
    *,
    gates: Sequence[str] = (),
    budgets: Sequence[str] = (),
    allow_different: bool = False,
    strict: bool = False,
) -> Comparison:
    """Fail when kernel gaps of a recording got worse than its baseline's latest release.

    Args:
        recording: One or several runs; see ``traceanalyzer.compare``.
        baseline: A baseline (``FILE`` or ``FILE@RELEASE``), or any other run to compare with.
        gates: Which metrics may decide and their floors; every one by default.
        budgets: Absolute limits on the recording.
        allow_different: Compare although hardware or configuration differ.
        strict: Fail too when it cannot be decided.

    Returns:
        The comparison, for further assertions.

    Raises:
        AssertionError: Gaps got worse, or it is undecided and ``strict``.
        TraceAnalyzerError: The two cannot be compared.
    """
    # the assertion should point at the test that called it
    __tracebackhide__ = True
    from traceanalyzer.gate import compare
    from traceanalyzer.results.comparison import Verdict

    runs = [recording] if isinstance(recording, (str, PathLike)) else list(recording)
    comparison = compare(baseline, runs, gates=gates, budgets=budgets, allow_different=allow_different)
    failing = {Verdict.REGRESSION, Verdict.INCONCLUSIVE} if strict else {Verdict.REGRESSION}
    if comparison.verdict in failing:
        lines = [comparison.summary, *(f"  {t.family.value}: {t.detail}" for t in comparison.regressions[:SHOWN])]
        raise AssertionError("\n".join(lines))
    return comparison


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that renews baselines."""
    parser.getgroup("traceanalyzer").addoption(
        UPDATE,
        action="store_true",
        help="put the recordings of assert_no_gap_regression into their baselines instead of comparing",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(file, **options): the baseline (relative to the test's folder) and options of "
        "assert_no_gap_regression in this test",
    )


@pytest.fixture(name="assert_no_gap_regression")
def _assert_no_gap_regression(request: pytest.FixtureRequest) -> GapAssertion:
    """``assert_no_gap_regression`` with the marker's baseline and options; those of the call win."""
    mark = request.node.get_closest_marker(MARK)
    folder = request.path.parent

    def check(
        recording: Recording | Sequence[Recording], baseline: Recording | None = None, **options: object
    ) -> Comparison | None:
        __tracebackhide__ = True
        if baseline is None:
            if mark is None or not mark.args:
                raise pytest.UsageError(
                    f"assert_no_gap_regression: name a baseline, or mark the test with @pytest.mark.{MARK}(FILE)"
                )
            baseline = mark.args[0]
        place = folder / baseline  # an absolute baseline stays itself
        if request.config.getoption(UPDATE):
            _update(place, recording)
            return None
        merged = {**(mark.kwargs if mark is not None else {}), **options}
        return assert_no_gap_regression(recording, place, **merged)

    return check


def _update(place: Path, recording: Recording | Sequence[Recording]) -> None:
    from traceanalyzer.comparison.baseline import update_baseline
    from traceanalyzer.gate import LoadOptions, load_baseline, load_runs
    from traceanalyzer.results.baseline import Baseline

    names = [recording] if isinstance(recording, (str, PathLike)) else list(recording)
    held = load_baseline(place) if place.exists() else Baseline(releases=[])
    runs = [run for name in names for run in load_runs(name, LoadOptions())]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(update_baseline(held, runs, None)[0].to_json())
