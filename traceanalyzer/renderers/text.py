"""Names from a recording as harmless text, and the few phrases that text reports share."""

from __future__ import annotations

import re
import unicodedata

from traceanalyzer.renderers.messages import say, translated
from traceanalyzer.results.analysis import Analysis, RankReport
from traceanalyzer.results.answer import planned_course
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import Basis, StepSource
from traceanalyzer.units import format_ns

# ZERO WIDTH … and the bidirectional controls let a name hide or reorder its neighbours; category Cf covers them all
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}

CAUSE_TITLES = {
    "input_wait": "waiting for input",
    "operator_dispatch": "dispatching operators",
    "python": "Python",
    "launch_call": "inside launch calls",
    "launch_latency": "launch latency",
    "queue_turnaround": "between queued kernels",
    "graph_launch": "graph launch",
    "graph_turnaround": "inside a graph",
    "copy_call": "inside copy calls",
    "sync_wait": "host waiting for the device",
    "allocator": "allocating memory",
    "plan_search": "searching plans",
    "module_load": "loading modules",
    "autograd_engine": "autograd engine",
    "garbage_collection": "garbage collection",
    "preempted": "launcher off its core",
    "device_wait": "waiting for another device",
    "communication_wait": "waiting for another rank",
    "checkpoint": "checkpoint",
    "logging": "logging",
    "profiler_overhead": "profiler",
    "unknown": "unknown",
}


def visible(text: str) -> str:
    r"""Spell out characters that would change how the rest of a line is shown, and keep it one line.

    Control characters (terminal escapes among them), bidirectional and zero-width controls become ``\x1b`` or
    ``\u202e``; runs of white space become one space.
    """
    collapsed = re.sub(r"[ \t\r\n\f\v]+", " ", text)
    return "".join(_spell(ch) if unicodedata.category(ch) in _HIDDEN_CATEGORIES else ch for ch in collapsed)


def visible_code(text: str) -> str:
    """Spell out the same characters in lines of code, whose line breaks and indentation stay."""
    lines = ((line, len(line) - len(line.lstrip(" "))) for line in text.split("\n"))
    return "\n".join(line[:indent] + visible(line[indent:]) for line, indent in lines)


def _spell(ch: str) -> str:
    code = ord(ch)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(text: str, length: int) -> str:
    """Cut a text to ``length`` characters, marking the cut with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def cause_title(cause: str) -> str:
    """Return the words for a cause; an unknown word stands for itself."""
    return CAUSE_TITLES.get(cause, cause)


def marker_hint(rank: RankReport) -> str:
    """Say how to name the steps where the recording does not; empty where it does."""
    if rank.steps.source is StepSource.INFERRED:
        return say(
            "The recording marks no steps: these {} are a period found in the launches. If a range of "
            "yours marks a training step, name it with --step-marker NAME.",
            rank.steps.count,
        )
    if rank.steps.source is StepSource.NONE:
        return say(
            "The recording marks no steps, and none were found: all times are of the whole recording. If a range of "
            "yours marks a training step, name it with --step-marker NAME."
        )
    return ""


def saving_text(finding: Finding) -> str:
    """Say what removing a finding's cause would win per step; empty where nothing is known."""
    saving = finding.saving_per_step_ns
    if saving.basis is Basis.NONE or (saving.likely is None and saving.high is None):
        return ""
    if saving.likely is None:
        return say("up to {}", format_ns(saving.high))
    if saving.low is None and saving.high is None:
        return format_ns(saving.likely)
    low = "?" if saving.low is None else format_ns(saving.low)
    high = say("more") if saving.high is None else format_ns(saving.high)
    return say("{} ({} to {})", format_ns(saving.likely), low, high)


def plan_text(analysis: Analysis) -> str:
    """Say in which order to fix what, and what the step becomes; empty without a plan. Codes may need escaping."""
    planned = planned_course(analysis)
    if planned is None:
        return ""
    codes, steps_ns, limit = planned
    order = say(", then ").join(codes)
    course = " → ".join(format_ns(ns) for ns in steps_ns)
    return say("Fix {}: step {} (replayed together); then {} is the limit.", order, course, translated(limit))
