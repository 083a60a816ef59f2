"""Savings the recorder measured by trying a change, by the rule they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.measures.observer_effect import recorded_pass
from traceanalyzer.results.finding import Saving
from traceanalyzer.results.vocabulary import Basis

# trial → the rules whose fix it is; a trial that changes more than one cause answers for none of them alone
ANSWERS: dict[str, tuple[str, ...]] = {
    "reused_batch": ("TA101", "TA102", "TA103", "TA105"),
    "fixed_shapes": ("TA202",),
    "gc_frozen": ("TA205",),
    "anomaly_off": ("TA207",),
    "pinned": ("TA301", "TA302"),
    "empty_cache_off": ("TA402",),
    "item_removed": ("TA501",),
    "device_sync_off": ("TA502",),
    "tf32": ("TA601",),
    "channels_last": ("TA603",),
    "fused_optimizer": ("TA604",),
    "cuda_graph": ("TA201",),
}

_LONGEST_NS = 10**15  # eleven days: no step
_WORST = 1000  # times the step that a change may cost


@dataclass(frozen=True, slots=True)
class Trial:
    """One change the recorder tried.

    Attributes:
        name: Name of the trial.
        changes: What was changed, as the recorder says it.
        saving: Paired difference per step with its 95 % interval, unprofiled.
        smallest_effect_ns: Smallest effect the trial could have seen, ns per step.
        baseline_step_ns: Step without the change.
    """

    name: str
    changes: str
    saving: Saving
    smallest_effect_ns: int
    baseline_step_ns: int

    @property
    def is_measurable(self) -> bool:
        """Whether the interval leaves out zero."""
        low, high = self.saving.low, self.saving.high
        return low is not None and high is not None and (low > 0 or high < 0)


def measured_trials(recorder: Mapping[str, object]) -> list[Trial]:
    """Read the trials that were measured.

    Args:
        recorder: ``run.json``, where ``trials`` stands in the run or in the pass of the recording. Entries that were
            not measured, or lack a number, are left out.
    """
    listed = recorder.get("trials") or recorded_pass(dict(recorder)).get("trials")
    found = [_trial(entry) for entry in listed] if isinstance(listed, list) else []
    return [trial for trial in found if trial is not None]


def measured_savings(recorder: Mapping[str, object]) -> dict[str, Trial]:
    """Return the trial that answers each rule, by code."""
    return {code: trial for trial in measured_trials(recorder) for code in ANSWERS.get(trial.name, ())}


def _trial(entry: object) -> Trial | None:
    if not isinstance(entry, Mapping) or entry.get("status") != "measured":
        return None
    difference = entry.get("difference_ns")
    if not isinstance(difference, Mapping):
        return None
    values = [difference.get(k) for k in ("low", "likely", "high")]
    values += [entry.get("smallest_effect_ns"), entry.get("baseline_step_ns")]
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(numbers) != len(values):
        return None
    low, likely, high, smallest, baseline = numbers
    # a step cannot get shorter than nothing; an interval's end may say so, from noise
    if not (low <= likely <= high and -baseline * _WORST <= low and likely <= baseline < _LONGEST_NS and smallest >= 0):
        return None
    high = min(high, baseline)
    return Trial(
        name=str(entry.get("name", "")),
        changes=str(entry.get("changes", "")),
        saving=Saving(low=low, likely=likely, high=high, basis=Basis.MEASURED),
        smallest_effect_ns=smallest,
        baseline_step_ns=baseline,
    )
