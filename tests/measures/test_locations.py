"""Code locations."""

from __future__ import annotations

import pytest

from tests.builders import AUTOGRAD, MAIN, TraceBuilder, ns
from tests.measures.handmade import recording
from traceanalyzer.measures.locations import Locations, Place, shorten_frame


def test_innermost_user_frame_wins_over_library_frames_inside_it() -> None:
    builder = TraceBuilder()
    builder.python("train.py(40): main", 0, 100)
    builder.python("train.py(12): step", 10, 90)
    builder.python("torch/nn/modules/module.py(1773): _wrapped_call_impl", 20, 80)
    builder.python("<built-in method conv2d of type object at 0x7f>", 30, 70)
    builder.operator("aten::conv2d", 31, 69)
    locations = Locations(builder.build())
    assert locations.has_stacks
    assert locations.at(MAIN, ns(50)) == Place("train.py(12): step", "aten::conv2d")
    assert locations.at(MAIN, ns(95)) == Place("train.py(40): main", "")
    assert locations.at(MAIN, ns(100)) == Place("", "")  # half open


def test_library_frame_stands_where_no_user_frame_is_open() -> None:
    builder = TraceBuilder()
    builder.python("threading.py(1030): _bootstrap", 0, 100)
    builder.python("torch/utils/data/_utils/pin_memory.py(30): _pin_memory_loop", 10, 90)
    assert (
        Locations(builder.build()).at(MAIN, ns(50)).where
        == "torch/utils/data/_utils/pin_memory.py(30): _pin_memory_loop"
    )


@pytest.mark.parametrize(
    "library",
    [
        "/usr/lib/python3.11/site-packages/requests/api.py(5): get",
        "C:\\Python311\\Lib\\site-packages\\requests\\api.py(5): get",
        "/usr/lib/python3.11/contextlib.py(81): inner",
        "contextlib.py(81): inner",
        "numpy/core/numeric.py(7): ones",
    ],
)
def test_installed_packages_and_the_standard_library_are_skipped(library: str) -> None:
    builder = TraceBuilder()
    builder.python("/home/user/project/train.py(12): step", 0, 100)
    builder.python(library, 10, 90)
    assert Locations(builder.build()).at(MAIN, ns(50)).where == "/home/user/project/train.py(12): step"


def test_a_training_framework_is_where_its_user_would_look() -> None:
    builder = TraceBuilder()
    builder.python("train.py(12): <module>", 0, 100)
    builder.python("/x/lib/python3.11/site-packages/ultralytics/engine/trainer.py(412): _do_train", 10, 90)
    where = Locations(builder.build()).at(MAIN, ns(50)).where
    assert where == "ultralytics/engine/trainer.py(412): _do_train"


def test_without_stacks_the_innermost_range_is_named() -> None:
    builder = TraceBuilder()
    builder.step(3, 0, 100)
    builder.annotation("phase:forward", 10, 50)
    builder.operator("aten::add", 20, 30)
    locations = Locations(builder.build())
    assert not locations.has_stacks
    assert locations.at(MAIN, ns(25)) == Place("phase:forward", "aten::add")
    # the step's own marker is no place
    assert locations.at(MAIN, ns(60)) == Place("", "")


def test_autograd_thread_borrows_the_place_that_called_backward() -> None:
    builder = TraceBuilder()
    builder.python("train.py(12): step", 0, 100)
    builder.operator("autograd::engine::evaluate_function: AddBackward0", 20, 30, thread=AUTOGRAD)
    place = Locations(builder.build()).at(AUTOGRAD, ns(25))
    assert place == Place("train.py(12): step", "autograd::engine::evaluate_function: AddBackward0")


def test_another_thread_borrows_nothing() -> None:
    builder = TraceBuilder()
    builder.python("train.py(12): step", 0, 100)
    builder.operator("aten::pin", 20, 30, thread=3)
    assert Locations(builder.build()).at(3, ns(25)) == Place("", "aten::pin")


def test_operators_written_as_ranges_are_operators() -> None:
    builder = TraceBuilder()
    builder.annotation("forward", 0, 100)
    builder.annotation("aten::copy_, seq = 45802, op_id = 991887", 10, 20)
    assert Locations(builder.build()).at(MAIN, ns(15)) == Place("forward", "aten::copy_")


def test_siblings_and_unknown_threads_are_told_apart() -> None:
    builder = TraceBuilder()
    builder.python("a.py(1): f", 0, 10)
    builder.python("b.py(2): g", 10, 20)
    locations = Locations(builder.build())
    assert locations.at(MAIN, ns(9)).where == "a.py(1): f"
    assert locations.at(MAIN, ns(10)).where == "b.py(2): g"
    assert locations.at(-1, ns(10)) == Place("", "")
    assert locations.at(MAIN, -5) == Place("", "")


def test_a_frame_that_outlives_its_caller_does_not_confuse_the_stack() -> None:
    builder = TraceBuilder()
    builder.python("a.py(1): outer", 0, 50)
    builder.python("b.py(2): late", 40, 70)
    locations = Locations(builder.build())
    assert [locations.at(MAIN, ns(t)).where for t in (20, 45, 60, 80)] == [
        "a.py(1): outer",
        "b.py(2): late",
        "b.py(2): late",
        "",
    ]


def test_an_empty_recording_has_no_places() -> None:
    locations = Locations(TraceBuilder().build())
    assert not locations.has_stacks
    assert locations.at(MAIN, 0) == Place("", "")


def test_installation_folders_are_cut_off() -> None:
    assert shorten_frame("/x/lib/python3.11/site-packages/torch/a.py(1): f") == "torch/a.py(1): f"
    assert shorten_frame("train.py(1): f") == "train.py(1): f"


@pytest.mark.shared
def test_real_stacks_lead_to_the_frames_of_the_training_loop() -> None:
    trace = recording("traces/h200/stack_mem.pt.trace.json.gz")
    locations = Locations(trace)
    assert locations.has_stacks
    convolutions = [
        row
        for row in range(len(trace.slices))
        if trace.slices.name[row] >= 0 and trace.names[trace.slices.name[row]] == "aten::cudnn_convolution"
    ]
    places = {locations.at(int(trace.slices.thread[r]), int(trace.slices.start_ns[r])).where for r in convolutions}
    assert places
    assert all("ultralytics/" in place for place in places)
