"""Host tables of an Nsight Systems export: API calls, NVTX ranges, OS calls, scheduling and profiler overhead."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceanalyzer.model.calls import classify_column, strip_version
from traceanalyzer.model.schema import Calls, IntArray, Overheads, Schedules, SliceKind, Slices
from traceanalyzer.readers.nsys_activities import Decoder
from traceanalyzer.readers.nsys_tables import RawTable

TID_BITS = 24
TID_MASK = (1 << TID_BITS) - 1

# NVTX event types; the second of each pair is the same range as the injection library of other tools reports it
_PUSH_POP = (59, 70)
_START_END = (60, 71)
_DOMAIN_CREATE = 75

_STILL_RUNNABLE = (0, 1, 6)  # ENUM_SAMPLING_THREAD_STATE: unknown, running, unscheduled; the others are asleep

_WEEK_NS = 7 * 86_400 * 1_000_000_000  # ranges may start long before the capture, so its length is no limit for them


def process_of(global_thread: IntArray) -> IntArray:
    """``globalPid`` of a column of ``globalTid``."""
    return global_thread & ~np.int64(TID_MASK)


def decode_calls(decoder: Decoder, raw: RawTable) -> tuple[Calls, IntArray]:
    """Decode ``CUPTI_ACTIVITY_KIND_RUNTIME``.

    Returns:
        The calls, their threads still unset (0), and the ``globalTid`` of each.
    """
    raw = _with_thread(decoder, decoder.sound(raw, "API calls", needs_start=False), "API calls")
    names, dangling, example = decoder.strings.codes(raw.integers("nameId"), decoder.names, strip_version)
    if dangling:
        decoder.integrity.note(
            f"{raw.name}: {dangling} calls name a string that StringIds does not hold; "
            f"they are called '<unknown string {example}>' and the like."
        )
    correlation = raw.integers("correlationId")
    calls = Calls.build(
        start_ns=raw.integers("start") - decoder.shift_ns,
        end_ns=raw.integers("end") - decoder.shift_ns,
        thread=np.zeros(len(raw), dtype=np.int32),
        name=names,
        kind=classify_column(names, decoder.names.values),
        correlation=np.where(correlation == 0, -1, correlation),
    )
    return calls, raw.integers("globalTid")


def decode_nvtx(decoder: Decoder, raw: RawTable, capture_end_ns: int) -> tuple[Slices, IntArray, bool]:
    """Decode the push/pop and start/end ranges of an NVTX table; marks and names are not ranges.

    Args:
        decoder: What decoding needs.
        raw: The table.
        capture_end_ns: Time (export clock) at which ranges that were never closed are cut.

    Returns:
        The ranges, their threads still unset (0); the ``globalTid`` of each; whether any was cut.
    """
    kind = raw.integers("eventType")
    domains = _domains(decoder, raw, kind)
    raw = raw.keep(np.isin(kind, _PUSH_POP + _START_END))
    raw = _with_thread(decoder, raw, "NVTX ranges")
    start, end = raw.integers("start", 0), raw.integers("end", 0)
    open_ended = raw.nulls("end")
    was_cut = open_ended is not None and bool(open_ended.any())
    if open_ended is not None and was_cut:
        end = np.where(open_ended, np.maximum(capture_end_ns, start), end)
        count = int(np.count_nonzero(open_ended))
        decoder.integrity.note(f"{count} NVTX ranges were still open when the capture ended; they are cut there.")
    good = np.ones(len(raw), dtype=np.bool_)
    too_long = np.subtract(end, start, dtype=np.float64) > _WEEK_NS
    lost = raw.nulls("start")
    checks = [
        ("without a start", np.zeros(len(raw), dtype=np.bool_) if lost is None else lost),
        ("that end before they start", end < start),
        ("longer than a week", too_long),
        ("that start more than a week from the capture", decoder.is_far_outside(start)),
    ]
    for reason, mask in checks:
        bad = mask & good
        if bad.any():
            decoder.integrity.drop(f"NVTX ranges {reason}", f"start {start[bad][0]}", int(bad.sum()))
            good &= ~bad
    if not good.all():
        raw, start, end = raw.keep(good), start[good], end[good]
    registered, dangling, example = decoder.strings.codes(raw.integers("textId"), decoder.names)
    if dangling:
        decoder.integrity.note(
            f"{raw.name}: {dangling} ranges name a string that StringIds does not hold; "
            f"they are called '<unknown string {example}>' and the like."
        )
    codes, texts = raw.texts("text")
    name = np.where(codes >= 0, decoder.names.translate(codes, texts), registered)
    if bool((name < 0).any()):
        name = np.where(name < 0, decoder.names.code("<unnamed range>"), name)
    threads = raw.integers("globalTid")
    slices = Slices.build(
        start_ns=start - decoder.shift_ns,
        end_ns=end - decoder.shift_ns,
        thread=np.zeros(len(raw), dtype=np.int32),
        name=name,
        # the recorder names garbage collections by a range
        kind=np.where(
            name == decoder.names.code("garbage_collection"), SliceKind.GARBAGE_COLLECTION, SliceKind.ANNOTATION
        ).astype(np.int8),
        domain=_domain_codes(decoder, raw, threads, domains),
    )
    return slices, threads, was_cut


def decode_os_calls(decoder: Decoder, raw: RawTable) -> tuple[Slices, IntArray]:
    """Decode ``OSRT_API``: calls into the operating system that lasted long enough to be recorded."""
    raw = _with_thread(decoder, decoder.sound(raw, "OS calls", needs_start=False), "OS calls")
    slices = Slices.build(
        start_ns=raw.integers("start") - decoder.shift_ns,
        end_ns=raw.integers("end") - decoder.shift_ns,
        thread=np.zeros(len(raw), dtype=np.int32),
        name=decoder.name_codes(raw, "nameId"),
        kind=np.full(len(raw), SliceKind.OS_CALL, dtype=np.int8),
    )
    return slices, raw.integers("globalTid")


def decode_overheads(decoder: Decoder, raw: RawTable, loading_types: frozenset[int]) -> tuple[Overheads, IntArray]:
    """Decode ``PROFILER_OVERHEAD`` or ``CUPTI_ACTIVITY_KIND_OVERHEAD``.

    Args:
        decoder: What decoding needs.
        raw: The table.
        loading_types: ``overheadType`` numbers that stand for lazy module or function loading.
    """
    raw = _with_thread(decoder, decoder.sound(raw, "profiler overheads", needs_start=False), "profiler overheads")
    names = decoder.name_codes(raw, "nameId")
    by_name = [code for code, text in enumerate(decoder.names.values) if _is_loading(text)]
    kind = raw.integers("overheadType")
    rows = Overheads.build(
        start_ns=raw.integers("start") - decoder.shift_ns,
        end_ns=raw.integers("end") - decoder.shift_ns,
        thread=np.zeros(len(raw), dtype=np.int32),
        name=names,
        is_module_load=np.isin(kind, sorted(loading_types)) | np.isin(names, by_name),
    )
    return rows, raw.integers("globalTid")


def decode_schedules(decoder: Decoder, raw: RawTable) -> tuple[Schedules, IntArray]:
    """Decode ``SCHED_EVENTS``: from the moment a thread loses its core to the moment it is back on one.

    A thread that went to sleep by itself was not preempted; where the export says in which state a thread left its
    core, those stretches are not kept.
    """
    raw = _with_thread(decoder, decoder.sound_moments(raw, "scheduling events"), "scheduling events")
    start, thread, is_in = raw.integers("start"), raw.integers("globalTid"), raw.integers("isSchedIn", 0)
    state = raw.integers("threadState")
    order = np.lexsort((start, thread))
    start, thread, is_in, state = start[order], thread[order], is_in[order], state[order]
    out = np.flatnonzero((is_in[:-1] == 0) & (is_in[1:] == 1) & (thread[:-1] == thread[1:]))
    if bool((state > 0).any()):
        out = out[np.isin(state[out], _STILL_RUNNABLE)]
    elif len(out):
        decoder.integrity.note("Scheduling rows do not say whether a thread was preempted or went to sleep itself.")
    rows = Schedules.build(
        start_ns=start[out] - decoder.shift_ns,
        end_ns=start[out + 1] - decoder.shift_ns,
        thread=np.zeros(len(out), dtype=np.int32),
    )
    return rows, thread[out]


def _with_thread(decoder: Decoder, raw: RawTable, what: str) -> RawTable:
    lost = raw.nulls("globalTid")
    if lost is None or not lost.any():
        return raw
    decoder.integrity.drop(f"{what} without a thread", raw.name, int(lost.sum()))
    return raw.keep(~lost)


def _domains(decoder: Decoder, raw: RawTable, kind: IntArray) -> dict[tuple[int, int], str]:
    """Names of the NVTX domains, by process and domain id."""
    created = raw.keep(kind == _DOMAIN_CREATE)
    codes, texts = created.texts("text")
    columns = (
        process_of(created.integers("globalTid", 0)),
        created.integers("domainId", 0),
        codes,
        created.integers("textId"),
    )
    result = {}
    for process, domain, code, text_id in zip(*(column.tolist() for column in columns), strict=True):
        result[process, domain] = texts[code] if code >= 0 else decoder.strings.text(text_id) or f"domain {domain}"
    return result


def _domain_codes(
    decoder: Decoder, raw: RawTable, threads: IntArray, domains: dict[tuple[int, int], str]
) -> npt.NDArray[np.int32]:
    """Name code of each range's domain; -1 for the default domain (0)."""
    domain = raw.integers("domainId", 0)
    result = np.full(len(raw), -1, dtype=np.int32)
    process = process_of(threads)
    for number in np.unique(domain[domain != 0]).tolist():
        for owner in np.unique(process[domain == number]).tolist():
            name = domains.get((owner, number), f"domain {number}")
            result[(domain == number) & (process == owner)] = decoder.names.code(name)
    return result


def _is_loading(name: str) -> bool:
    text = name.lower()
    return "module loading" in text or "lazy function loading" in text
