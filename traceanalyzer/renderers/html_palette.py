"""Words and colours of causes, kinds and phases in the report: fixed, so that two reports can be laid side by side.

Hues follow a colour-blind safe set (bluish green, amber, blue, violet, vermillion, pink, olive, grey); causes of one
group share a hue and differ in lightness. A colour never stands alone: every use carries its label.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceanalyzer.results.vocabulary import Cause


@dataclass(frozen=True, slots=True)
class Group:
    """Causes that a reader would fix in the same part of the code.

    Attributes:
        key: Stable short name, used in CSS.
        label: What the reader sees.
        causes: Its causes, darkest first.
        light: Colours of its causes on a light page, in order.
        dark: The same on a dark page.
    """

    key: str
    label: str
    causes: tuple[Cause, ...]
    light: tuple[str, ...]
    dark: tuple[str, ...]


GROUPS: tuple[Group, ...] = (
    Group("input", "Input", (Cause.INPUT_WAIT,), ("#e39a1c",), ("#f0b24a",)),
    Group(
        "host",
        "Host dispatch",
        (
            Cause.OPERATOR_DISPATCH,
            Cause.PYTHON,
            Cause.AUTOGRAD_ENGINE,
            Cause.LAUNCH_CALL,
            Cause.LAUNCH_LATENCY,
            Cause.GRAPH_LAUNCH,
        ),
        ("#2c5f9e", "#5d92cf", "#8fb6e3", "#3f79ba", "#b5cff0", "#23497a"),
        ("#6ea3e0", "#94bdec", "#b7d3f4", "#5a8fd0", "#d3e4f9", "#4a7dbd"),
    ),
    Group(
        "pause",
        "Host paused",
        (Cause.PLAN_SEARCH, Cause.MODULE_LOAD, Cause.GARBAGE_COLLECTION, Cause.PREEMPTED),
        ("#5b3f94", "#8a6fc2", "#7455ad", "#b6a3dc"),
        ("#b79df0", "#8d72cc", "#a488e4", "#d3c4f6"),
    ),
    Group(
        "sync",
        "Waiting for the device",
        (
            Cause.SYNC_WAIT,
            Cause.QUEUE_TURNAROUND,
            Cause.GRAPH_TURNAROUND,
            Cause.DEVICE_WAIT,
            Cause.COMMUNICATION_WAIT,
        ),
        ("#c2522b", "#e08c68", "#f0b79d", "#9c3f1f", "#d36f49"),
        ("#e9825c", "#f2aa8c", "#f8cdb9", "#cf6a43", "#ee9877"),
    ),
    Group(
        "memory",
        "Copies and memory",
        (Cause.COPY_CALL, Cause.ALLOCATOR),
        ("#a65a8f", "#d09ac0"),
        ("#cf8cbb", "#e3b8d6"),
    ),
    Group(
        "cycle",
        "Checkpoint and logging",
        (Cause.CHECKPOINT, Cause.LOGGING),
        ("#857a24", "#b9ae57"),
        ("#bdb14f", "#d8cf86"),
    ),
    Group(
        "unknown",
        "Profiler and unknown",
        (Cause.PROFILER_OVERHEAD, Cause.UNKNOWN),
        ("#767f8c", "#b0b7c1"),
        ("#99a2af", "#6b7482"),
    ),
)

BUSY: dict[str, tuple[str, str, str]] = {
    "compute": ("Compute", "#0d8a72", "#35b79c"),
    "communication": ("Exposed communication", "#56ae9c", "#6fcfbb"),
    "exposed_communication": ("Exposed communication", "#56ae9c", "#6fcfbb"),
    "copy": ("Exposed copies", "#9ad0c5", "#a9e3d7"),
    "exposed_copy": ("Exposed copies", "#9ad0c5", "#a9e3d7"),
}
OTHER_BUSY = ("Other work", "#6fa79c", "#7fc0b3")

CAUSE_MEANING: dict[str, str] = {
    Cause.INPUT_WAIT: "the training loop was inside the data loader's next()",
    Cause.OPERATOR_DISPATCH: "the host was inside a framework operator, before its launch call",
    Cause.PYTHON: "the host was in Python or a named range, outside any operator",
    Cause.LAUNCH_CALL: "the host was inside the call that launches the next kernel",
    Cause.LAUNCH_LATENCY: "the launch had returned, the device had not begun",
    Cause.QUEUE_TURNAROUND: "work was queued already; the device changed from one activity to the next",
    Cause.GRAPH_LAUNCH: "the host was inside a graph launch",
    Cause.GRAPH_TURNAROUND: "the device changed from one activity to the next inside a graph",
    Cause.COPY_CALL: "the host was inside a call that copies",
    Cause.SYNC_WAIT: "the host waited for the device and launched nothing meanwhile",
    Cause.ALLOCATOR: "the host allocated or freed device or pinned memory",
    Cause.PLAN_SEARCH: "an operator searched an execution plan, many times its usual host time",
    Cause.MODULE_LOAD: "the driver loaded a module or function",
    Cause.AUTOGRAD_ENGINE: "the backward pass was between two nodes",
    Cause.GARBAGE_COLLECTION: "Python collected garbage",
    Cause.PREEMPTED: "the operating system had taken the launching thread off its core",
    Cause.DEVICE_WAIT: "queued work waited for another device, an event or a host function",
    Cause.COMMUNICATION_WAIT: "another rank arrived late",
    Cause.CHECKPOINT: "the host was saving a checkpoint",
    Cause.LOGGING: "the host was logging",
    Cause.PROFILER_OVERHEAD: "the profiler did work of its own",
    Cause.UNKNOWN: "the recording does not say",
}

GROUP_OF: dict[str, Group] = {cause: group for group in GROUPS for cause in group.causes}


def css_variables() -> tuple[str, str]:
    """Return the custom properties of every cause, group and kind of work: for light and for dark pages."""
    light: list[str] = []
    dark: list[str] = []
    for group in GROUPS:
        light.append(f"--g-{group.key}:{group.light[0]}")
        dark.append(f"--g-{group.key}:{group.dark[0]}")
        for cause, on_light, on_dark in zip(group.causes, group.light, group.dark, strict=True):
            light.append(f"--c-{cause}:{on_light}")
            dark.append(f"--c-{cause}:{on_dark}")
    for kind, (_, on_light, on_dark) in BUSY.items():
        light.append(f"--b-{kind}:{on_light}")
        dark.append(f"--b-{kind}:{on_dark}")
    light.append(f"--b-other:{OTHER_BUSY[1]}")
    dark.append(f"--b-other:{OTHER_BUSY[2]}")
    return ";".join(light), ";".join(dark)
