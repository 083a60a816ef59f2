"""What each firing cause is worth, by replay; and the best order of fixes, replayed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from traceanalyzer.measures import Measures
from traceanalyzer.measures.gap_attribution import BoolArray
from traceanalyzer.model.intervals import length, union
from traceanalyzer.model.schema import IntArray
from traceanalyzer.replay.bounds import JudgedSteps, judged_steps
from traceanalyzer.replay.editors import EDITORS, WITH_EPISODES, Scene
from traceanalyzer.replay.graph import Graph, build_graph
from traceanalyzer.replay.replayed import Edit, HostModel, replay, timeline, together
from traceanalyzer.replay.timed import IN_MAIN_PROCESS, Price, input_price
from traceanalyzer.results.analysis import PlanStep
from traceanalyzer.results.finding import Saving
from traceanalyzer.results.vocabulary import PHASES, Basis

# assumed cost to the host of recording one operator or call, where the recorder timed no unprofiled step: the middle of
# what such records cost; savings are stated with this and without it
EVENT_NS = 1_000
# consecutive steps are alike: this many count as one
STEPS_PER_SAMPLE = 3
# a fix that shortens the replayed step by less ends the plan
PLAN_SHARE = 0.01
PLAN_NS = 100_000
# from this share of the step on, the device's own work is the limit
BUSY_LIMIT_SHARE = 0.9


class Replayer:
    """Replays one rank, without the profiler's cost where the recorder measured it.

    Args:
        measures: One rank.
        graph: Its graph.
        firing: Codes of the findings that fire.
    """

    def __init__(self, measures: Measures, graph: Graph, firing: frozenset[str]) -> None:
        self._measures = measures
        self._graph = graph
        self._scene = Scene(measures, graph, firing)
        self._models = _models(measures, graph)
        self._edits: dict[str, Edit] = {}
        priced = {code: input_price(measures, code) for code in firing}
        self._by_timers: dict[str, Price] = {code: found for code, found in priced.items() if found is not None}
        self._bases: list[IntArray] = [np.diff(replay(graph, None, model)) for model in self._models]

    def edit(self, code: str) -> Edit:
        """Return what a cause's fix changes; an empty edit where the recording does not hold it."""
        if code not in self._edits:
            self._edits[code] = EDITORS[code](self._scene)
        return self._edits[code]

    def price(self, code: str) -> Price | None:
        """Replay one cause away.

        Returns:
            The price; None where no editor exists or the recording does not show what to remove.
        """
        if code in self._by_timers:
            return self._by_timers[code]
        judged = judged_steps(self._measures, with_episodes=code in WITH_EPISODES)
        if code not in EDITORS or judged is None or (edit := self.edit(code)).is_empty:
            return None
        means: list[float] = []
        spread = rest = step_ns = 0.0
        for number, (model, base) in enumerate(zip(self._models, self._bases, strict=True)):
            after = np.diff(replay(self._graph, edit, model))
            saved = (base - after)[judged.is_judged]
            mean = float(base[judged.is_judged].mean())
            means.append(min(float(saved.mean()), max(mean - edit.floor_ns, 0.0)))
            if number == 0:
                samples = max(len(saved) / STEPS_PER_SAMPLE, 1.0)
                spread = 2 * float(saved.std()) / samples**0.5
                rest, step_ns = mean - means[0], mean
        low = min(means) - spread - edit.contention_share * rest
        high = None if edit.has_hidden_cost else round(max(means) + spread)
        return Price(
            Saving(low=round(low), likely=round(means[0]), high=high, basis=Basis.REPLAY), edit.left, round(step_ns)
        )

    def plan(self, codes: Sequence[str]) -> list[PlanStep]:
        """Find the best order of fixes.

        Args:
            codes: Causes that may be fixed.

        Returns:
            The step as it is (no fixes), then one entry per fix added; empty where no fix helps.
        """
        judged = judged_steps(self._measures)
        usable = [
            code
            for code in dict.fromkeys(codes)
            if code in EDITORS and (code in self._by_timers or not self.edit(code).is_empty)
        ]
        if judged is None or not usable:
            return []
        step, _ = self._joint([], judged.is_judged)
        steps = [PlanStep(fixes=[], step_ns=step, limit=self._limit([], step, 0))]
        chosen: list[str] = []
        while usable:
            tried = [(*self._joint([*chosen, code], judged.is_judged), code) for code in usable]
            best, floor, code = min(tried)
            if steps[-1].step_ns - best < max(PLAN_NS, PLAN_SHARE * steps[0].step_ns):
                break
            usable.remove(code)
            chosen.append(code)
            steps.append(PlanStep(fixes=list(chosen), step_ns=best, limit=self._limit(chosen, best, floor)))
        return steps if chosen else []

    def _joint(self, codes: Sequence[str], is_judged: BoolArray) -> tuple[int, int]:
        """Mean step with some causes fixed, and the floor the input sets; in ns."""
        floor_ns = together([self.edit(code) for code in codes]).floor_ns
        if not self._by_timers:
            return round(max(self._mean(codes, is_judged), floor_ns)), floor_ns
        # the recorded steps' wait is an accident: the timers say what the step is with it and without it
        code, price = next(iter(sorted(self._by_timers.items())))
        won = self._mean([code], is_judged) - self._mean(list({*codes, code}), is_judged)
        if code in codes:
            return round(max(price.step_ns - (price.saving.likely or 0) - won, floor_ns)), floor_ns
        # the workers make a batch no sooner because the rest of the step is shorter
        return round(price.step_ns - (won if code == IN_MAIN_PROCESS else 0.0)), floor_ns

    def _mean(self, codes: Sequence[str], is_judged: BoolArray) -> float:
        edit = together([self.edit(code) for code in codes])
        return float(np.diff(replay(self._graph, edit, self._models[0]))[is_judged].mean())

    def _limit(self, codes: Sequence[str], step_ns: int, floor_ns: int) -> str:
        """What stops the step from getting shorter: the device, the input's supply, or the host."""
        if floor_ns and step_ns <= floor_ns:
            return "input_supply"
        edit = together([self.edit(code) for code in codes])
        ts, _, start, end = timeline(self._graph, edit, self._models[0])
        borders = ts[self._graph.marks]
        ran = (start >= borders[0]) & (start < borders[-1])
        busy = length(union(start[ran], end[ran]))
        return "gpu_busy" if busy >= BUSY_LIMIT_SHARE * (borders[-1] - borders[0]) else "host"


def replayer(measures: Measures, firing: frozenset[str]) -> Replayer | None:
    """Prepare to replay a rank; None where nothing that fires has an editor, or the recording has no launches.

    Args:
        measures: One rank.
        firing: Codes of the findings that fire.
    """
    if not firing & EDITORS.keys() or judged_steps(measures) is None:
        return None
    graph = build_graph(measures)
    return Replayer(measures, graph, firing) if graph is not None else None


def _models(measures: Measures, graph: Graph) -> list[HostModel]:
    """How host time may have been without the profiler, the best model first."""
    report = measures.observer.report
    judged = judged_steps(measures)
    assumed = np.array([EVENT_NS], dtype=np.int64)
    if report.inflation is None or report.inflation <= 1 or judged is None:
        known = report.inflation is not None
        return [HostModel()] if known else [HostModel(), HostModel(event_ns=assumed)]
    target = judged.mean_step_ns / report.inflation
    models = []
    by_phase: Mapping[str, float] = report.inflation_by_phase
    if by_phase:
        owner = np.flatnonzero(graph.thread_of >= 0)[graph.nodes[:, 2]].astype(np.int32)
        phase = measures.host.phase_at(owner, graph.nodes[:, 0])
        costs, factors = _per_event(measures, graph, phase, judged)
        models.append(_fitted(graph, factors, costs, target, judged.is_judged))
        # nodes inside no timed phase shrink like the whole step
        table = np.array([1 / min(max(by_phase.get(p.value, report.inflation), 0.5), 10.0) for p in PHASES])
        models.append(_fitted(graph, table[phase], np.zeros(1, dtype=np.int64), target, judged.is_judged))
    models.append(_fitted(graph, np.ones(1), np.zeros(1, dtype=np.int64), target, judged.is_judged))
    models.append(_fitted(graph, np.ones(1), assumed, target, judged.is_judged))
    return models


def _per_event(
    measures: Measures, graph: Graph, phase: npt.NDArray[np.int8], judged: JudgedSteps
) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Cost of a recorded event by the timers of each phase, per node, ns; and how phases that got no longer shrink.

    The profiler does a fixed amount of work per event. Time in which nothing is recorded (a stack being captured, a
    file being written) is as long without it, which a factor per phase would get wrong.
    """
    recorded = measures.recorded_phase_ns
    plain = measures.unprofiled.phase_ns if measures.unprofiled is not None else {}
    window = np.searchsorted(graph.marks, np.arange(len(graph.nodes)), side="right") - 1
    counted = np.append(judged.is_judged, False)[window]
    events = np.bincount(phase[counted], weights=graph.nodes[counted, 8] + 1, minlength=len(PHASES)) / judged.count
    cost, factor = np.zeros(len(PHASES), dtype=np.int64), np.ones(len(PHASES))
    added = within = 0.0
    for code, one in enumerate(PHASES):
        before, after = plain.get(one.value), recorded.get(one.value)
        if before and after and events[code] > 0:
            if after > before:
                cost[code] = round((after - before) / events[code])
                added, within = added + after - before, within + float(events[code])
            else:
                factor[code] = max(before / after, 0.5)
    timed = np.array([p.value in plain and p.value in recorded for p in PHASES])
    cost[~timed] = round(added / within) if within else 0
    return cost[phase], factor[phase]


def _fitted(
    graph: Graph, factor: npt.NDArray[np.float64], event_ns: IntArray, target_ns: float, is_judged: BoolArray
) -> HostModel:
    """Scale host time so that the replayed step is as long as the unprofiled one."""
    low, high = 0.05, 3.0
    for _ in range(12):
        middle = (low * high) ** 0.5
        mean = np.diff(replay(graph, None, HostModel(factor * middle, event_ns)))[is_judged].mean()
        low, high = (low, middle) if mean > target_ns else (middle, high)
    return HostModel(factor * (low * high) ** 0.5, event_ns)
