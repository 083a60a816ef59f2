"""The ranks of a job in words and table cells, for every report alike."""

from __future__ import annotations

from traceanalyzer.renderers.text import CAUSE_TITLES, visible
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.job import JobReport
from traceanalyzer.units import format_ns, format_share

MOST_RANKS = 8
MAX_CAUSES = 3
HEAD = ("rank", "step", "own work", "behind", "more of")


def shown_ranks(analysis: Analysis) -> list[RankReport]:
    """Ranks a report of limited length describes: all of a few, else the worst and the median one."""
    job = analysis.job
    if job is None or len(analysis.ranks) <= MOST_RANKS:
        return analysis.ranks
    return [rank for rank in analysis.ranks if rank.rank in {job.worst_rank, job.median_rank}]


def job_rows(job: JobReport) -> list[tuple[str, ...]]:
    """Cells of the table of ranks below ``HEAD``, the slowest first; many ranks are cut to those that matter."""
    late = {each.rank: each for each in job.stragglers}
    ranks = sorted(job.ranks, key=lambda each: (-each.own_ns, each.rank))
    if len(ranks) > MOST_RANKS:
        wanted = {each.rank for each in ranks[: MOST_RANKS - 1]} | {job.median_rank}
        ranks = [each for each in ranks if each.rank in wanted]
    rows: list[tuple[str, ...]] = []
    for each in ranks:
        straggler = late.get(each.rank)
        causes = list(straggler.causes_ns.items())[:MAX_CAUSES] if straggler else []
        more = ", ".join(f"{_title(cause)} {format_ns(ns)}" for cause, ns in causes)
        behind = format_ns(straggler.behind_ns) if straggler else ""
        rows.append((str(each.rank), format_ns(each.step_ns), format_ns(each.own_ns), behind, more))
    return rows


def job_lines(job: JobReport) -> list[str]:
    """Sentences on what holds the job up, how the ranks fit together, and what is missing; made visible already."""
    lines = []
    if job.stragglers:
        first = job.stragglers[0]
        own = next((each.own_ns for each in job.ranks if each.rank == job.median_rank), 0)
        lines.append(
            f"Rank {first.rank} holds the others up: its own work takes {format_ns(first.behind_ns)} more per step "
            f"than the median rank's ({format_share(first.behind_ns, own)})."
        )
    elif len(job.ranks) > 1:
        lines.append("No rank holds the others up: their own work per step differs by less than 5 %.")
    skew = f", begun at most {format_ns(job.start_skew_ns)} apart" if job.start_skew_ns is not None else ""
    lines.append(f"{len(job.ranks)} ranks share {job.aligned_steps} steps{skew}.")
    if job.spread and job.spread[0].high_ns > job.spread[0].low_ns:
        widest = job.spread[0]
        lines.append(
            f"They differ most in idle time while {_title(widest.cause)}: {format_ns(widest.low_ns)} to "
            f"{format_ns(widest.high_ns)} per step (rank {widest.high_rank})."
        )
    lines += [f"Missing: {visible(each.path)}: {visible(each.problem)}." for each in job.missing]
    return lines + [f"Warning: {visible(note)}." for note in job.notes]


def _title(cause: str) -> str:
    return CAUSE_TITLES.get(cause, cause.replace("_", " "))
