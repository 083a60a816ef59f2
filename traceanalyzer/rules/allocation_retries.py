"""The allocator had to give all its free memory back and try again before an allocation fitted.

## Detects
A new segment that did not fit, so that the caching allocator gave every free segment back to the driver and asked
again, and out-of-memory errors.

## Why it matters
Each retry waits for the device and frees segments one by one, and the next steps take the same memory from the driver
again. Where memory is that tight the next larger batch or image size ends in an out-of-memory error.

## How it is measured
From the history of a memory snapshot: segments given back one after the other and, directly behind them, a new
segment asked for by the same call. `torch.cuda.empty_cache()` has itself in its stack and is not counted. The upper
limit of the saving is the idle time between the event before the first segment went and the new segment. Counters that
the recorder stores tell of retries before the history.

## Does not apply when
There is no memory snapshot with history, or a threshold for garbage collection makes the allocator give segments back
on its own.

## How to fix
Use less memory (smaller batch, mixed precision, gradient accumulation, checkpointing), raise a limit set with
`set_per_process_memory_fraction`, or set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

## Limits and false positives
A history is a ring: retries before its first event are only in the counters. A retry that found nothing to give back
leaves no trace unless it ended in an error.

## References
PyTorch, "CUDA semantics, memory management"; `torch.cuda.memory_stats` (`num_alloc_retries`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.replay.bounds import bound, judged_steps
from traceanalyzer.results.finding import Episode, Evidence, Finding, Scalar
from traceanalyzer.results.memory import DeviceMemory, Retry
from traceanalyzer.results.vocabulary import FindingKind, Severity
from traceanalyzer.rules.base import Meta, Remedy, floor_ns
from traceanalyzer.rules.evidence import MOST
from traceanalyzer.rules.memory import HISTORY, device_bytes, device_memory, moment
from traceanalyzer.rules.outcome import Case, decide, fails, not_applicable, passed
from traceanalyzer.units import format_bytes, format_ns, format_share

META = Meta(
    code="TA403",
    slug="allocation-retries",
    kind=FindingKind.FAULT,
    category="memory",
    fail_title="Allocations fit only after all cached memory was given back",
    pass_title="No allocation had to be tried again",
    remedy=Remedy(
        settings=(
            "DataLoader(batch_size=…)",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "Ultralytics: batch, nbs",
        ),
        before="""
        for images, targets in DataLoader(dataset, batch_size=64):
            criterion(model(images), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
        after="""
        for number, (images, targets) in enumerate(DataLoader(dataset, batch_size=32)):
            (criterion(model(images), targets) / 2).backward()
            if number % 2:  # two halves make the batch of 64
                optimizer.step()
                optimizer.zero_grad()
        """,
        record=("--memory",),
    ),
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the rule begins to speak."""

    # retries and errors together; the allocator's own documentation calls any number above 0 a sign of memory pressure
    incidents: int = 1


def check(measures: Measures, thresholds: Thresholds) -> Finding:
    """Judge one rank."""
    device = device_memory(measures, with_history=True)
    if device is None or device.retries is None:
        return not_applicable(META, measures, thresholds, HISTORY)
    since = (device.retries_since_start or 0) + (device.ooms_since_start or 0)
    incidents = max(device.retries + device.ooms, since)
    observed: dict[str, Scalar] = {
        "retries": device.retries,
        "ooms": device.ooms,
        "retries_since_start": device.retries_since_start,
        "peak_reserved_bytes": device.peak_reserved_bytes,
        "limit_bytes": device.limit_bytes,
        "history_events": device.events,
    }
    if incidents < thresholds.incidents:
        return passed(
            META,
            measures,
            thresholds,
            f"No retry and no error in the history of {device.events} allocator events{_span(measures)}. "
            f"{_before_history(device)}",
            observed=observed | {"reserved_when_history_begins_bytes": _reserved_at_first(device)},
        )
    total = device_bytes(measures, device)
    if total:
        observed["reserved_share_of_device"] = round(device.peak_reserved_bytes / total, 4)
    message = _message(device, total)
    fix = [
        "Use less memory at the peak: smaller batch, mixed precision, gradient accumulation, activation checkpointing.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True so that free pieces can serve any size.",
    ]
    if total and device.peak_reserved_bytes < 0.9 * total:
        fix.insert(
            0, "Raise the limit on this process (set_per_process_memory_fraction), or end what else fills the GPU."
        )
    places = _evidence(device)
    judged, lost = judged_steps(measures, with_episodes=True), _idle_ns(measures, device.retry_events)
    if judged is not None and lost and judged.per_step(lost) >= floor_ns(judged.mean_step_ns):
        case = Case(
            saving=bound(judged, likely_ns=lost),
            message=message,
            observed=observed | {"idle_ns": lost},
            evidence=places,
            evidence_count=max(len(device.retry_events) + device.ooms, len(places)),
            fix=fix,
            episode=Episode(
                ns=round(lost / max(device.retries, 1)), per_1000_steps=round(1000 * device.retries / judged.count, 3)
            ),
        )
        return decide(META, measures, thresholds, judged, case, message)
    return fails(
        META,
        measures,
        thresholds,
        message,
        severity=Severity.HIGH if device.ooms else Severity.MEDIUM,
        observed=observed,
        evidence=places,
        evidence_count=max(len(device.retry_events) + device.ooms, len(places)),
        fix=fix,
        device_id=device.device_id,
    )


def _span(measures: Measures) -> str:
    memory = measures.memory
    if memory is None or memory.first_ns is None or memory.last_ns is None:
        return ""
    return f" ({format_ns(memory.last_ns - memory.first_ns)})"


def _reserved_at_first(device: DeviceMemory) -> int | None:
    return device.curve.reserved_bytes[0] if device.curve is not None and device.curve.reserved_bytes else None


def _before_history(device: DeviceMemory) -> str:
    """Say what cannot be known of the time before the history."""
    reserved = _reserved_at_first(device)
    if not reserved:
        return "It begins before any memory was taken from the driver."
    text = f"When it begins {format_bytes(reserved)} are reserved already, so the program ran before it"
    if device.retries_since_start is None:
        return (
            f"{text}; earlier retries left no trace, for the snapshot holds no counters (torch.cuda.memory_stats: "
            "num_alloc_retries; `traceanalyzer record` keeps them), nor a limit on this process."
        )
    return f"{text}, without a retry by the allocator's own count."


def _message(device: DeviceMemory, total: int | None) -> str:
    parts = []
    if device.retries:
        freed = sum(r.freed_bytes for r in device.retry_events)
        segments = sum(r.freed_segments for r in device.retry_events)
        first = device.retry_events[0]
        parts.append(
            f"{device.retries} times an allocation fitted only after everything cached was given back: {segments} "
            f"segments, {format_bytes(freed)}. First: {format_bytes(first.asked_bytes)} asked for by {first.where}, "
            f"with {format_bytes(first.reserved_bytes)} reserved."
        )
    before = (device.retries_since_start or 0) - (device.retries or 0)
    if before > 0:
        parts.append(f"The allocator counts {before} more since the program began, before the history.")
    if device.ooms:
        error = device.oom_events[0]
        parts.append(
            f"{device.ooms} out-of-memory errors; the first asked for {format_bytes(error.asked_bytes)} at "
            f"{error.where}: {error.reason}. What would have helped: {error.advice}."
        )
    if total and device.limit_bytes is not None and device.limit_bytes < total:
        parts.append(
            f"This process may take at most {format_bytes(device.limit_bytes)} of the device's {format_bytes(total)}."
        )
    elif total and device.retry_events and device.peak_reserved_bytes < 0.9 * total:
        upper = min(r.reserved_bytes + r.asked_bytes for r in device.retry_events)
        parts.append(
            f"Only {format_share(device.peak_reserved_bytes, total)} of the device's {format_bytes(total)} was ever "
            f"reserved: a limit at or below {format_share(upper, total)} of it, or another process, stands in the way."
        )
    return " ".join(parts)


def _evidence(device: DeviceMemory) -> list[Evidence]:
    places = [
        Evidence(
            start_ns=retry.start_ns,
            end_ns=max(retry.end_ns, retry.start_ns + 1),
            what=f"{retry.freed_segments} segments given back to make room for {format_bytes(retry.asked_bytes)}",
            where=retry.where,
        )
        for retry in device.retry_events
        if retry.start_ns is not None and retry.end_ns is not None and retry.start_ns >= 0
    ]
    for error in device.oom_events:
        places += moment(error.time_ns, f"out of memory: {format_bytes(error.asked_bytes)} asked for", error.where)
    return sorted(places, key=lambda place: place.start_ns)[:MOST]


def _idle_ns(measures: Measures, retries: list[Retry]) -> int:
    """Idle time of the judged device inside the retries."""
    memory, judged = measures.memory, judged_steps(measures, with_episodes=True)
    if memory is None or not memory.clock_matched or judged is None:
        return 0
    idle = measures.idle
    mine = (idle.device == judged.device_id) & judged.holds(idle.window)
    start, end = idle.start_ns[mine], idle.end_ns[mine]
    total = 0
    for retry in retries:
        if retry.start_ns is not None and retry.end_ns is not None:
            covered = np.minimum(end, retry.end_ns) - np.maximum(start, retry.start_ns)
            total += int(np.maximum(covered, 0).sum())
    return total
