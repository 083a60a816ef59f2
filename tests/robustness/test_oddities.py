"""Odd recordings seen in public reports, remade small: each has one right answer."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

import traceanalyzer
from tests.readers.nsys_exports import GLOBAL_PID, Export
from tests.robustness.answers import CommandLine, analyse, analyse_events, dropped, write_text
from tests.robustness.recordings import Event, event, kineto_document, kineto_events, launched, nsys_export
from traceanalyzer.errors import UsageError

T = 1_000_000


def chain(count: int = 4) -> list[Event]:
    """Kernels of 50 us every 100 us, each launched 20 us before it starts."""
    events: list[Event] = []
    for i in range(count):
        t = T + 100 * i
        events += launched(f"kernel {i}", (t, t + 5), (t + 20, t + 70), i + 1)
    return events


def text_of(events: list[Event]) -> str:
    return json.dumps(kineto_document(events))


# bytes and JSON that do not parse


def test_unescaped_windows_paths_are_repaired_and_said(tmp_path: Path, command_line: CommandLine) -> None:
    # pytorch 98432, 60187; kineto 617, 336
    events = [event("python_function", "PATH", T, 10), *chain()]
    text = text_of(events).replace("PATH", r"torch\cuda\__init__.py(1): f C:\Users\x")
    rank = command_line.analysed(write_text(tmp_path, text)).ranks[0]
    assert rank.integrity.gpu_activities == 4
    assert "1 event held unescaped backslashes and was repaired" in rank.integrity.notes


def test_a_raw_control_character_costs_nothing(tmp_path: Path) -> None:
    # pytorch 130622, kineto 860
    text = text_of([event("python_function", "aXb", T, 10), *chain()]).replace("aXb", "a\x02b")
    rank = analyse(write_text(tmp_path, text))
    assert rank.integrity.gpu_activities == 4
    assert "1 event held raw control characters and was repaired" in rank.integrity.notes


def test_a_name_that_is_not_utf8_costs_nothing(tmp_path: Path) -> None:
    # kineto 80
    text = text_of(chain()).encode().replace(b"kernel 2", b"kernel \xff\xfe")
    rank = analyse(write_text(tmp_path, text))
    assert "kernel \ufffd\ufffd" in {kernel.name for kernel in rank.kernels.top}
    assert "1 event held bytes that are not UTF-8 and was repaired" in rank.integrity.notes


def legacy_events() -> list[Event]:
    events: list[Event] = []
    for i in range(3):
        host = {"name": "mul", "ph": "X", "ts": 100 * i, "dur": 20, "tid": 0, "pid": "CPU functions", "args": {}}
        device = {
            "name": "mul",
            "ph": "X",
            "ts": 100 * i + 30,
            "dur": 40,
            "tid": 0,
            "pid": "CUDA functions",
            "args": {},
        }
        events += [host, device]
    return events


def test_the_old_autograd_exporter_tells_the_device_by_process_name(tmp_path: Path) -> None:
    # pytorch 33961, 95460: the well-formed twin
    rank = analyse(write_text(tmp_path, json.dumps(legacy_events())))
    assert rank.integrity.gpu_activities == 3
    assert rank.devices[0].busy_ns == 3 * 40_000
    assert rank.integrity.activities_without_launch == 3


def test_the_old_autograd_exporters_missing_quote_is_no_silence(tmp_path: Path, command_line: CommandLine) -> None:
    # pytorch 33961: `tid": 0`; every event is broken, so nothing can be kept and the line says why
    text = json.dumps(legacy_events()).replace('"tid"', 'tid"')
    assert "unreadable" in command_line.refused(write_text(tmp_path, text))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_ends_early_keeps_its_whole_events(tmp_path: Path, compressed: bool) -> None:
    # trace-viewer 145, bazel 11863
    data = text_of(kineto_events()).encode()
    data = gzip.compress(data)[:-100] if compressed else data[: len(data) * 6 // 10]
    rank = analyse(write_text(tmp_path, data))
    assert rank.integrity.verdict == "partial"
    assert any(note.startswith("truncated after ") for note in rank.integrity.notes)
    assert rank.steps.step_class[-1].value == "cut"


def test_an_integer_beyond_64_bits_stays_harmless(tmp_path: Path) -> None:
    # HolisticTraceAnalysis 324
    events = chain()
    events[1]["args"]["Comms Id"] = 10159970886766084423
    assert analyse_events(tmp_path, events) == analyse_events(tmp_path, chain())


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")])
def test_an_empty_export_is_one_line(tmp_path: Path, command_line: CommandLine, content: bytes) -> None:
    # pytorch 167601
    assert "is empty" in command_line.refused(write_text(tmp_path, content, "trace.json.gz"))


# times


@pytest.mark.parametrize("length", [9.2e15, 2**63 / 1000, -5, float("nan"), float("inf")])
def test_a_corrupted_duration_is_dropped_and_the_rest_unchanged(tmp_path: Path, length: float) -> None:
    # HolisticTraceAnalysis 325, kineto 646
    events = [*chain(3), event("kernel", "broken", T + 150, length, tid=7, correlation=99)]
    rank = analyse_events(tmp_path, events)
    assert sum(dropped(rank).values()) == 1
    assert rank.integrity.verdict == "partial"
    assert rank.devices == analyse_events(tmp_path, chain(3)).devices


def test_fractions_of_a_microsecond_are_not_rounded(tmp_path: Path) -> None:
    # kineto 646: 0.4 us at .9
    rank = analyse_events(tmp_path, [event("kernel", "k", T + 0.9, 0.4, tid=7), *chain(1)])
    assert rank.kernels.time_sum_ns == 400 + 50_000
    assert not rank.integrity.dropped


def test_clocks_with_and_without_a_base_give_one_wall_time(tmp_path: Path) -> None:
    # kineto 853, 890: absolute microseconds before torch 2.4, relative to a base since
    base_ns = 1_700_000_000_000_000_000
    wall_us = base_ns // 1000 + T
    old = [{**e, "ts": e["ts"] - T + wall_us} for e in chain()]
    absolute = analyse_events(tmp_path, old)
    relative = analyse_events(tmp_path, chain(), baseTimeNanoseconds=base_ns)
    assert int(absolute.origin_ns) == int(relative.origin_ns) == wall_us * 1000
    assert absolute.devices == relative.devices


def test_files_of_different_clocks_are_not_set_side_by_side(tmp_path: Path) -> None:
    # kineto 919, 928
    members = {"distributedInfo": {"rank": 1, "world_size": 2}}
    first = write_text(tmp_path, json.dumps(kineto_document(chain(), distributedInfo={"rank": 0, "world_size": 2})))
    wall = [{**e, "ts": e["ts"] + 1.7e15} for e in chain()]
    second = write_text(tmp_path, json.dumps(kineto_document(wall, **members)), "second.json")
    analysis = traceanalyzer.analyze([first, second])
    assert all(any("clocks" in note for note in rank.integrity.notes) for rank in analysis.ranks)
    assert analysis.ranks[0].devices == analysis.ranks[1].devices  # each in its own time


def test_launches_whose_kernels_the_profiler_lost_are_not_read_as_idle_silently(tmp_path: Path) -> None:
    # pytorch 192021, kineto 996: ten launches, the first six kernels missing
    events = [e for e in chain(10) if e["cat"] != "kernel" or int(e["name"].split()[1]) >= 6]
    rank = analyse_events(tmp_path, events)
    assert rank.integrity.launches_without_activity == 6
    assert rank.integrity.verdict == "partial"
    assert any("6 kernel launches have no GPU activity" in note for note in rank.integrity.notes)
    assert rank.devices[0].span_ns == 350_000  # from the first kernel that was recorded
    truly_idle = analyse_events(tmp_path, [e for e in chain(10) if int(e["args"]["correlation"]) > 6])
    assert truly_idle.integrity.verdict == "complete"


def test_even_small_gaps_inside_one_graph_launch_are_the_graphs_and_no_hosts(tmp_path: Path) -> None:
    # TraceLens 728
    events = [event("cuda_runtime", "cudaGraphLaunch", T, 10, correlation=9)]
    events += [event("kernel", f"k{i}", T + 20 + 7 * i, 5, tid=7, correlation=9) for i in range(100)]
    rank = analyse_events(tmp_path, events)
    device = rank.devices[0]
    assert (device.idle_ns, device.gaps.count) == (99 * 2000, 99)
    assert device.idle_by_cause_ns["graph_turnaround"] == 99 * 2000


def test_a_launch_slowed_by_the_profilers_own_work_is_charged_to_the_profiler(tmp_path: Path) -> None:
    # kineto 1020
    events = [
        *launched("before", (T, T + 5), (T + 10, T + 60), 1),
        *launched("slow", (T + 70, T + 870), (T + 880, T + 900), 2),
        event("overhead", "Activity Buffer Request", T + 72, 796),
    ]
    device = analyse_events(tmp_path, events).devices[0]
    assert device.idle_ns == 820_000
    assert device.idle_by_cause_ns["profiler_overhead"] >= 790_000


# links between host and device


def test_kernels_of_a_graph_share_one_launch(tmp_path: Path) -> None:
    # tracy 1330, pytorch 179615
    events = [event("cuda_runtime", "cudaGraphLaunch", T, 10, correlation=9)]
    events += [event("kernel", "same", T + 20 + 10 * i, 10, tid=7, correlation=9) for i in range(40)]
    rank = analyse_events(tmp_path, events)
    assert (rank.launches.count, rank.kernels.count) == (1, 40)
    assert rank.integrity.activities_without_launch == 0


def test_half_an_arrow_does_not_matter_where_correlation_says_it(tmp_path: Path) -> None:
    # TraceLens 996, kineto 788
    arrow = {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": T + 20, "cat": "ac2g", "name": "ac2g", "bp": "e"}
    rank = analyse_events(tmp_path, [*chain(), arrow])
    assert rank.integrity.activities_without_launch == 0
    assert not rank.integrity.dropped


def test_a_wrong_external_id_joins_nothing(tmp_path: Path) -> None:
    # kineto 1001, 846, 843: the number is the kernel's own correlation id, and some other operator's
    events = [event("cpu_op", "aten::unrelated", T + 500, 10, **{"External id": 2}), *chain()]
    for made in events[1:]:
        made["args"]["External id"] = made["args"]["correlation"]
    analysis = analyse_events(tmp_path, events)
    plain = analyse_events(tmp_path, [event("cpu_op", "aten::unrelated", T + 500, 10), *chain()])
    assert analysis == plain


def test_a_recording_without_gpu_says_so_instead_of_idle(tmp_path: Path, command_line: CommandLine) -> None:
    # HolisticTraceAnalysis 16, kineto 859
    text = text_of([event("cpu_op", "aten::mm", T + 10 * i, 5) for i in range(5)])
    rank = command_line.analysed(write_text(tmp_path, text)).ranks[0]
    assert rank.devices == []
    assert "no GPU activity in this recording" in rank.integrity.notes


# structure


def test_overlap_on_one_stream_counts_once_as_busy_and_twice_as_kernel_time(tmp_path: Path) -> None:
    # perfetto 4280, kineto 1186, 136
    kernels = [event("kernel", "a", T, 100, tid=7), event("kernel", "b", T + 80, 70, tid=7)]
    rank = analyse_events(tmp_path, kernels)
    assert rank.devices[0].busy_ns == 150_000
    assert rank.kernels.time_sum_ns == 170_000


def test_without_steps_the_whole_span_is_one_window(tmp_path: Path) -> None:
    # HolisticTraceAnalysis 313
    rank = analyse_events(tmp_path, chain())
    assert (rank.steps.source.value, rank.steps.count) == ("none", 1)
    assert rank.per_step.window_ns == [rank.devices[0].span_ns]


def test_a_single_step_is_a_step(tmp_path: Path) -> None:
    rank = analyse_events(tmp_path, [event("user_annotation", "ProfilerStep#5", T, 600), *chain()])
    assert (rank.steps.source.value, rank.steps.name) == ("profiler", ["ProfilerStep#5"])


def test_only_metadata_events_are_no_recording(tmp_path: Path, command_line: CommandLine) -> None:
    # HolisticTraceAnalysis 337
    meta = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}
    assert "no usable events" in command_line.refused(write_text(tmp_path, text_of([meta])))


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    # HolisticTraceAnalysis 17, 107
    info = {"distributedInfo": {"rank": 0, "world_size": 2}}
    first = write_text(tmp_path, json.dumps(kineto_document(chain(3), **info)), "a.json")
    second = write_text(tmp_path, json.dumps(kineto_document(chain(4), **info)), "b.json")
    with pytest.raises(UsageError, match="rank 0"):
        traceanalyzer.analyze([first, second])


def test_ranks_come_from_file_names_where_the_files_are_silent(tmp_path: Path) -> None:
    first = write_text(tmp_path, text_of(chain(3)), "rank-3.json")
    second = write_text(tmp_path, text_of(chain(4)), "rank-1.json")
    assert [rank.rank for rank in traceanalyzer.analyze([first, second]).ranks] == [1, 3]


def test_spans_of_the_whole_capture_are_no_operators(tmp_path: Path) -> None:
    # string process ids in every recent file
    extra: list[Event] = [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": T,
         "dur": 400},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler",
         "ts": T, "s": "g"},
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": T + 400, "s": "g"},
    ]  # fmt: skip
    assert analyse_events(tmp_path, [*chain(), *extra]) == analyse_events(tmp_path, chain())


def test_a_collective_without_its_group_is_communication_all_the_same(tmp_path: Path) -> None:
    # pytorch 131462
    rank = analyse_events(
        tmp_path, [*chain(1), event("kernel", "ncclDevKernel_AllReduce_Sum_f32", T + 100, 30, tid=20)]
    )
    assert rank.devices[0].communication_ns == 30_000
    assert rank.devices[0].exposed_communication_ns == 30_000


def test_synchronisation_rows_on_the_device_are_never_busy(tmp_path: Path) -> None:
    # kineto 1356: stream -1, a row that starts earlier and stands later
    sync = [event("cuda_sync", "Event Sync", T - 50, 400, tid=-1), event("cuda_sync", "Stream Sync", T, 900, tid=7)]
    rank = analyse_events(tmp_path, [*chain(), *sync])
    assert rank.devices[0].busy_ns == 4 * 50_000
    assert rank.integrity.gpu_activities == 4


OLD_WORDS = {
    "kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset", "cuda_runtime": "Runtime", "cpu_op": "Operator",
    "user_annotation": "Operator",
}  # fmt: skip


def test_category_words_of_torch_1_mean_the_same(tmp_path: Path) -> None:
    old = [{**e, "cat": OLD_WORDS.get(e.get("cat", ""), e.get("cat"))} for e in kineto_events()]
    for made in old:
        if made["pid"] == 0:
            made["tid"] = f"stream {made['tid']}"
    assert analyse_events(tmp_path, old).devices == analyse_events(tmp_path, kineto_events()).devices


# Nsight Systems and memory snapshots


@pytest.mark.parametrize("name", ["NVTX_EVENTS_V2", "NVTX_EVENTS_V3"])
def test_renamed_range_tables_are_found(tmp_path: Path, name: str) -> None:
    # nsys-ai 291
    export = nsys_export()
    export.tables[name] = export.tables.pop("NVTX_EVENTS")
    assert analyse(export.sqlite(tmp_path / "a.sqlite")).steps.count == 4


def test_an_export_without_ranges_is_analysed_and_the_absence_named(tmp_path: Path) -> None:
    export = nsys_export()
    del export.tables["NVTX_EVENTS"]
    rank = analyse(export.sqlite(tmp_path / "a.sqlite"))
    assert rank.devices[0].busy_ns == 4 * 290_000
    assert any("NVTX" in note for note in rank.integrity.notes)


def test_old_range_tables_have_text_but_no_text_ids(tmp_path: Path) -> None:
    # nsys-ai 101
    export = nsys_export()
    for row in export.tables["NVTX_EVENTS"]:
        row.pop("textId")
    assert analyse(export.sqlite(tmp_path / "a.sqlite")).steps.count == 4


def test_launches_without_a_kernel_table_are_counted_and_no_idle_is_claimed(
    tmp_path: Path, command_line: CommandLine
) -> None:
    export = nsys_export()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "META_DATA_EXPORT"):
        del export.tables[table]
    rank = command_line.analysed(export.sqlite(tmp_path / "a.sqlite")).ranks[0]
    assert rank.devices == []
    assert rank.integrity.verdict == "unusable"
    assert "8 kernels were launched but no GPU activity was recorded." in rank.integrity.notes


def test_whole_graphs_are_busy_and_their_kernels_said_to_be_hidden(tmp_path: Path) -> None:
    # pegainfer 163
    export = Export()
    for i in range(3):
        correlation = export.call("cudaGraphLaunch_v10000", 1000 + 10_000 * i, 2000 + 10_000 * i)
        export.gpu(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 3000 + 10_000 * i, 8000 + 10_000 * i, correlation,
            graphId=1, graphExecId=2, globalPid=GLOBAL_PID,
        )  # fmt: skip
    rank = analyse(export.sqlite(tmp_path / "a.sqlite"))
    assert rank.devices[0].busy_ns == 3 * 5000
    assert rank.kernels.count == 0
    assert any("kernels are hidden" in note for note in rank.integrity.notes)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_memory_snapshot_alone_holds_no_timeline_and_is_never_unpickled(
    tmp_path: Path, command_line: CommandLine, protocol: int
) -> None:
    # Megatron-Bridge 3487; and a pickle that would run a command when loaded
    witness = tmp_path / "executed"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (witness,))  # type: ignore[return-value]

    path = tmp_path / "memory_snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [Trap()], "device_traces": []}, protocol))
    assert path.name in command_line.refused(path)
    assert not witness.exists()
