"""The release gate behind ``compare``, ``baseline``, ``trend`` and the pytest plugin: whatever a user names, as runs.

Recordings are analysed first; documents and baselines are only read, so comparing those starts neither a reader nor a
compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer import __version__
from traceanalyzer.comparison.baseline import run_of
from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.options import CompareOptions, parse_budget, parse_gates
from traceanalyzer.comparison.samples import Run, load_ranks
from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.results.analysis import Analysis, Tool
from traceanalyzer.results.baseline import Baseline, Release
from traceanalyzer.results.comparable import ComparableAnalysis, read_comparable
from traceanalyzer.results.comparison import Comparison
from traceanalyzer.results.document import read_document

if TYPE_CHECKING:
    from traceanalyzer.readers.inputs import InputProgress

Source = str | PathLike[str] | Analysis | Baseline


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How recordings are read; documents are taken as they are.

    Attributes:
        step_marker: Name of the range that marks a training step.
        steps: Half-open selection of steps by position.
        profiler: Which pass of a run folder, ``torch`` or ``nsys``.
        progress: Told how far reading is.
        kept: Filled with the analysis of every recording read, by name, so that it need not be made twice.
    """

    step_marker: str | None = None
    steps: tuple[int | None, int | None] | None = None
    profiler: str | None = None
    progress: InputProgress | None = None
    kept: dict[str, Analysis] = field(default_factory=dict)


def compare(
    base: Source | Sequence[Source],
    candidate: Source | Sequence[Source],
    *,
    gates: Sequence[str] = (),
    budgets: Sequence[str] = (),
    allow_different: bool = False,
    load: LoadOptions | None = None,
) -> Comparison:
    """Find out whether kernel gaps got worse, which gap, and how sure that is.

    Args:
        base: One or several runs, each a recording, a run folder, an Analysis (or a file of one), or a baseline (or a
            file of one, ``FILE`` for its latest release or ``FILE@RELEASE``).
        candidate: Likewise.
        gates: Which metrics may decide and their floors, ``METRIC[:REL%[:ABS]]``; every one by default.
        budgets: Absolute limits on the candidate, for example ``h2d_overlap>=80%``.
        allow_different: Compare although hardware or configuration differ.
        load: How recordings are read.

    Returns:
        The document; its ``verdict`` is *regression* as soon as one deciding test finds one.

    Raises:
        TraceAnalyzerError: An input is not usable, or the two sides cannot be compared.
    """
    metrics, gated = parse_gates(gates)
    options = CompareOptions(
        metrics=metrics,
        gated=gated,
        budgets=tuple(parse_budget(b) for b in budgets),
        allow_different=allow_different,
    )
    load = load or LoadOptions()
    before = [run for source in _sources(base) for run in load_runs(source, load)]
    after = [run for source in _sources(candidate) for run in load_runs(source, load)]
    return compare_runs(before, after, options, Tool(version=__version__))


def load_runs(source: Source, load: LoadOptions) -> list[Run]:
    """Turn one thing a user may name into runs, one per rank; a release of a baseline can hold several.

    Args:
        source: See ``compare``.
        load: How recordings are read.

    Raises:
        TraceAnalyzerError: It is not usable, or holds nothing to compare.
    """
    if isinstance(source, Baseline):
        return _release_runs(source, None, "baseline")
    if isinstance(source, Analysis):
        return load_ranks(source, source.inputs[0].path if source.inputs else "analysis")
    name = str(source)
    document = read_comparable(Path(name))
    if document is None and "@" in name and not Path(name).exists():
        for place in [at for at, letter in enumerate(name) if letter == "@"]:  # either part may hold one too
            held = read_comparable(Path(name[:place]))
            if isinstance(held, Baseline):
                return _release_runs(held, name[place + 1 :], name[:place])
    if isinstance(document, Baseline):
        return _release_runs(document, None, name)
    if isinstance(document, ComparableAnalysis):
        if load.step_marker is not None or load.steps is not None:
            raise UsageError(f"{name}: an analysis cannot be analysed again with other options; name the recording")
        return load_ranks(document, name)

    from traceanalyzer.pipeline import analyze

    analysis = analyze(
        name, step_marker=load.step_marker, steps=load.steps, profiler=load.profiler, progress=load.progress
    )
    load.kept[name] = analysis
    return load_ranks(analysis, name)


def load_timeline(name: str, load: LoadOptions) -> Analysis | None:
    """Return the whole analysis behind an input that was compared; None where it is a baseline.

    Args:
        name: As the user named it.
        load: The options the comparison was made with.
    """
    if name in load.kept:
        return load.kept[name]
    if not Path(name).is_file() or isinstance(read_comparable(Path(name)), Baseline):
        return None
    return read_document(Path(name))


def load_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        TraceFormatError: The file is absent, or not a whole baseline.
    """
    if not path.is_file():
        raise TraceFormatError(
            str(path), "no such file", f"make it with 'traceanalyzer baseline update {path} RECORDING'"
        )
    document = read_comparable(path)
    if not isinstance(document, Baseline):
        raise TraceFormatError(
            str(path), "not a baseline", "make one with 'traceanalyzer baseline update FILE RECORDING'"
        )
    return document


def pick_release(baseline: Baseline, name: str | None, label: str) -> Release:
    """Return a release of a baseline; the latest where no name is given.

    Raises:
        UsageError: The baseline is empty or has no release of that name.
    """
    if not baseline.releases:
        raise UsageError(f"{label}: the baseline holds no release")
    if name is None:
        return baseline.releases[-1]
    for release in baseline.releases:
        if release.name == name:
            return release
    known = ", ".join(r.name for r in baseline.releases)
    raise UsageError(f"{label}: the baseline has no release {name!r}; it holds {known}")


def _release_runs(baseline: Baseline, name: str | None, label: str) -> list[Run]:
    release = pick_release(baseline, name, label)
    if not release.runs:
        raise UsageError(f"{label}: release {release.name!r} holds no run")
    return [run_of(stored, release.name) for stored in release.runs]


def _sources(side: Source | Sequence[Source]) -> list[Source]:
    if isinstance(side, (str, PathLike, Analysis, Baseline)):
        return [side]
    return list(side)


def baseline_releases(files: Sequence[Path]) -> list[tuple[str, list[Run]]]:
    """Return every release of some baselines with its runs, in the order given.

    Raises:
        TraceFormatError: A file is not a baseline.
        UsageError: They hold no release.
    """
    several = len(files) > 1
    releases = [
        (f"{path.stem}: {release.name}" if several else release.name, [run_of(r, release.name) for r in release.runs])
        for path in files
        for release in load_baseline(path).releases
    ]
    if not releases:
        raise UsageError(f"{', '.join(str(f) for f in files)}: the baseline holds no release")
    for name, runs in releases:
        if not runs:
            raise UsageError(f"{', '.join(str(f) for f in files)}: release {name!r} holds no run")
    return releases
