"""What the recorder timed in steps without the profiler: phases, waiting for the input, collections, worker seconds.

A profiled step is not the step a user pays for, and of a cause that comes and goes (a queue of batches that is full
at first) it shows an accident. The timers of the unprofiled steps show both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures.observer_effect import recorded_pass
from traceanalyzer.measures.worker_stages import count_of

# consecutive steps are alike: this many count as one
STEPS_PER_SAMPLE = 3
_INPUT_PHASE = "data"
_BLOCKS = ("unprofiled", "unprofiled_after")


@dataclass(frozen=True, slots=True)
class UnprofiledTimes:
    """Means over the unprofiled steps of one pass.

    Attributes:
        steps: Steps that were timed.
        step_ns: Mean step.
        phase_ns: Mean host time of each phase.
        wait_ns: Time in the input's phase, one value per step, the shorter of what host and device took: what the
            device still had queued while the host waited is no loss.
        rest_ns: The step without it, one value per step.
        collection_ns: Garbage collection on the launching thread per step; None where nobody noted it.
        batch_ns: Time a worker takes for a batch; None where nobody timed the workers.
        workers: Loader worker processes; None unknown.
        cores: Processor cores; None unknown.
    """

    steps: int
    step_ns: float
    phase_ns: Mapping[str, float]
    wait_ns: npt.NDArray[np.float64]
    rest_ns: npt.NDArray[np.float64]
    collection_ns: float | None
    batch_ns: float | None
    workers: int | None
    cores: int | None

    @property
    def mean_wait_ns(self) -> float:
        """Mean wait for the next batch."""
        return float(self.wait_ns.mean()) if len(self.wait_ns) else 0.0

    @property
    def mean_rest_ns(self) -> float:
        """Mean step without that wait."""
        return self.step_ns - self.mean_wait_ns

    @property
    def supply_ns(self) -> float | None:
        """Time in which the workers together make one batch; None where it is not known."""
        return self.batch_ns / self.workers if self.batch_ns and self.workers else None

    @property
    def lasting_step_ns(self) -> float:
        """The step once the queue of ready batches is used up: no shorter than the workers take for a batch."""
        return max(self.step_ns, self.supply_ns or 0.0)

    @property
    def noise_ns(self) -> float:
        """Two standard errors of the mean step without waiting."""
        return two_errors(self.rest_ns)


def two_errors(values: npt.NDArray[np.float64]) -> float:
    """Two standard errors of a mean over consecutive steps."""
    return 2 * float(values.std()) / max(len(values) / STEPS_PER_SAMPLE, 1.0) ** 0.5 if len(values) else 0.0


def measure_unprofiled_times(recorder: dict[str, object]) -> UnprofiledTimes | None:
    """Read the timers of the unprofiled steps.

    Args:
        recorder: One pass of ``run.json``, or the whole of it.

    Returns:
        The means; None where no unprofiled step was timed.
    """
    one = recorded_pass(recorder)
    timed = one.get("unprofiled")
    if not isinstance(timed, Mapping):
        return None
    step = _numbers(timed.get("step_ns"))
    if not len(step) or not step.mean() > 0:
        return None
    host, device = _by_phase(timed.get("phase_ns")), _by_phase(timed.get("device_phase_ns"))
    shorter = {
        name: np.minimum(values, device[name]) if len(device.get(name, ())) == len(values) else values
        for name, values in host.items()
    }
    wait = shorter.get(_INPUT_PHASE, np.zeros(len(step)))
    if len(wait) != len(step):
        wait = np.full(len(step), float(wait.mean()) if len(wait) else 0.0)
    steps = sum(_whole(timed.get("block_steps"))) or len(step)
    collected = [_field(one, "garbage_collection", block, "ns") for block in _BLOCKS]
    batches = [_field(one, "loader", block, "batches") for block in _BLOCKS]
    worker = [_field(one, "loader", block, "worker_ns") for block in _BLOCKS]
    batch_count, worker_ns = sum(filter(None, batches)), sum(filter(None, worker))
    configuration = recorder.get("configuration")
    settings = configuration if isinstance(configuration, Mapping) else {}
    return UnprofiledTimes(
        steps=len(step),
        step_ns=float(step.mean()),
        phase_ns={name: float(values.mean()) for name, values in host.items() if len(values)},
        wait_ns=wait,
        rest_ns=step - wait,
        collection_ns=sum(filter(None, collected)) / steps if any(v is not None for v in collected) else None,
        batch_ns=worker_ns / batch_count if batch_count and worker_ns else None,
        workers=_setting(settings, "workers"),
        cores=_setting(settings, "cpu_cores"),
    )


def measure_recorded_phases(recorder: dict[str, object]) -> dict[str, float]:
    """Mean host time of each phase in the recorded steps, by the recorder's timers, ns; empty without."""
    timed = recorded_pass(recorder).get("profiled")
    phases = _by_phase(timed.get("phase_ns")) if isinstance(timed, Mapping) else {}
    return {name: float(values.mean()) for name, values in phases.items() if len(values)}


def _field(one: Mapping[str, object], part: str, block: str, name: str) -> int | None:
    """A count of one block; None where the block is absent."""
    value = one.get(part)
    inner = value.get(block) if isinstance(value, Mapping) else None
    return count_of(inner.get(name)) if isinstance(inner, Mapping) else None


def _setting(settings: Mapping[str, object], name: str) -> int | None:
    value = settings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _by_phase(value: object) -> dict[str, npt.NDArray[np.float64]]:
    return {str(k): _numbers(v) for k, v in value.items()} if isinstance(value, Mapping) else {}


def _numbers(value: object) -> npt.NDArray[np.float64]:
    """The numbers of a list; empty where it is none, or holds anything else."""
    if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
        return np.empty(0)
    found = np.array(value, dtype=np.float64)
    return found if np.all(np.isfinite(found)) and np.all(found >= 0) else np.empty(0)


def _whole(value: object) -> list[int]:
    return [count_of(v) for v in value] if isinstance(value, list) else []
