"""The closed lists of words the documents use: causes of idle time, phases, window classes, statuses."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why the device was idle. Every idle nanosecond has exactly one of these."""

    INPUT_WAIT = "input_wait"
    OPERATOR_DISPATCH = "operator_dispatch"
    PYTHON = "python"
    LAUNCH_CALL = "launch_call"
    LAUNCH_LATENCY = "launch_latency"
    QUEUE_TURNAROUND = "queue_turnaround"
    GRAPH_LAUNCH = "graph_launch"
    GRAPH_TURNAROUND = "graph_turnaround"
    COPY_CALL = "copy_call"
    SYNC_WAIT = "sync_wait"
    ALLOCATOR = "allocator"
    PLAN_SEARCH = "plan_search"
    MODULE_LOAD = "module_load"
    AUTOGRAD_ENGINE = "autograd_engine"
    GARBAGE_COLLECTION = "garbage_collection"
    PREEMPTED = "preempted"
    DEVICE_WAIT = "device_wait"
    COMMUNICATION_WAIT = "communication_wait"
    CHECKPOINT = "checkpoint"
    LOGGING = "logging"
    PROFILER_OVERHEAD = "profiler_overhead"
    UNKNOWN = "unknown"


class Phase(StrEnum):
    """Part of a training step, as ranges name it."""

    DATA = "data"
    H2D = "h2d"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EMA = "ema"
    VALIDATE = "validate"
    CHECKPOINT = "checkpoint"
    LOG = "log"
    OTHER = "other"


class StepClass(StrEnum):
    """What kind of step window it is."""

    WARM_UP = "warm-up"
    STEADY = "steady"
    EPISODIC = "episodic"
    CUT = "cut"


class StepSource(StrEnum):
    """Where step borders come from."""

    PROFILER = "profiler"
    NAMED = "named"
    NVTX = "nvtx"
    INFERRED = "inferred"
    NONE = "none"


class Status(StrEnum):
    """Outcome of a rule."""

    FAIL = "fail"
    PASS = "pass"
    INFORMATIVE = "informative"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


class FindingKind(StrEnum):
    """A fault can be changed; a limiter is what bounds the step; a note informs."""

    FAULT = "fault"
    LIMITER = "limiter"
    NOTE = "note"


class Severity(StrEnum):
    """Share of the step a finding costs: high ≥ 20 %, medium ≥ 5 %, low above the floor."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Basis(StrEnum):
    """How a saving is known."""

    MEASURED = "measured"
    REPLAY = "replay"
    BOUND = "bound"
    NONE = "none"


# fixed order: the integer codes of measures and the colours of reports follow it
CAUSES: tuple[Cause, ...] = tuple(Cause)
PHASES: tuple[Phase, ...] = tuple(Phase)
CAUSE_CODE: dict[Cause, int] = {cause: code for code, cause in enumerate(CAUSES)}
PHASE_CODE: dict[Phase, int] = {phase: code for code, phase in enumerate(PHASES)}
