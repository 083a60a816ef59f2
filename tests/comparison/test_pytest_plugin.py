"""The pytest plugin, run by pytest itself on sample recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

# pytester forgets modules first imported inside a test, and NumPy cannot be loaded twice
import traceanalyzer.gate
import traceanalyzer.pipeline  # noqa: F401
from tests.comparison.documents import SAMPLES, labelled_document

pytest_plugins = ["pytester"]

TEST = """
    import pytest

    @pytest.mark.gap_baseline("held/train.json")
    def test_gaps(assert_no_gap_regression):
        assert_no_gap_regression({recording!r}{options})
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = -p traceanalyzer.pytest_plugin --strict-markers\n")
    return pytester


def _run(project: pytest.Pytester, recording: Path, *arguments: str, options: str = "") -> pytest.RunResult:
    project.makepyfile(TEST.format(recording=str(recording), options=options))
    return project.runpytest_inprocess(*arguments)


def test_a_recording_equal_to_its_baseline_passes_and_a_regression_fails_naming_it(project: pytest.Pytester) -> None:
    good, slow = labelled_document("good"), labelled_document("single-process-loader")
    _run(project, good, "--update-gap-baselines").assert_outcomes(passed=1)
    assert (project.path / "held" / "train.json").is_file()
    _run(project, good).assert_outcomes(passed=1)
    failed = _run(project, slow)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*Regression:*", "*idle cause: idle from input_wait*"])


def test_recordings_are_taken_as_they_are(project: pytest.Pytester) -> None:
    good, slow = (SAMPLES / name / "rank0.pt.trace.json.gz" for name in ("good", "single-process-loader"))
    _run(project, good, "--update-gap-baselines").assert_outcomes(passed=1)
    _run(project, good).assert_outcomes(passed=1)
    _run(project, slow).assert_outcomes(failed=1)


def test_options_of_the_call_reach_the_comparison(project: pytest.Pytester) -> None:
    good, slow = labelled_document("good"), labelled_document("single-process-loader")
    _run(project, good, "--update-gap-baselines").assert_outcomes(passed=1)
    _run(project, slow, options=", gates=['counters']").assert_outcomes(passed=1)
    _run(project, good, options=", budgets=['step<=1ms']").assert_outcomes(failed=1)


def test_without_a_baseline_the_test_says_how_to_name_one(project: pytest.Pytester) -> None:
    project.makepyfile("def test_gaps(assert_no_gap_regression):\n    assert_no_gap_regression('x.json')\n")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*name a baseline, or mark the test*"])


def test_a_missing_baseline_is_one_clear_error(project: pytest.Pytester) -> None:
    result = _run(project, labelled_document("good"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*held*train.json*no such file*"])
