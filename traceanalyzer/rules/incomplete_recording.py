"""The recording is not whole, and what can be trusted is limited.

## Detects
Records that had to be dropped, a file that ends early, activities without their launch and launches without their
activity.

## Why it matters
Missing activities make the device look idle; missing launches leave idle time without a cause.

## How it is measured
Counts of the reader and of the join between launches and activities.

## Does not apply when
Never: it also says that a recording is whole.

## How to fix
Record fewer steps at a time, let the profiler finish (leave its context, or `nsys stop`), and raise its buffer sizes.

## Limits and false positives
Launches at the very end of a recording may have no activity yet; a few are normal and below the threshold. Copies and
memsets of no bytes never have one and are not held against the recording.

## References
torch.profiler, schedule; Nsight Systems user guide, "Dropped events".
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding, Scalar
from traceanalyzer.results.vocabulary import FindingKind
from traceanalyzer.rules.base import Meta, Remedy
from traceanalyzer.rules.outcome import informative, passed
from traceanalyzer.units import format_share

META = Meta(
    code="TA901",
    slug="incomplete-recording",
    kind=FindingKind.NOTE,
    category="recording",
    fail_title="The recording is incomplete",
    pass_title="The recording is complete",
    remedy=Remedy(
        settings=("torch.profiler.schedule(active=…)",),
        before="""
        schedule = torch.profiler.schedule(wait=1, warmup=1, active=500)
        """,
        after="""
        schedule = torch.profiler.schedule(wait=10, warmup=3, active=5)
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rule compares with."""

    # sound recordings of thousands of launches miss none; a short one may lose a few at its edges
    max_unlinked_share: float = 0.01


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    facts = measures.facts
    integrity = facts.integrity
    dropped = sum(entry.count for entry in integrity.dropped.values())
    launches = measures.launches
    unlinked, lost = launches.activities_without_launch, launches.kernel_launches_without_activity
    total = max(facts.activity_count, 1)
    observed: dict[str, Scalar] = {
        "dropped_records": dropped,
        "is_truncated": integrity.is_truncated,
        "gpu_activities": facts.activity_count,
        "activities_without_launch": unlinked,
        "kernel_launches_without_activity": lost,
        "launches_without_activity": launches.launches_without_activity,
    }
    problems, trust = [], []
    if integrity.is_truncated:
        problems.append("the source ends early")
        trust.append("steps after the cut are missing, those it touches are left out of per-step numbers")
    if dropped:
        reasons = ", ".join(
            f"{e.count} × {e.reason}" for e in sorted(integrity.dropped.values(), key=lambda e: -e.count)
        )
        problems.append(f"{dropped} records were dropped ({reasons})")
        trust.append("totals are lower limits")
    if facts.activity_count and unlinked > thresholds.max_unlinked_share * total:
        problems.append(f"{unlinked} GPU activities ({format_share(unlinked, total)}) have no launch")
        trust.append("busy time holds, but the idle time before these activities has no known cause")
    if lost > thresholds.max_unlinked_share * total:
        problems.append(f"{lost} kernel launches have no GPU activity")
        trust.append("the device may have been busier than it looks")
    if not problems:
        return passed(META, measures, thresholds, "Nothing is missing from the recording.", observed=observed)
    message = f"Not everything is in the recording: {'; '.join(problems)}. What that means: {'; '.join(trust)}."
    fix = [
        "Record fewer steps at a time and let the profiler write its file to the end.",
        "Record CPU and CUDA activities together, so that launches and kernels can be joined.",
    ]
    return informative(META, measures, thresholds, message, observed=observed, fix=fix)
