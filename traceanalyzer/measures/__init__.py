"""Quantities computed from one trace: each in its own file, computed once, without opinions.

``Measures`` is what rules and the report assembly see. Every property is computed on first use and kept; threads that
ask for the same one wait for the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar

from traceanalyzer.measures.allocator import Allocator, measure_allocator
from traceanalyzer.measures.communication import Communication, measure_communication
from traceanalyzer.measures.copies import Copies, measure_copies
from traceanalyzer.measures.device_timeline import DeviceTimeline, measure_device_timelines
from traceanalyzer.measures.facts import Facts
from traceanalyzer.measures.gap_attribution import IdleLedger, attribute_idle
from traceanalyzer.measures.host_nesting import HostNesting, nest_host
from traceanalyzer.measures.host_timeline import HostTimeline, flatten_host
from traceanalyzer.measures.input_supply import InputSupply, measure_input_supply
from traceanalyzer.measures.kernels import Kernels, measure_kernels
from traceanalyzer.measures.launches import Launches, measure_launches
from traceanalyzer.measures.locations import Locations
from traceanalyzer.measures.matrix_limits import MatrixLimits, measure_matrix_limits
from traceanalyzer.measures.memory_phases import peak_by_phase
from traceanalyzer.measures.memory_snapshot import allocated_at_step_start, curve_of, measure_memory
from traceanalyzer.measures.observer_effect import ObserverEffect, measure_observer_effect
from traceanalyzer.measures.once import measured_once
from traceanalyzer.measures.operators import Operators, measure_operators
from traceanalyzer.measures.positions import StepPositions, measure_positions
from traceanalyzer.measures.step_variation import StepSeries, measure_step_series
from traceanalyzer.measures.steps import Steps, find_steps
from traceanalyzer.measures.synchronisations import Synchronisations, measure_synchronisations
from traceanalyzer.measures.unprofiled_times import UnprofiledTimes, measure_recorded_phases, measure_unprofiled_times
from traceanalyzer.measures.worker_stages import WorkerStages, measure_worker_stages
from traceanalyzer.model.schema import IntArray
from traceanalyzer.model.trace import Device, Trace
from traceanalyzer.results.memory import MemoryReport

_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the user that change what is measured.

    Attributes:
        step_marker: Name of the range that marks a step, or None to look for one.
        steps: Half-open selection of steps by position, or None for all.
    """

    step_marker: str | None = None
    steps: tuple[int | None, int | None] | None = None


class Measures:
    """All quantities of one trace, computed when first asked for.

    Args:
        trace: The recording of one process.
        options: The user's choices.
        recorder: Facts a run folder adds (unprofiled step times, worker seconds …), as ``run.json`` holds them.
    """

    def __init__(self, trace: Trace, options: Options | None = None, recorder: dict[str, object] | None = None) -> None:
        self._trace = trace
        self.options = options or Options()
        self.recorder = recorder or {}
        # the other ranks of the run, where they were read together; what one rank waits for is seen only beside them
        self.peers: tuple[Measures, ...] = ()
        self._kept: dict[Hashable, Any] = {}
        self._locks: dict[str, RLock] = {}

    def kept(self, key: Hashable, compute: Callable[[], _Kept]) -> _Kept:
        """Return what was computed under a key, computing it where nobody did: for what several rules derive alike.

        Args:
            key: Names the quantity and everything it depends on besides this rank.
            compute: Makes it; the result is shared, so nobody may change it.

        Only one thread may ask (rules run in one), since nobody waits here.
        """
        if key not in self._kept:
            self._kept[key] = compute()
        made: _Kept = self._kept[key]
        return made

    def lock_of(self, name: str) -> RLock:
        """Return the lock under which a property is computed."""
        return self._locks.setdefault(name, RLock())  # one step, so that no two threads make one each

    @property
    def trace(self) -> Trace:
        """The recording itself, for stages that may see it (rules may not)."""
        return self._trace

    @property
    def origin_ns(self) -> int:
        """Moment the recording's times count from, ns; comparable between ranks whose clocks agree."""
        return self._trace.origin_ns

    @property
    def metadata(self) -> dict[str, str]:
        """Facts about the recording (``torch``, ``with_stack``, ``profile_memory`` …)."""
        return dict(self._trace.metadata)

    @property
    def rank(self) -> int:
        """Distributed rank; 0 when the recording does not say."""
        return self._trace.rank or 0

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the run, where the recording says so."""
        return self._trace.world_size

    def name(self, code: int) -> str:
        """Text of a name code; empty for -1."""
        return self._trace.names[code] if code >= 0 else ""

    @measured_once
    def facts(self) -> Facts:
        """Names, spans and numbers of single rows."""
        return Facts(self._trace)

    @measured_once
    def steps(self) -> Steps:
        """Step windows."""
        return find_steps(self._trace, self.options.step_marker, self.options.steps)

    @measured_once
    def host(self) -> HostTimeline:
        """What each host thread was doing, flattened, with phases."""
        return flatten_host(self._trace)

    @measured_once
    def nesting(self) -> HostNesting:
        """Which operator encloses which call."""
        return nest_host(self._trace)

    @measured_once
    def devices(self) -> tuple[DeviceTimeline, ...]:
        """Busy and idle time per device."""
        return measure_device_timelines(self._trace)

    @measured_once
    def idle(self) -> IdleLedger:
        """Every idle nanosecond with its cause, phase and window."""
        return attribute_idle(self._trace, self.steps, self.host, self.devices)

    @measured_once
    def launches(self) -> Launches:
        """Launch calls and the activities they enqueued."""
        return measure_launches(self._trace, self.devices)

    @measured_once
    def copies(self) -> Copies:
        """Copies, their overlap with kernels and what they cost the host."""
        return measure_copies(self._trace, self.devices, self.steps, self.nesting)

    @measured_once
    def allocator(self) -> Allocator:
        """Driver allocation calls and the framework allocator's totals."""
        return measure_allocator(self._trace, self.steps)

    @measured_once
    def memory(self) -> MemoryReport | None:
        """State and history of the caching allocator; None without a memory snapshot."""
        return measure_memory(self._trace, self.steps, self.recorder)

    @measured_once
    def memory_by_phase(self) -> dict[str, int]:
        """Most bytes allocated in each phase, by allocator events or a snapshot on the same clock; empty without."""
        own = self.allocator.curve if not self.allocator.curve_is_driver else None
        return peak_by_phase(own or curve_of(self.memory), self.host, self.steps)

    @measured_once
    def memory_at_step_start(self) -> IntArray:
        """Allocated bytes at the start of each step window by the snapshot's history; -1 unknown."""
        return allocated_at_step_start(self._trace, self.steps, self.memory)

    @property
    def trace_devices(self) -> tuple[Device, ...]:
        """Devices as the recording describes them."""
        return self._trace.devices

    @measured_once
    def kernels(self) -> Kernels:
        """Kernel sums by name and family."""
        return measure_kernels(self._trace, self.steps)

    @measured_once
    def matrix_limits(self) -> MatrixLimits | None:
        """How near matrix work comes to the device's limits; None without shapes or a known device."""
        return measure_matrix_limits(self._trace, self.kernels, self.nesting)

    @measured_once
    def communication(self) -> Communication:
        """Collective kernels."""
        return measure_communication(self._trace, self.devices)

    @measured_once
    def input(self) -> InputSupply:
        """The data loader as the training loop sees it."""
        return measure_input_supply(self._trace, self.steps)

    @measured_once
    def worker_stages(self) -> WorkerStages | None:
        """What the loader's workers spend a batch on; None where the recorder did not time them."""
        return measure_worker_stages(self.recorder)

    @measured_once
    def unprofiled(self) -> UnprofiledTimes | None:
        """What the recorder timed in steps without the profiler; None where it timed none."""
        return measure_unprofiled_times(self.recorder)

    @measured_once
    def recorded_phase_ns(self) -> dict[str, float]:
        """Mean host time of each phase in the recorded steps by the recorder's timers, ns; empty without."""
        return measure_recorded_phases(self.recorder)

    @measured_once
    def operators(self) -> Operators:
        """Host time of framework operators."""
        return measure_operators(self._trace, self.nesting)

    @measured_once
    def synchronisations(self) -> Synchronisations:
        """Calls in which the host waited for the device."""
        return measure_synchronisations(self._trace, self.steps, self.copies, self.nesting)

    @measured_once
    def locations(self) -> Locations:
        """Where in the user's code a moment of a thread was."""
        return Locations(self._trace)

    @measured_once
    def step_series(self) -> StepSeries:
        """One value per step window of everything a comparison needs."""
        return measure_step_series(self._trace, self.steps, self.devices, self.idle, self.copies, self.kernels)

    @measured_once
    def positions(self) -> StepPositions:
        """The step's launch sequence, aligned by name."""
        return measure_positions(self._trace, self.steps)

    @measured_once
    def observer(self) -> ObserverEffect:
        """How much the profiler slowed the step, where the recorder measured it."""
        return measure_observer_effect(self.steps, self.recorder)
