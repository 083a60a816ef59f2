"""Hide a cause and its finding goes; rename what a verdict does not depend on and the verdict stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.shared_data import shared
from tests.tools.mutate import Bools, inside, named, renamed, without
from tests.tools.score_labels import LABELLED, labels
from traceanalyzer.measures import Measures
from traceanalyzer.model.schema import CopyDirection, MemoryKind, SliceKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules.run import check_all

Mutation = Callable[[Trace], Trace]
STAGED = 65_536


@lru_cache(maxsize=2)
def opened(path: str) -> tuple[Trace, dict[str, object]]:
    one = open_inputs([path])[0]
    return one.recording.traces[0], one.recorder


def faults(trace: Trace, recorder: dict[str, object]) -> list[str]:
    found = check_all(Measures(trace, recorder=recorder))
    assert not [f for f in found if f.status is Status.ERROR]
    return [f.code for f in found if f.status is Status.FAIL and f.kind is FindingKind.FAULT]


def verdicts(trace: Trace, recorder: dict[str, object]) -> dict[str, Status]:
    return {f.code: f.status for f in check_all(Measures(trace, recorder=recorder))}


# ------------------------------------------------------------------ hiding


def ranges(pattern: str) -> Mutation:
    """Drop ranges and their time; what they hold stays."""
    return lambda trace: without(trace, slices=named(trace, trace.slices.name, pattern))


def whole(pattern: str) -> Mutation:
    """Drop ranges with everything the thread did in them and all GPU work it launched there."""

    def mutate(trace: Trace) -> Trace:
        outer = trace.slices.take(named(trace, trace.slices.name, pattern))
        return without(trace, slices=inside(trace, trace.slices, outer), calls=inside(trace, trace.calls, outer))

    return mutate


def calls(pattern: str) -> Mutation:
    return lambda trace: without(trace, calls=named(trace, trace.calls.name, pattern))


def kernels(pattern: str) -> Mutation:
    return lambda trace: without(trace, activities=named(trace, trace.activities.name, pattern))


def copies(wanted: Callable[[Trace], Bools]) -> Mutation:
    return lambda trace: without(trace, activities=(trace.activities.direction == CopyDirection.H2D) & wanted(trace))


def searching(trace: Trace) -> Trace:
    """Close the idle time of every convolution and product that takes the host a millisecond."""
    slices = trace.slices
    rows = named(trace, slices.name, r"^aten::(convolution_backward|cudnn_convolution|_convolution|b?mm|addmm)$")
    rows &= slices.end_ns - slices.start_ns >= 1_000_000
    return without(trace, close=(slices.start_ns[rows], slices.end_ns[rows]))


def between_steps(trace: Trace) -> Trace:
    """Close the time between one `step` range and the next."""
    rows = np.flatnonzero(named(trace, trace.slices.name, r"^step$"))
    return without(trace, close=(trace.slices.end_ns[rows][:-1], trace.slices.start_ns[rows][1:]))


LOADER = ranges(r"^enumerate\(DataLoader\)#|^(phase:)?data$")
FREED = calls(r"^cuda(Free|Malloc)(_v\d+)?$")
PAGEABLE = copies(
    lambda trace: (trace.activities.host_memory == MemoryKind.PAGEABLE) & (trace.activities.size_bytes > STAGED)
)


# of every labelled recording with a fault: its code, and what makes the recording one without the fault
def forgotten(trace: Trace) -> Trace:
    """Without the driver's frees and allocations, and without the snapshot that says why they were made."""
    return replace(FREED(trace), snapshot=None)


HIDDEN: dict[str, tuple[str, Mutation]] = {
    "single-process-loader": ("TA101", LOADER),
    "nsys-single-process-loader": ("TA101", LOADER),
    "slow-storage": ("TA102", LOADER),
    "no-persistence": ("TA104", LOADER),
    "heavy-mosaic": ("TA105", LOADER),
    "multi-scale": ("TA202", searching),
    "gc-storm": ("TA205", ranges("^garbage_collection$")),
    "anomaly-mode": ("TA207", whole(r"^aten::(isnan|any|item|is_nonzero|_local_scalar_dense)$")),
    "pageable": ("TA301", PAGEABLE),
    "tiny-copies": (
        "TA304",
        copies(lambda trace: (trace.activities.size_bytes >= 0) & (trace.activities.size_bytes <= STAGED)),
    ),
    "empty-cache": ("TA402", FREED),
    "memory-cap": ("TA403", forgotten),
    "fragmentation": ("TA404", forgotten),
    "nsys-empty-cache": ("TA402", FREED),
    "print-tensor": ("TA501", whole(r"^aten::(item|_local_scalar_dense|is_nonzero|_to_copy|nonzero)$")),
    "amp-off": ("TA601", kernels(r"f32f32|cf32|sgemm|[dw]grad2d|wgrad_alg|fft2d|conv2d_grouped|ffma|simt|nchw|nhwc")),
    "unfused-optimizer": ("TA604", whole("^Optimizer.step#")),
    "validate-every-step": ("TA801", whole("^(phase:)?validate$")),
    "checkpoint-every-step": ("TA802", whole("^(phase:)?checkpoint$")),
    "log-every-step": ("TA803", whole("^(phase:)?log$")),
}

SHARED: dict[str, list[tuple[str, Mutation]]] = {
    "workers0.pt.trace.json.gz": [("TA101", LOADER)],
    "nsys_workers0.sqlite.gz": [("TA101", between_steps)],
    "pageable.pt.trace.json.gz": [("TA301", PAGEABLE)],
    "empty.pt.trace.json.gz": [("TA402", FREED)],
    "frag.pt.trace.json.gz": [("TA202", searching)],
    "last_batch_yolo11x.pt.trace.json.gz": [("TA202", searching)],
    "boundary.pt.trace.json.gz": [
        ("TA801", whole("^(phase:)?validat(e|ion)$")),
        ("TA802", whole("^(phase:)?checkpoint$")),
    ],
}


# causes that the recorded steps do not show: the recorder's timers of the steps before and after them do
BY_TIMERS = {"few-workers": "TA102"}


@pytest.mark.parametrize("name", HIDDEN)
def test_without_its_cause_a_labelled_recording_has_no_fault_left(name: str) -> None:
    code, hide = HIDDEN[name]
    trace, recorder = opened(str(LABELLED / name))
    assert faults(trace, recorder)[0] == code
    assert faults(hide(trace), recorder) == []


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "code", "hide"),
    [(name, code, hide) for name, hidden in SHARED.items() for code, hide in hidden],
    ids=[f"{name.split('.')[0]}-{code}" for name, hidden in SHARED.items() for code, _ in hidden],
)
def test_without_its_cause_a_given_recording_loses_that_finding_and_gains_none(
    name: str, code: str, hide: Mutation
) -> None:
    trace, recorder = opened(str(shared(f"traces/h200/{name}")))
    before = faults(trace, recorder)
    assert code in before
    assert set(faults(hide(trace), recorder)) <= set(before) - {code}


def test_every_labelled_fault_is_hidden_once() -> None:
    expected = {name: label.expected for name, label in labels(LABELLED / "labels.json").items() if label.expected}
    assert expected == {name: code for name, (code, _) in HIDDEN.items()} | BY_TIMERS


@pytest.mark.parametrize("name", BY_TIMERS)
def test_without_the_timers_what_only_they_show_is_not_said(name: str) -> None:
    trace, recorder = opened(str(LABELLED / name))
    assert faults(trace, recorder) == [BY_TIMERS[name]]
    timeless = {key: value for key, value in recorder.items() if key not in ("unprofiled", "passes")}
    assert faults(trace, timeless) == []


# ------------------------------------------------------------------ renaming

# ranges that nothing but the phase table knows
_PHASES = re.compile(r"^(phase:)?(forward|backward|loss|ema|h2d|optimizer|step)$")
# of these the arithmetic, the layout, the scaler's check, a multi-tensor update or a collective is known by name only;
# TA903 speaks when no other does
BY_KERNEL_NAME = {"TA903", "TA501", "TA502", "TA601", "TA602", "TA603", "TA604", "TA701", "TA702"}
RENAMED = (
    "single-process-loader",
    "empty-cache",
    "multi-scale",
    "validate-every-step",
    "tiny-copies",
    "healthy",
    "good",
)


@pytest.mark.parametrize("name", RENAMED)
def test_verdicts_do_not_depend_on_what_the_parts_of_a_step_are_called(name: str) -> None:
    trace, recorder = opened(str(LABELLED / name))
    changed = renamed(trace, lambda text: _PHASES.sub("part of mine", text))
    assert changed.names != trace.names
    assert verdicts(changed, recorder) == verdicts(trace, recorder)


@pytest.mark.parametrize("name", RENAMED)
def test_only_verdicts_about_arithmetic_and_collectives_depend_on_kernel_names(name: str) -> None:
    trace, recorder = opened(str(LABELLED / name))
    codes = set(np.unique(trace.activities.name).tolist()) - set(np.unique(trace.slices.name).tolist())
    hidden = {trace.names[code]: f"kernel {code}" for code in codes if code >= 0}
    changed = renamed(trace, lambda text: hidden.get(text, text))
    before, after = verdicts(trace, recorder), verdicts(changed, recorder)
    assert {c: s for c, s in after.items() if c not in BY_KERNEL_NAME} == {
        c: s for c, s in before.items() if c not in BY_KERNEL_NAME
    }


def test_a_mutated_recording_keeps_its_launch_links_and_order() -> None:
    trace, _ = opened(str(LABELLED / "empty-cache"))
    changed = FREED(trace)
    assert not named(changed, changed.calls.name, r"^cuda(Free|Malloc)$").any()
    assert len(changed.activities) == len(trace.activities)
    assert np.array_equal(changed.activity_call >= 0, trace.activity_call >= 0)
    assert bool((np.diff(changed.activities.start_ns) >= 0).all())
    # GPU work keeps its length: only idle time was closed
    assert int((changed.activities.end_ns - changed.activities.start_ns).sum()) == int(
        (trace.activities.end_ns - trace.activities.start_ns).sum()
    )


def test_operators_are_not_renamed_by_accident() -> None:
    trace, _ = opened(str(LABELLED / "good"))
    rows = trace.slices.kind == SliceKind.OPERATOR
    assert not named(trace, trace.slices.name[rows], _PHASES.pattern).any()
