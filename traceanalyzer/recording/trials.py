"""Trials: what a change is worth, measured in the training process itself.

Short blocks of unprofiled steps with and without one change follow each other in random order, every block from the
same training state, so that neither the machine's drift nor the training's progress can pass for an effect. When they
are over, the state is what it was: weights, gradients, optimizer, averages, random generators, and the batches the
trials took are served again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from traceanalyzer.recording.loader_tap import OutOfBatches
from traceanalyzer.recording.run_folder import describe_error
from traceanalyzer.recording.training_state import TrainingState
from traceanalyzer.recording.trial_plan import (
    BASELINE,
    DEFAULT_SECONDS,
    MAX_ROUNDS,
    MAX_SHARE,
    MIN_ROUNDS,
    SETTLE_STEPS,
    TrialPlan,
    block_order,
    estimated_ns,
    whole_cycles,
)
from traceanalyzer.recording.trial_statistics import paired_difference

# What changing a stranger's training may raise; anything else is a defect of the recorder and must show.
FAILURES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


@dataclass
class TrialLoop:
    """A training loop whose steps can be run one at a time.

    Attributes:
        step: Runs one training step on a batch.
        fetch: Returns the next batch.
        model: The module trained.
        optimizer: Its optimizer.
        device: ``cuda`` or ``cpu``.
        accumulate: Steps per optimizer step.
        drain: Takes out of the loader's queue what gathered there while it was not asked; called after each block.
        ready: Batches that wait in the loader's queue.
        subject: What changes of one kind of loop need (an Ultralytics trainer).
        callback_patches: Context managers that must be active while callbacks run.
        callbacks_enabled: Whether the step runs its callbacks.
    """

    step: Callable[[Any], None]
    fetch: Callable[[], Any]
    model: Any
    optimizer: Any
    device: str = "cpu"
    accumulate: int = 1
    drain: Callable[[int], None] = lambda _: None
    ready: Callable[[], int] = lambda: 0
    subject: Any = None
    callback_patches: list[Callable[[], AbstractContextManager[None]]] = field(default_factory=list)
    callbacks_enabled: bool = True

    @property
    def on_cuda(self) -> bool:
        """Whether the steps run on a CUDA device."""
        return self.device.startswith("cuda")

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.on_cuda:
            import torch

            torch.cuda.synchronize()


@dataclass
class Seen:
    """What unchanged steps were seen to do: how often, by name."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        """Count one occurrence."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass(frozen=True)
class Change:
    """One thing changed in a trial.

    Attributes:
        name: Name in ``run.json``.
        about: One sentence.
        obstacle: Says why it cannot be tried here, or None.
        apply: Makes the change for the time of a block, and takes it back.
        batches_per_step: How many of the loop's batches one step works on; its time is divided by that.
        trim: See ``paired_difference``.
        apart: Set up once, after all others: it takes long, or a failure may take the device along.
        on_request: Tried only when its name is given.
    """

    name: str
    about: str
    obstacle: Callable[[TrialLoop, Seen], str | None]
    apply: Callable[[TrialLoop], AbstractContextManager[None]]
    batches_per_step: int = 1
    trim: bool = True
    apart: bool = False
    on_request: bool = False


class TrialRun:
    """Runs trials on a loop.

    Args:
        loop: The loop, standing between two steps.
        changes: What to try.
        plan: How.
        state: The training's state, to be restored before every block and at the end.
        spy: Returns a context manager that fills a ``Seen``.
        run_so_far_ns: Length of the run until now; without ``plan.seconds`` trials may take a fifth of it.
        typical_step_ns: A step as measured so far; 0 where unknown.
        supply_ns: Returns the time the loader needs for a batch however fast the step is (0 where unknown).
        now: Clock in nanoseconds.
    """

    def __init__(
        self,
        loop: TrialLoop,
        changes: Sequence[Change],
        plan: TrialPlan,
        state: TrainingState,
        *,
        spy: Callable[[Seen], AbstractContextManager[None]],
        run_so_far_ns: int,
        typical_step_ns: int = 0,
        supply_ns: Callable[[], int] = lambda: 0,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._loop = loop
        self._changes = {change.name: change for change in changes}
        self._plan = plan
        self._typical_step_ns = typical_step_ns
        self._state = state
        self._spy = spy
        self._now = now
        self._supply_ns = supply_ns
        self._steps = whole_cycles(plan.steps_per_block, loop.accumulate)
        self._settle = whole_cycles(SETTLE_STEPS, loop.accumulate)
        self._limit_ns = round(plan.seconds * 1e9) if plan.seconds is not None else round(MAX_SHARE * run_so_far_ns)
        self._outcome: dict[str, tuple[str, str | None]] = {}
        self._rounds: dict[str, list[tuple[float, float]]] = {}
        self._supply = 0
        self.note: str | None = None

    def run(self) -> list[dict[str, Any]]:
        """Run the trials and return their results as ``run.json`` holds them; the state is restored whatever happens.

        Returns:
            One entry per change, in their order. Empty, with ``note`` set, where they would take too long.
        """
        begin = self._now()
        try:
            if self._plan.seconds is None and not self._affordable(["any"], self._typical_step_ns):
                return []
            applicable, step_ns = self._look()
            if self._plan.seconds is None:
                applicable = self._affordable(applicable, step_ns)
                if not applicable:
                    return []
            together = [name for name in applicable if not self._changes[name].apart]
            together = [name for name in together if self._warm_up(name)]
            self._alternate(together, begin)
            for name in applicable:
                if self._changes[name].apart:
                    self._run_apart(name, begin)
        except OutOfBatches as problem:
            self.note = f"trials ended early: {problem}"
        finally:
            self._supply = self._supply_ns()
            self._state.restore()
        return [self._result(change) for change in self._changes.values()]

    def _affordable(self, names: list[str], step_ns: int) -> list[str]:
        """Return the first changes that a fifth of the run has room for."""

        def needed(count: int) -> int:
            # one more round, in which every change warms up
            return estimated_ns(count, MIN_ROUNDS + 1, self._steps, step_ns)

        kept = [name for index, name in enumerate(names) if needed(index + 1) <= self._limit_ns]
        if not kept:
            self.note = (
                f"no trials: one of them would take about {needed(1) / 1e9:.1f} s, more than a fifth of the run; "
                "--trials runs them all the same"
            )
        for name in names[len(kept) :]:
            self._outcome[name] = ("not_applicable", "beyond a fifth of the run; --trials runs it all the same")
        return kept

    # -- blocks --------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[list[str], int]:
        """Run unchanged steps, see what they do, and say which changes apply."""
        seen = Seen()
        self._block(self._loop, BASELINE)
        self._state.restore(randomness=False)
        with self._spy(seen):
            for _ in range(self._loop.accumulate):
                self._loop.step(self._loop.fetch())
        step_ns = round(self._block(self._loop, BASELINE))
        applicable = []
        for name, change in self._changes.items():
            if self._plan.names and name not in self._plan.names:
                self._outcome[name] = ("not_applicable", "not asked for")
                continue
            if change.on_request and name not in self._plan.names:
                self._outcome[name] = ("not_applicable", f"takes long to set up; --trial {name} tries it")
                continue
            reason = change.obstacle(self._loop, seen)
            if reason is None:
                applicable.append(name)
            else:
                self._outcome[name] = ("not_applicable", reason)
        return applicable, step_ns

    def _block(self, loop: TrialLoop, name: str) -> float:
        """Run one block from the kept state and return the time of a step, per batch of the loop, in ns."""
        self._state.restore(randomness=False)
        if name == BASELINE:
            return self._time(loop)
        change = self._changes[name]
        with change.apply(loop):
            return self._time(loop) / change.batches_per_step

    def _time(self, loop: TrialLoop) -> float:
        waiting = loop.ready()
        for _ in range(self._settle):
            loop.step(loop.fetch())
        loop.synchronise()
        begin = self._now()
        for _ in range(self._steps):
            loop.step(loop.fetch())
        loop.synchronise()
        spent = self._now() - begin
        # A block that is faster than the loader, or does not ask it, would leave the next one a fuller queue.
        loop.drain(waiting)
        return spent / self._steps

    def _warm_up(self, name: str) -> bool:
        """Run a change once unmeasured, which fills its caches and shows whether it works."""
        try:
            self._block(self._loop, name)
        except FAILURES as problem:
            self._fail(name, problem)
            return False
        return True

    def _fail(self, name: str, problem: BaseException) -> None:
        self._outcome[name] = ("failed", describe_error(problem))
        self._state.restore(randomness=False)
        if self._loop.on_cuda:
            import torch

            torch.cuda.empty_cache()  # it may have failed for want of memory

    def _alternate(self, names: list[str], begin: int) -> None:
        """Run rounds of blocks in random order until the time is up."""
        alive = list(names)
        longest = 0
        for index in range(MAX_ROUNDS):
            if not alive:
                return
            start = self._now()
            if index >= MIN_ROUNDS and start - begin + longest > self._limit_ns:
                return
            self._round(alive, index)
            longest = max(longest, self._now() - start)

    def _round(self, alive: list[str], index: int) -> None:
        baseline: list[float] = []
        changed: dict[str, float] = {}
        for name in block_order(alive, seed=self._plan.seed, index=index):
            if name == BASELINE:
                baseline.append(self._block(self._loop, name))
                continue
            try:
                changed[name] = self._block(self._loop, name)
            except FAILURES as problem:
                self._fail(name, problem)
                alive.remove(name)
        mean = sum(baseline) / len(baseline)
        for name, step in changed.items():
            self._rounds.setdefault(name, []).append((mean, step))

    def _run_apart(self, name: str, begin: int) -> None:
        """Prepare one change, then alternate it with the baseline."""
        if self._now() - begin > 2 * self._limit_ns:
            self._outcome[name] = ("not_applicable", "the other trials took all the time there was")
            return
        change = self._changes[name]
        try:
            with ExitStack() as stack:
                self._state.restore(randomness=False)
                prepared = stack.enter_context(prepared_once(change, self._loop))
                for index in range(MIN_ROUNDS + 2):
                    steps: dict[str, list[float]] = {}
                    for block in block_order([name], seed=self._plan.seed, index=index):
                        self._state.restore(randomness=False)
                        with prepared(block == name):
                            steps.setdefault(block, []).append(self._time(self._loop))
                    pair = (sum(steps[BASELINE]) / len(steps[BASELINE]), steps[name][0] / change.batches_per_step)
                    if index:  # the first round only warms up
                        self._rounds.setdefault(name, []).append(pair)
        except FAILURES as problem:
            self._rounds.pop(name, None)
            self._fail(name, problem)

    # -- results -------------------------------------------------------------------------------------------------

    def _result(self, change: Change) -> dict[str, Any]:
        rounds = self._rounds.get(change.name, [])
        status, reason = self._outcome.get(change.name, ("measured", None))
        if status == "measured" and len(rounds) < 2:
            status, reason = "failed", "fewer than two rounds were run"
        entry: dict[str, Any] = {
            "name": change.name,
            "changes": change.about,
            "status": status,
            "reason": reason,
            "blocks": len(rounds) if status == "measured" else 0,
            "steps_per_block": self._steps,
            "seed": self._plan.seed,
            "baseline_step_ns": None,
            "changed_step_ns": None,
            "difference_ns": None,
            "smallest_effect_ns": None,
        }
        if status != "measured":
            return entry
        # The queue hides a slow loader for the few steps of a block, so what it can supply is the floor.
        floor = 0 if change.name == "reused_batch" else self._supply
        baseline = sum(before for before, _ in rounds) / len(rounds)
        changed = sum(after for _, after in rounds) / len(rounds)
        differences = [before - max(after, min(before, floor)) for before, after in rounds]
        if floor > changed and baseline > changed:
            entry["reason"] = f"the loader supplies a batch every {floor / 1e6:.1f} ms at best, which limits the saving"
        found = paired_difference(differences, seed=self._plan.seed, trim=change.trim)
        entry["baseline_step_ns"] = round(baseline)
        entry["changed_step_ns"] = round(baseline) - found.likely
        entry["difference_ns"] = {"low": found.low, "likely": found.likely, "high": found.high}
        entry["smallest_effect_ns"] = found.smallest_effect
        return entry


@contextmanager
def prepared_once(change: Change, loop: TrialLoop) -> Iterator[Callable[[bool], AbstractContextManager[None]]]:
    """Set a costly change up once and let it be switched on and off.

    The change replaces ``loop.step``; what it put there is kept, and blocks choose between it and the original.

    Args:
        change: The change.
        loop: The loop.

    Yields:
        A function that returns a context manager for a block, with the change (True) or without.
    """
    original = loop.step
    with change.apply(loop):
        replaced = loop.step

        @contextmanager
        def block(is_changed: bool) -> Iterator[None]:
            loop.step = replaced if is_changed else original
            try:
                yield
            finally:
                loop.step = replaced

        yield block


def plan_of(trials: bool | None, seconds: float | None, names: tuple[str, ...], seed: int) -> TrialPlan | None:
    """Return the plan a user's options ask for; None for no trials.

    Args:
        trials: True for trials whatever they cost, False for none, None where they cost little.
        seconds: Time they may take.
        names: Which to run; empty for all.
        seed: Seed.
    """
    if trials is False:
        return None
    asked = trials or seconds is not None or bool(names)
    return TrialPlan(names=names, seconds=(seconds or DEFAULT_SECONDS) if asked else None, seed=seed)
