"""Assembles the document's part for one rank from its measures."""

from __future__ import annotations

import msgspec
import numpy as np

from traceanalyzer.measures import Measures
from traceanalyzer.measures.arithmetic import sum_by
from traceanalyzer.measures.device_timeline import DeviceTimeline
from traceanalyzer.measures.gap_attribution import IdleLedger
from traceanalyzer.measures.launches import Launches
from traceanalyzer.measures.memory_snapshot import curve_of, with_snapshot
from traceanalyzer.measures.range_projection import report_ranges
from traceanalyzer.measures.series import measure_series
from traceanalyzer.measures.steps import STEP_CLASSES, Steps
from traceanalyzer.model.trace import Trace
from traceanalyzer.results.analysis import (
    CausePhase,
    DeviceReport,
    DroppedRecords,
    IntegrityReport,
    RankReport,
    Series,
    StepsReport,
    WindowCausePhase,
)
from traceanalyzer.results.timeline import Timeline
from traceanalyzer.results.vocabulary import CAUSES, PHASES

# Above these shares a missing side is no longer an edge effect of starting and stopping the recording.
UNLINKED_SHARE = 0.01
ORPHAN_SHARE = 0.01


def summarise_rank(measures: Measures, timeline: Timeline) -> RankReport:
    """Assemble everything measured of one rank.

    Args:
        measures: The rank's measures.
        timeline: Its pre-binned timeline.
    """
    trace, steps = measures.trace, measures.steps
    return RankReport(
        rank=measures.rank,
        world_size=trace.world_size if trace.world_size is not None else 1,
        origin_ns=str(trace.origin_ns),
        integrity=integrity_report(trace, measures.launches),
        steps=_steps_report(steps),
        per_step=measures.step_series.report,
        positions=measures.positions.report,
        devices=[_device_report(device, measures.idle) for device in measures.devices],
        launches=measures.launches.report,
        copies=measures.copies.report,
        allocator=msgspec.structs.replace(
            with_snapshot(measures.allocator.report, measures.memory),
            peak_allocated_by_phase_bytes=measures.memory_by_phase,
        ),
        kernels=measures.kernels.report,
        observer=measures.observer.report,
        series=_series(measures),
        timeline=timeline,
        ranges=report_ranges(trace, measures.devices),
        memory=measures.memory,
    )


def _series(measures: Measures) -> Series:
    series = measure_series(measures.idle, measures.launches, measures.copies, measures.allocator)
    if series.memory is not None:
        return series
    return msgspec.structs.replace(series, memory=curve_of(measures.memory))


def integrity_report(trace: Trace, launches: Launches) -> IntegrityReport:
    """Judge whether a recording can be trusted.

    ``unusable``: it holds no GPU activity although work was launched, or holds no event at all. ``partial``: it was
    truncated, records were dropped, spans are known to be incomplete, or more than 1 % of activities or kernel
    launches lack their other side. Copies and memsets without an activity are counted but do not matter: those of
    no bytes leave none.

    Args:
        trace: The recording.
        launches: Its launches.
    """
    integrity = trace.integrity
    activities = len(trace.activities)
    kernel_launches = int(launches.is_first.sum()) + launches.kernel_launches_without_activity
    notes = list(integrity.notes)
    unlinked, orphans = launches.activities_without_launch, launches.kernel_launches_without_activity
    verdict = "complete"
    if integrity.is_truncated or integrity.cut_ns or any(d.count for d in integrity.dropped.values()):
        verdict = "partial"
    if activities and unlinked > UNLINKED_SHARE * activities:
        verdict = "partial"
        notes.append(
            f"{unlinked} of {activities} GPU activities have no launch in the recording; idle before them is unknown."
        )
    if activities and orphans > ORPHAN_SHARE * kernel_launches:
        verdict = "partial"
        notes.append(f"{orphans} kernel launches have no GPU activity in the recording; time they ran may look idle.")
    if not activities:
        has_events = bool(len(trace.calls) or len(trace.slices) or trace.snapshot is not None)
        verdict = "unusable" if orphans or not has_events else verdict
        notes.append(
            f"{orphans} kernels were launched but no GPU activity was recorded."
            if orphans
            else "no GPU activity in this recording"
        )
    return IntegrityReport(
        verdict=verdict,
        dropped=[DroppedRecords(reason=d.reason, count=d.count, example=d.example) for d in integrity.dropped.values()],
        notes=list(dict.fromkeys(notes)),
        gpu_activities=activities,
        activities_without_launch=unlinked,
        launches_without_activity=launches.launches_without_activity,
    )


def _steps_report(steps: Steps) -> StepsReport:
    return StepsReport(
        source=steps.source,
        count=len(steps),
        duration_ns=(steps.end_ns - steps.start_ns).tolist(),
        step_class=[STEP_CLASSES[code] for code in steps.step_class.tolist()],
        name=list(steps.names),
    )


def _device_report(device: DeviceTimeline, idle: IdleLedger) -> DeviceReport:
    mine = idle.device == device.device_id
    in_span = np.flatnonzero(mine & (idle.in_span == 1))
    in_window = np.flatnonzero(mine & (idle.window >= 0))
    duration = idle.duration_ns
    pair = (len(CAUSES), len(PHASES))
    by_pair = sum_by(pair, (idle.cause[in_span], idle.phase[in_span]), duration[in_span])
    place = (idle.cause[in_window], idle.phase[in_window], idle.step_class[in_window])
    by_class = sum_by((*pair, len(STEP_CLASSES)), place, duration[in_window])
    return DeviceReport(
        device_id=device.device_id,
        name=device.name or None,
        span_ns=device.span_ns,
        busy_ns=device.busy_ns,
        idle_ns=device.idle_ns,
        compute_ns=device.compute_ns,
        communication_ns=device.communication_ns,
        exposed_communication_ns=device.exposed_communication_ns,
        copy_ns=device.copy_ns,
        exposed_copy_ns=device.exposed_copy_ns,
        gaps=device.gaps,
        idle_by_cause_ns={cause.value: int(by_pair[code].sum()) for code, cause in enumerate(CAUSES)},
        idle_by_cause_and_phase_ns=[
            CausePhase(cause=CAUSES[c].value, phase=PHASES[p].value, ns=int(by_pair[c, p]))
            for c, p in zip(*np.nonzero(by_pair), strict=True)
        ],
        windows_idle_by_cause_and_phase_ns=[
            WindowCausePhase(
                cause=CAUSES[c].value,
                phase=PHASES[p].value,
                step_class=STEP_CLASSES[s].value,
                ns=int(by_class[c, p, s]),
            )
            for c, p, s in zip(*np.nonzero(by_class), strict=True)
        ],
    )
