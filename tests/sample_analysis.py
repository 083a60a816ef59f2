"""A small, realistic Analysis made by hand, for everything that reads documents.

Five steps of one device are simulated with plain arithmetic; every total is summed from the same pieces, so busy,
idle and causes agree exactly as they do in real documents.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from traceanalyzer.results.analysis import (
    AllocatorReport,
    Analysis,
    CallTotal,
    CausePhase,
    Configuration,
    CopiesReport,
    CopyMemoryReport,
    CopyPoints,
    CopyReport,
    DepthDelay,
    DeviceReport,
    Gaps,
    Histogram,
    Input,
    IntegrityReport,
    KernelsReport,
    KernelTotal,
    LaunchesReport,
    MemoryCurve,
    ObserverReport,
    Percentiles,
    PerStep,
    PlanStep,
    Positions,
    RankReport,
    RecordedWith,
    RunAhead,
    Series,
    StepsReport,
    Tool,
    WindowCausePhase,
)
from traceanalyzer.results.finding import Episode, Evidence, Finding, Remedy, Saving
from traceanalyzer.results.timeline import Detail, Timeline, Track, TrackSlices
from traceanalyzer.results.vocabulary import Basis, FindingKind, Severity, Status, StepClass, StepSource

HOSTILE = "</script><img src=x onerror=alert(1)>"
MS = 1_000_000
US = 1_000
STEPS = 5
MAIN_TID = 656
STREAM = 7

# phase, length, launches, cause of the time before each launch
_PHASES = (
    ("data", 12 * MS, 0, "input_wait"),
    ("h2d", 2 * MS, 2, "copy_call"),
    ("forward", 14 * MS, 60, "operator_dispatch"),
    ("loss", 6 * MS, 24, "python"),
    ("backward", 24 * MS, 90, "autograd_engine"),
    ("optimizer", 6 * MS, 30, "operator_dispatch"),
)
_KERNELS = {
    "forward": ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32", "vectorized_elementwise_kernel<4, SiLU>"),
    "loss": ("reduce_kernel<512, 1, at::native::MeanOps>", "unrolled_elementwise_kernel<at::native::direct_copy>"),
    "backward": ("sm90_xmma_dgrad_implicit_gemm_f16f16_f16f32", "vectorized_elementwise_kernel<4, SiLUBackward>"),
    "optimizer": ("multi_tensor_apply_kernel<SgdMomentum>", "vectorized_elementwise_kernel<4, AddOp>"),
}


@dataclass
class _Simulation:
    activities: list[tuple[int, int, str, str, int]] = field(default_factory=list)  # start, end, name, kind, step
    calls: list[tuple[int, int, str]] = field(default_factory=list)
    operators: list[tuple[int, int, str]] = field(default_factory=list)
    phases: list[tuple[int, int, str]] = field(default_factory=list)
    idle: list[tuple[int, int, str, str, int]] = field(default_factory=list)  # start, end, cause, phase, step
    windows: list[tuple[int, int]] = field(default_factory=list)


def _simulate() -> _Simulation:
    sim = _Simulation()
    now = 0
    busy_until = 0
    for step in range(STEPS):
        begin = now
        for phase, length, launches, cause in _PHASES:
            # the loader falls behind a little more every step
            length += step * 3 * MS if phase == "data" else 0
            phase_end = now + length
            sim.phases.append((now, phase_end, phase))
            if not launches:
                sim.idle.append((busy_until, phase_end, cause, phase, step))
                busy_until = phase_end
            for i in range(launches):
                slot_start = now + i * (length // launches)
                call_start = slot_start + (length // launches) - 40 * US
                call_end = call_start + 6 * US
                start = call_end + 2 * US
                end = start + 12 * US + (i * 7 % 5) * 4 * US
                copy = phase == "h2d"
                name = "Memcpy HtoD (Pageable -> Device)" if copy else _KERNELS[phase][i % 2]
                sim.operators.append((slot_start, call_end + US, f"aten::{phase}_{i % 4}"))
                sim.calls.append((call_start, call_end, "cudaMemcpyAsync" if copy else "cudaLaunchKernel"))
                sim.activities.append((start, end, name, "copy" if copy else "compute", step))
                for piece_start, piece_end, why in (
                    (busy_until, call_start, cause),
                    (call_start, call_end, "copy_call" if copy else "launch_call"),
                    (call_end, start, "launch_latency"),
                ):
                    sim.idle.append((piece_start, piece_end, why, phase, step))
                busy_until = end
            now = phase_end
        # the last kernel ends inside its window; what follows belongs to the next activity's wait
        sim.idle.append((busy_until, now, "input_wait", "data", step))
        busy_until = now
        sim.windows.append((begin, now))
    return sim


def _sum_by(rows: list[tuple[int, int, str, str, int]], column: int) -> dict[str, list[int]]:
    series: dict[str, list[int]] = defaultdict(lambda: [0] * STEPS)
    for row in rows:
        series[str(row[column])][row[4]] += row[1] - row[0]
    return dict(series)


class _Strings:
    def __init__(self) -> None:
        self.table: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self.table.setdefault(text, len(self.table))


def _slices(
    strings: _Strings, rows: list[tuple[int, int, str, str, int]], links: list[int] | None = None
) -> TrackSlices:
    # rows: start, end, name, category, depth
    return TrackSlices(
        start_ns=[r[0] for r in rows],
        duration_ns=[r[1] - r[0] for r in rows],
        name=[strings.code(r[2]) for r in rows],
        depth=[r[4] for r in rows],
        category=[strings.code(r[3]) for r in rows],
        link=links or [],
    )


def _timeline(sim: _Simulation, kernel_name: str | None) -> Timeline:
    strings = _Strings()
    end = sim.windows[-1][1]
    kernels = [
        (s, e, kernel_name if kernel_name and i == 0 else name, "copy" if kind == "copy" else "kernel", 0)
        for i, (s, e, name, kind, _) in enumerate(sim.activities)
    ]
    steps = [(s, e, f"ProfilerStep#{i}", "steady", 0) for i, (s, e) in enumerate(sim.windows)]
    annotations = [(s, e, f"phase:{name}", "annotation", 0) for s, e, name in sim.phases]
    operators = [(s, e, name, "operator", 1) for s, e, name in sim.operators]
    calls = [(s, e, name, "call", 2) for s, e, name in sim.calls]
    host = sorted([*annotations, *operators, *calls], key=lambda r: (r[0], -r[1]))
    call_link = {s: i for i, (s, _, _) in enumerate(sim.calls)}
    tracks = [
        Track(id="steps", kind="steps", title="Steps", slices=_slices(strings, steps)),
        Track(
            id="phases",
            kind="phases",
            title="Phases",
            slices=_slices(strings, [(s, e, name, name, 0) for s, e, name in sim.phases]),
        ),
        Track(
            id="idle:0",
            kind="idle",
            title="GPU 0 idle, by cause",
            slices=_slices(strings, [(s, e, p, c, 0) for s, e, c, p, _ in sim.idle if e > s]),
        ),
        Track(
            id=f"stream:0:{STREAM}",
            kind="stream",
            title=f"GPU 0 stream {STREAM}",
            slices=_slices(strings, kernels, list(range(len(kernels)))),
        ),
        Track(
            id=f"thread:{MAIN_TID}",
            kind="thread",
            title=f"Thread {MAIN_TID} (main)",
            slices=_slices(strings, host, [call_link[r[0]] if r[3] == "call" else -1 for r in host]),
        ),
        Track(
            id="counter:memory_allocated",
            kind="counter",
            title="Memory allocated",
            counter_time_ns=[i * end // 40 for i in range(41)],
            counter_value=[float((2 + i * 7 % 9) << 28) for i in range(41)],
            unit="B",
        ),
    ]
    start, stop = sim.windows[2]
    return Timeline(
        start_ns=0,
        end_ns=end,
        strings=list(strings.table),
        tracks=tracks,
        details=[Detail(start_ns=start, end_ns=stop, why="median step", tracks=[])],
        binned_below_ns=0,
        merged_slices=0,
    )


def _copy_report(count: int, size: int, time_ns: int, memory: str) -> CopyReport:
    kinds = (
        {
            memory: CopyMemoryReport(
                count=count, bytes=size, time_ns=time_ns, overlapped_ns=0, host_blocked_ns=count * 6 * US
            )
        }
        if count
        else {}
    )
    return CopyReport(
        count=count,
        bytes=size,
        time_ns=time_ns,
        overlapped_ns=0,
        not_under_kernel_ns=time_ns,
        host_blocked_ns=count * 6 * US,
        by_host_memory=kinds,
    )


def _histogram(durations: list[int]) -> Histogram:
    edges = [0, US, 10 * US, 100 * US, MS, 10 * MS, 100 * MS]
    count = [sum(lo <= d < hi for d in durations) for lo, hi in itertools.pairwise(edges)]
    total = [sum(d for d in durations if lo <= d < hi) for lo, hi in itertools.pairwise(edges)]
    return Histogram(edges=edges, count=count, ns=total)


def _findings(sim: _Simulation, input_ns: int, dispatch_ns: int) -> list[Finding]:
    waits = [(s, e) for s, e, cause, phase, _ in sim.idle if cause == "input_wait" and phase == "data" and e - s > MS]
    return [
        Finding(
            code="TA101",
            slug="loader-in-main-process",
            kind=FindingKind.FAULT,
            status=Status.FAIL,
            severity=Severity.HIGH,
            confidence=0.95,
            device_id=0,
            title="Batches are loaded in the training process",
            message="The device waited 18.2 ms per step for the next batch, which the training thread itself loaded.",
            observed={"input_wait_ns_per_step": input_ns, "batch_cost_ns": 18 * MS, "workers": 0},
            thresholds={"min_share": 0.01},
            saving_per_step_ns=Saving(low=input_ns // 2, likely=input_ns * 9 // 10, high=input_ns, basis=Basis.BOUND),
            evidence=[
                Evidence(
                    start_ns=s,
                    end_ns=e,
                    thread=MAIN_TID,
                    what="waiting for the loader's next()",
                    where="train.py:41",
                )
                for s, e in waits
            ],
            evidence_count=len(waits),
            fix=["Set num_workers to 4 in the DataLoader at train.py:41.", "Keep persistent_workers=True."],
            remedy=Remedy(
                settings=["DataLoader(num_workers=…)"],
                where="train.py(41): main",
                before="for batch in loader:\n    train_step(batch)",
                after="for batch in prefetched(loader):\n    train_step(batch)",
                verify=[
                    "traceanalyzer record script --out=AFTER -- python train.py",
                    "traceanalyzer compare BEFORE AFTER",
                ],
            ),
        ),
        Finding(
            code="TA301",
            slug="pageable-h2d-copies",
            kind=FindingKind.FAULT,
            status=Status.FAIL,
            severity=Severity.LOW,
            confidence=0.8,
            device_id=0,
            title="Input is copied from pageable memory",
            message="10 of 10 host-to-device copies came from pageable memory.",
            observed={"pageable_copies": 10, "bandwidth_bytes_per_s": 5.2e9},
            thresholds={"min_saving_ns": 100_000},
            saving_per_step_ns=Saving(low=0, likely=1_200_000, high=1_900_000, basis=Basis.REPLAY),
            evidence=[
                Evidence(start_ns=s, end_ns=e, stream=STREAM, what="pageable copy of 39.3 MiB", where="train.py:44")
                for s, e, name, kind, _ in sim.activities
                if kind == "copy"
            ],
            evidence_count=2 * STEPS,
            fix=["Pass pin_memory=True to the DataLoader."],
        ),
        Finding(
            code="TA201",
            slug="launch-bound",
            kind=FindingKind.LIMITER,
            status=Status.FAIL,
            severity=Severity.HIGH,
            confidence=0.9,
            device_id=0,
            title="The host cannot launch kernels fast enough",
            message="204 kernels of 18 µs each are launched per step; the device idles before most of them.",
            observed={"kernels_per_step": 204, "median_kernel_ns": 20_000, "host_bound_share_of_idle": 0.82},
            thresholds={"min_host_bound_share": 0.5},
            saving_per_step_ns=Saving(likely=None, high=dispatch_ns, basis=Basis.BOUND),
            evidence=[
                Evidence(start_ns=s, end_ns=e, thread=MAIN_TID, what="operator dispatch", where="aten::conv2d")
                for s, e, cause, _, _ in sim.idle
                if cause == "operator_dispatch"
            ][:12],
            evidence_count=90 * STEPS,
            fix=["Capture the step in a CUDA graph, or use torch.compile.", "Use larger batches."],
        ),
        Finding(
            code="TA801",
            slug="validation-stall",
            kind=FindingKind.FAULT,
            status=Status.PASS,
            title="No validation stalls the device",
            message="No validation range in the recording.",
            episode=Episode(),
        ),
        Finding(
            code="TA402",
            slug="cache-emptied",
            kind=FindingKind.FAULT,
            status=Status.PASS,
            title="The allocator's cache is left alone",
            message="No burst of cudaFree in steady steps.",
        ),
        Finding(
            code="TA105",
            slug="augmentation-heavy",
            kind=FindingKind.FAULT,
            status=Status.NOT_APPLICABLE,
            title="Augmentation cost is unknown",
            message="Needs per-transform times, which only the recorder's run folder holds.",
        ),
        Finding(
            code="TA901",
            slug="incomplete-recording",
            kind=FindingKind.NOTE,
            status=Status.INFORMATIVE,
            title="A few records were left out",
            message="1 record had a negative duration.",
        ),
    ]


def sample_analysis(kernel_name: str | None = None) -> Analysis:
    """Return the document of five simulated steps on one device.

    Args:
        kernel_name: Name to give the first kernel instead, for example ``HOSTILE``.
    """
    sim = _simulate()
    span = sim.windows[-1][1]
    by_cause = _sum_by(sim.idle, 2)
    busy = _sum_by(sim.activities, 3)
    cause_phase: dict[tuple[str, str], int] = defaultdict(int)
    for s, e, cause, phase, _ in sim.idle:
        cause_phase[cause, phase] += e - s
    idle_ns = sum(e - s for s, e, *_ in sim.idle)
    busy_ns = span - idle_ns
    compute_ns, copy_ns = sum(busy["compute"]), sum(busy["copy"])
    assert compute_ns + copy_ns == busy_ns
    windows = [e - s for s, e in sim.windows]
    idle_series = [sum(series[i] for series in by_cause.values()) for i in range(STEPS)]
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for i, (s, e, name, kind, _) in enumerate(sim.activities):
        if kind == "compute":
            shown = kernel_name if kernel_name and i == 2 else name
            totals[shown][0] += 1
            totals[shown][1] += e - s
    kernels = [
        KernelTotal(name=name, count=count, time_ns=ns, family="elementwise" if "elementwise" in name else "gemm")
        for name, (count, ns) in sorted(totals.items(), key=lambda item: -item[1][1])
    ]
    durations = sorted(e - s for s, e, *_ in sim.idle if e > s)
    rank = RankReport(
        rank=0,
        world_size=1,
        origin_ns="1760000000123456789",
        integrity=IntegrityReport(
            verdict="complete",
            dropped=[],
            notes=["The recording holds no Python stacks; code locations come from named ranges."],
            gpu_activities=len(sim.activities),
            activities_without_launch=0,
            launches_without_activity=0,
        ),
        steps=StepsReport(
            source=StepSource.PROFILER,
            count=STEPS,
            duration_ns=windows,
            step_class=[StepClass.STEADY] * STEPS,
            name=[f"ProfilerStep#{i}" for i in range(STEPS)],
        ),
        per_step=PerStep(
            start_ns=[s for s, _ in sim.windows],
            window_ns=windows,
            idle_ns=idle_series,
            boundary_idle_ns=[0] * STEPS,
            kernel_ns=busy["compute"],
            exposed_h2d_ns=busy["copy"],
            idle_by_cause_ns=by_cause,
            busy_by_kind_ns={"compute": busy["compute"], "communication": [0] * STEPS, "exposed_copy": busy["copy"]},
            max_gap_ns=[max(e - s for s, e, _, _, step in sim.idle if step == i) for i in range(STEPS)],
            log_host_factor_ref_ns=[6000.0] * STEPS,
            kernel_family_ns={},
            counters={"launches": [206] * STEPS, "h2d": [2] * STEPS, "synchronisations": [0] * STEPS},
            device_id=0,
        ),
        positions=Positions(name=[], interval_ns=[], launch_call_ns=[]),
        devices=[
            DeviceReport(
                device_id=0,
                name="NVIDIA H200",
                span_ns=span,
                busy_ns=busy_ns,
                idle_ns=idle_ns,
                compute_ns=compute_ns,
                communication_ns=0,
                exposed_communication_ns=0,
                copy_ns=copy_ns,
                exposed_copy_ns=copy_ns,
                gaps=Gaps(
                    count=len(durations),
                    p50_ns=durations[len(durations) // 2],
                    p90_ns=durations[len(durations) * 9 // 10],
                    p99_ns=durations[len(durations) * 99 // 100],
                    max_ns=durations[-1],
                ),
                idle_by_cause_ns={cause: sum(series) for cause, series in by_cause.items()},
                idle_by_cause_and_phase_ns=[
                    CausePhase(cause=c, phase=p, ns=ns) for (c, p), ns in sorted(cause_phase.items())
                ],
                windows_idle_by_cause_and_phase_ns=[
                    WindowCausePhase(cause=c, phase=p, step_class="steady", ns=ns)
                    for (c, p), ns in sorted(cause_phase.items())
                ],
            )
        ],
        launches=LaunchesReport(
            count=len(sim.calls),
            overhead_ns=Percentiles(p50=6000, p90=6000, p99=6000),
            delay_ns=Percentiles(p50=2000, p90=2000, p99=2000),
            started_during_call=0,
            clock_skew=0,
            host_bound_share_of_activities=0.97,
            host_bound_share_of_idle=0.82,
        ),
        copies=CopiesReport(
            h2d=_copy_report(2 * STEPS, 10 * 41_209_856, copy_ns, "pageable"),
            d2h=_copy_report(0, 0, 0, ""),
            d2d=_copy_report(0, 0, 0, ""),
            p2p=_copy_report(0, 0, 0, ""),
        ),
        allocator=AllocatorReport(
            device_malloc=CallTotal(count=2, time_ns=800_000),
            device_free=CallTotal(),
            host_alloc=CallTotal(),
            allocations=1200,
            frees=1200,
            ooms=0,
            retries=0,
            peak_allocated_bytes=10 << 28,
            peak_reserved_bytes=12 << 28,
            fragmentation=0.12,
        ),
        kernels=KernelsReport(count=sum(k.count for k in kernels), time_sum_ns=compute_ns, top=kernels),
        observer=ObserverReport(
            profiled_step_ns=sum(windows) // STEPS,
            unprofiled_step_ns=52 * MS,
            inflation=sum(windows) / STEPS / (52 * MS),
            inflation_by_phase={"forward": 1.4},
        ),
        series=Series(
            gap_histogram_by_cause={
                cause: _histogram([e - s for s, e, c, *_ in sim.idle if c == cause and e > s]) for cause in by_cause
            },
            launch_delay_by_queue_depth=DepthDelay(
                depth=[0, 1, 2, 4], count=[900, 80, 30, 20], p50_ns=[2000, 9000, 20000, 41000], p90_ns=[3000] * 4
            ),
            copy_size_bandwidth=CopyPoints(
                direction=["h2d"] * 10,
                host_memory=["pageable"] * 10,
                size_bytes=[41_209_856] * 5 + [4096] * 5,
                duration_ns=[7_900_000 + i * 10_000 for i in range(5)] + [1200] * 5,
            ),
            memory=MemoryCurve(
                time_ns=[i * span // 40 for i in range(41)],
                allocated_bytes=[(2 + i * 7 % 9) << 28 for i in range(41)],
                reserved_bytes=[min(12, 4 + i) << 28 for i in range(41)],
            ),
            run_ahead=RunAhead(time_ns=[0, span // 2, span], ahead_ns=[2000, 9000, 2000]),
        ),
        timeline=_timeline(sim, kernel_name),
    )
    return Analysis(
        tool=Tool(version="0.1.0"),
        inputs=[
            Input(
                path="runs/yolo11n/good.pt.trace.json.gz",
                format="kineto",
                bytes=1_889_082,
                fingerprint="1889082-9f2c41aa",
                producer="torch 2.11.0+cu130",
            )
        ],
        configuration=Configuration(gpu="NVIDIA H200", driver="13000", torch="2.11.0+cu130", batch=16, amp=True),
        recorded_with=RecordedWith(stacks=False, memory=True),
        plan=[PlanStep(fixes=["TA101"], step_ns=48 * MS, limit="operator_dispatch")],
        ranks=[rank],
        findings=_findings(sim, sum(by_cause["input_wait"]) // STEPS, sum(by_cause["operator_dispatch"]) // STEPS),
    )


def hostile_analysis() -> Analysis:
    """Return the sample with ``HOSTILE`` as kernel name, path, finding text, evidence and note."""
    sample = sample_analysis(kernel_name=HOSTILE)
    first, *rest = sample.findings
    marked = msgspec.structs.replace(
        first,
        title=f"title {HOSTILE}",
        message=f"message {HOSTILE}",
        fix=[f"fix {HOSTILE}"],
        observed={**first.observed, HOSTILE: HOSTILE},
        evidence=[msgspec.structs.replace(e, what=HOSTILE, where=HOSTILE) for e in first.evidence],
        remedy=Remedy(
            settings=[HOSTILE], where=HOSTILE, before=HOSTILE, after=f"```\n{HOSTILE}\u202e", verify=[HOSTILE, "```"]
        ),
    )
    rank = sample.ranks[0]
    integrity = msgspec.structs.replace(rank.integrity, notes=[HOSTILE], verdict="partial")
    return msgspec.structs.replace(
        sample,
        inputs=[msgspec.structs.replace(sample.inputs[0], path=HOSTILE, producer=HOSTILE)],
        ranks=[msgspec.structs.replace(rank, integrity=integrity)],
        findings=[marked, *rest],
    )


def cpu_only_analysis() -> Analysis:
    """Return the sample as a recording without GPU activity gives it: no devices, no steps, nothing to draw."""
    sample = sample_analysis()
    rank = sample.ranks[0]
    none = CopyReport(
        count=0, bytes=0, time_ns=0, overlapped_ns=0, not_under_kernel_ns=0, host_blocked_ns=0, by_host_memory={}
    )
    empty = msgspec.structs.replace(
        rank,
        integrity=msgspec.structs.replace(
            rank.integrity, gpu_activities=0, notes=["The recording holds no GPU activity."]
        ),
        steps=StepsReport(source=StepSource.NONE, count=0, duration_ns=[], step_class=[]),
        per_step=PerStep(
            start_ns=[],
            window_ns=[],
            idle_ns=[],
            boundary_idle_ns=[],
            kernel_ns=[],
            exposed_h2d_ns=[],
            idle_by_cause_ns={},
            busy_by_kind_ns={},
            max_gap_ns=[],
            log_host_factor_ref_ns=[],
            kernel_family_ns={},
            counters={},
            device_id=None,
        ),
        devices=[],
        launches=LaunchesReport(
            count=0,
            overhead_ns=Percentiles(),
            delay_ns=Percentiles(),
            started_during_call=0,
            clock_skew=0,
            host_bound_share_of_activities=None,
            host_bound_share_of_idle=None,
        ),
        copies=CopiesReport(h2d=none, d2h=none, d2d=none, p2p=none),
        allocator=AllocatorReport(device_malloc=CallTotal(), device_free=CallTotal(), host_alloc=CallTotal()),
        kernels=KernelsReport(count=0, time_sum_ns=0, top=[]),
        observer=ObserverReport(),
        series=Series(),
        timeline=Timeline(start_ns=0, end_ns=0, strings=[], tracks=[]),
    )
    return msgspec.structs.replace(sample, plan=[], ranks=[empty], findings=[])
