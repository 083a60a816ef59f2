"""Two sets of runs in, one Comparison document out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceanalyzer.comparison.budgets import check_budget
from traceanalyzer.comparison.configuration import find_differences
from traceanalyzer.comparison.counters import compare_counters
from traceanalyzer.comparison.host import describe_host, log_host_factors
from traceanalyzer.comparison.metrics import compare_causes, compare_metrics
from traceanalyzer.comparison.options import METRICS, WANTED_STEPS, CompareOptions
from traceanalyzer.comparison.positions import compare_families, compare_positions, compare_spikes
from traceanalyzer.comparison.ranks import ORDER, merge_tests, pair_ranks, slowest_host
from traceanalyzer.comparison.samples import Run, align_positions, load_ranks
from traceanalyzer.comparison.statistics import moderated_t
from traceanalyzer.comparison.totals import compare_memory, compare_totals
from traceanalyzer.errors import UsageError
from traceanalyzer.results.analysis import Analysis, Tool
from traceanalyzer.results.comparison import (
    BudgetCheck,
    Comparison,
    Family,
    HostFactor,
    Side,
    Test,
    Verdict,
)

_FAMILY_ORDER = {family: index for index, family in enumerate(Family)}
_GATE_OF = {
    Family.COUNTER: "counters",
    Family.CAUSE: "idle_causes",
    Family.KERNEL_FAMILY: "kernel_families",
    Family.POSITION: "positions",
    Family.SPIKE: "spikes",
}


def compare_documents(
    base: Sequence[tuple[str, Analysis]],
    candidate: Sequence[tuple[str, Analysis]],
    options: CompareOptions | None = None,
    tool: Tool | None = None,
) -> Comparison:
    """Compare two sets of Analysis documents; see ``compare_runs``.

    Args:
        base: Label and document of each base run.
        candidate: Label and document of each candidate run.
        options: Floors, gates, budgets.
        tool: Program named in the document; by default the one that made the candidate's document.
    """
    if tool is None and candidate:
        tool = candidate[0][1].tool
    return compare_runs(
        [run for label, a in base for run in load_ranks(a, label)],
        [run for label, a in candidate for run in load_ranks(a, label)],
        options,
        tool,
    )


def compare_runs(
    base: list[Run], candidate: list[Run], options: CompareOptions | None = None, tool: Tool | None = None
) -> Comparison:
    """Compare two sets of runs.

    Args:
        base: Base runs.
        candidate: Candidate runs.
        options: Floors, gates, budgets.
        tool: Program named in the document.

    Returns:
        The document. Its verdict is *regression* as soon as one deciding test finds one.

    Raises:
        UsageError: A side is empty, or hardware or configuration differ and that was not allowed.
    """
    options = options or CompareOptions()
    if not base or not candidate:
        raise UsageError("compare: needs at least one base and one candidate run")
    differences, notes = find_differences(base, candidate)
    stopping = [d for d in differences if d.stops]
    if stopping and not options.allow_different:
        listed = "; ".join(f"{d.setting}: {d.base} → {d.candidate}" for d in stopping)
        raise UsageError(
            f"compare: the two sides were not recorded alike ({listed}); "
            "record them alike, or pass --allow-different to compare all the same"
        )
    ranks, alone = pair_ranks(base, candidate)
    notes += alone
    compared = {rank: _compare_rank(*runs, options, len(ranks)) for rank, runs in ranks.items()}
    tests, other_ranks = merge_tests({rank: tests for rank, (tests, _) in compared.items()})
    host = slowest_host({rank: host for rank, (_, host) in compared.items()})
    base, candidate = next(iter(ranks.values()))
    totals = compare_totals(base, candidate)  # they are of all ranks together
    tests += totals
    if totals:
        named = "; ".join(t.detail for t in totals[:3])
        notes.append(f"Steps are inferred, so totals of the recordings count too: {named}.")
    tests.sort(key=_importance)
    deciding = [t for t in tests if _decides(t, options.gated)]
    budgets = [check_budget(b, [runs for _, runs in ranks.values()]) for b in options.budgets]
    verdict = _overall(deciding, host, budgets)
    fewest = min(r.steps for sides in ranks.values() for side in sides for r in side)
    if fewest < WANTED_STEPS:
        notes.append(
            f"{fewest} steady steps on the shortest run; {WANTED_STEPS} or more are wanted for idle time and positions."
        )
    return Comparison(
        tool=tool or Tool(version=""),
        verdict=verdict,
        summary=_summary(verdict, deciding, host, budgets),
        base=_side(base),
        candidate=_side(candidate),
        differences=differences,
        host=host,
        tests=tests,
        budgets=budgets,
        notes=notes,
        ranks=list(ranks),
        other_ranks=other_ranks,
    )


def _compare_rank(
    base: list[Run], candidate: list[Run], options: CompareOptions, ranks: int
) -> tuple[list[Test], HostFactor]:
    aligned = align_positions(base + candidate)
    base, candidate = aligned[: len(base)], aligned[len(base) :]
    base_hosts, candidate_hosts, used = log_host_factors(base, candidate)
    idle = moderated_t(
        [(np.log(np.maximum(r.in_step_idle_ns, 1.0)), h) for r, h in zip(base, base_hosts, strict=True)],
        [(np.log(np.maximum(r.in_step_idle_ns, 1.0)), h) for r, h in zip(candidate, candidate_hosts, strict=True)],
        prior_sd=METRICS[0].prior_sd,
        adjust_host=True,
    )
    tests = [
        *compare_counters(base, candidate, ranks),
        *compare_metrics(base, candidate, base_hosts, candidate_hosts, options.metrics, ranks),
        *compare_families(base, candidate, ranks),
        *compare_positions(base, candidate, ranks),
        *compare_spikes(base, candidate, ranks),
        *compare_causes(base, candidate, ranks),
        *compare_memory(base, candidate),
    ]
    return tests, describe_host(base_hosts, candidate_hosts, used, idle.slope)


def _importance(test: Test) -> tuple[int, int, float, str]:
    size = abs((test.candidate or 0.0) - (test.base or 0.0))
    return (ORDER[test.verdict], _FAMILY_ORDER[test.family], -size, test.name)


def _decides(test: Test, gated: frozenset[str] | None) -> bool:
    if test.family is Family.ADVISORY:
        return False
    if gated is None:
        return True
    return (test.name if test.family is Family.PRIMARY else _GATE_OF[test.family]) in gated


def _overall(deciding: list[Test], host: HostFactor, budgets: list[BudgetCheck]) -> Verdict:
    verdicts = {t.verdict for t in deciding}
    if Verdict.REGRESSION in verdicts or any(b.met is False for b in budgets):
        return Verdict.REGRESSION
    if host.is_other_host:
        return Verdict.INCONCLUSIVE
    primaries = {t.verdict for t in deciding if t.family is Family.PRIMARY}
    if Verdict.IMPROVEMENT in verdicts:
        return Verdict.IMPROVEMENT
    if Verdict.INCONCLUSIVE in primaries or any(b.met is None for b in budgets):
        return Verdict.INCONCLUSIVE
    return Verdict.NO_CHANGE


def _summary(verdict: Verdict, deciding: list[Test], host: HostFactor, budgets: list[BudgetCheck]) -> str:
    broken = [b for b in budgets if b.met is False]
    named = [t for t in deciding if t.verdict is verdict]
    if verdict is Verdict.REGRESSION:
        parts = [t.detail for t in named[:3]] + [f"budget {b.expression} broken ({b.measured})" for b in broken]
        more = f"; and {len(named) - 3} more" if len(named) > 3 else ""
        return f"Regression: {'; '.join(parts)}{more}."
    if verdict is Verdict.IMPROVEMENT:
        return f"Improvement: {'; '.join(t.detail for t in named[:3])}."
    if verdict is Verdict.INCONCLUSIVE:
        if host.is_other_host:
            return f"Inconclusive: {host.note}"
        needed = max((t.runs_needed or 2 for t in named), default=2)
        open_question = named[0].detail if named else "a budget could not be measured"
        return (
            f"No regression found, but not proved absent: {open_question}; "
            f"{needed} runs a side would decide it. {host.note}"
        )
    return f"No change beyond the floors. {host.note}"


def _side(runs: list[Run]) -> Side:
    return Side(
        labels=[r.label for r in runs], steady_steps=[r.steps for r in runs], dropped_steps=[r.dropped for r in runs]
    )
