"""What no analysis may say, whatever the recording looked like."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from traceanalyzer.results.analysis import Analysis, DeviceReport, RankReport
from traceanalyzer.results.vocabulary import Cause, Status

# a launch may end before one that began earlier on another thread; a skewed clock may start work before its call
MAY_BE_NEGATIVE = {
    "origin_ns",
    "delay_ns",
    "ahead_ns",
    "interval_ns",
    "start_ns",
    "end_ns",
    "time_ns",
    "counter_time_ns",
}
LONGEST_NS = 15 * 86_400 * 1_000_000_000


def assert_plausible(analysis: Analysis) -> None:
    """Fail where numbers contradict each other, are negative or not finite, or exceed what was recorded."""
    assert analysis.ranks
    for rank in analysis.ranks:
        for device in rank.devices:
            _assert_device(device)
        _assert_steps(rank)
        assert rank.integrity.verdict in {"complete", "partial", "unusable"}
        shares = (rank.launches.host_bound_share_of_activities, rank.launches.host_bound_share_of_idle)
        assert all(share is None or 0 <= share <= 1 for share in shares)
        assert rank.integrity.activities_without_launch <= rank.integrity.gpu_activities
        for copies in (rank.copies.h2d, rank.copies.d2h, rank.copies.d2d, rank.copies.p2p):
            assert copies.time_ns == copies.overlapped_ns + copies.not_under_kernel_ns
    broken = [finding for finding in analysis.findings if finding.status is Status.ERROR]
    assert not broken, broken[0].message
    assert all(0 <= finding.confidence <= 1 for finding in analysis.findings)
    _assert_numbers(msgspec.to_builtins(analysis), "")
    assert Analysis.from_json(analysis.to_json()) == analysis


def _assert_device(device: DeviceReport) -> None:
    assert 0 <= device.busy_ns <= device.span_ns <= LONGEST_NS
    assert device.busy_ns + device.idle_ns == device.span_ns
    assert set(device.idle_by_cause_ns) == {cause.value for cause in Cause}
    assert sum(device.idle_by_cause_ns.values()) == device.idle_ns
    assert sum(part.ns for part in device.idle_by_cause_and_phase_ns) == device.idle_ns
    assert max(device.compute_ns, device.communication_ns, device.copy_ns) <= device.busy_ns
    assert device.compute_ns + device.exposed_communication_ns + device.exposed_copy_ns <= device.busy_ns
    assert (device.gaps.max_ns or 0) <= device.idle_ns


def _assert_steps(rank: RankReport) -> None:
    series = rank.per_step
    assert len(rank.steps.duration_ns) == len(rank.steps.step_class) == rank.steps.count
    if series.device_id is None:
        assert not series.idle_by_cause_ns
        assert not series.busy_by_kind_ns
        return
    for step, window in enumerate(series.window_ns):
        idle = sum(values[step] for values in series.idle_by_cause_ns.values())
        busy = sum(values[step] for values in series.busy_by_kind_ns.values())
        assert idle == series.idle_ns[step]
        assert idle + busy == window
        assert series.boundary_idle_ns[step] <= idle
        assert series.max_gap_ns[step] <= idle


def _assert_numbers(value: Any, place: str) -> None:
    """Every number is finite, and none is negative except where a sign means something."""
    if isinstance(value, dict):
        for key, member in value.items():
            _assert_numbers(member, place if isinstance(key, int) else f"{place}.{key}")
    elif isinstance(value, list):
        for member in value:
            _assert_numbers(member, place)
    elif isinstance(value, float):
        assert math.isfinite(value), place
    if isinstance(value, int | float) and place.endswith("_ns") and not MAY_BE_NEGATIVE & set(place.split(".")):
        assert value >= 0, f"{place} is {value}"
