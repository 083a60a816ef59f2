"""Trials on a loop whose costs are known: a clock that counts what steps and changes cost."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.recording.training_state import TrainingState
from traceanalyzer.recording.trial_changes import GENERAL
from traceanalyzer.recording.trial_plan import BASELINE, TrialPlan, block_order, whole_cycles
from traceanalyzer.recording.trial_statistics import paired_difference
from traceanalyzer.recording.trials import Change, Seen, TrialLoop, TrialRun, plan_of

pytestmark = pytest.mark.torch


class Machine:
    """A loop on a clock of its own: a step costs 100 µs and drifts up by 1 µs each time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.cost_ns = 100_000
        self.steps = 0
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.loop = TrialLoop(self.step, lambda: torch.ones(1, 2), self.model, self.optimizer)

    def step(self, batch: Any) -> None:
        """Train one step."""
        self.optimizer.zero_grad()
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.now_ns += self.cost_ns + 1000 * self.steps
        self.steps += 1

    def saving(self, name: str, saved_ns: int, **more: Any) -> Change:
        """Return a change that makes a step cheaper."""

        @contextmanager
        def apply(_: TrialLoop) -> Iterator[None]:
            self.cost_ns -= saved_ns
            try:
                yield
            finally:
                self.cost_ns += saved_ns

        return Change(name, f"{name}.", lambda *_: None, apply, **more)

    def run(self, *changes: Change, plan: TrialPlan | None = None, run_so_far_ns: int = 10**9, **more: Any) -> TrialRun:
        """Return the trials of these changes."""

        def spy(_: Seen) -> AbstractContextManager[None]:
            return nullcontext()

        plan = plan or TrialPlan(seconds=0.05)
        state = TrainingState(self.model, self.optimizer)
        return TrialRun(
            self.loop, changes, plan, state, spy=spy, run_so_far_ns=run_so_far_ns, now=lambda: self.now_ns, **more
        )


def test_a_saving_is_found_through_drift_with_an_interval_around_it() -> None:
    machine = Machine()
    (found,) = machine.run(machine.saving("a", 30_000)).run()
    assert found["status"] == "measured"
    assert found["reason"] is None
    assert found["difference_ns"]["low"] <= 30_000 <= found["difference_ns"]["high"]
    assert abs(found["difference_ns"]["likely"] - 30_000) < 10_000
    assert found["baseline_step_ns"] - found["changed_step_ns"] == found["difference_ns"]["likely"]
    assert found["blocks"] >= 4


def test_a_change_that_costs_time_has_a_negative_difference() -> None:
    machine = Machine()
    (found,) = machine.run(machine.saving("a", -40_000)).run()
    assert found["difference_ns"]["high"] < 0


def test_weights_optimizer_and_random_numbers_are_as_before() -> None:
    machine = Machine()
    machine.step(torch.ones(1, 2))
    weights = {name: value.clone() for name, value in machine.model.state_dict().items()}
    slots = [value["momentum_buffer"].clone() for value in machine.optimizer.state.values()]
    gradients = [value.grad.clone() for value in machine.model.parameters()]
    torch.manual_seed(3)
    expected = torch.rand(1, generator=torch.Generator().manual_seed(3))
    machine.run(machine.saving("a", 10)).run()
    assert all(torch.equal(value, weights[name]) for name, value in machine.model.state_dict().items())
    after = [value["momentum_buffer"] for value in machine.optimizer.state.values()]
    assert all(torch.equal(left, right) for left, right in zip(after, slots, strict=True))
    now = [value.grad for value in machine.model.parameters()]
    assert all(torch.equal(left, right) for left, right in zip(now, gradients, strict=True))
    assert torch.equal(torch.rand(1), expected)


def test_a_change_that_breaks_is_reported_and_undone_and_the_others_go_on() -> None:
    machine = Machine()
    calls = []

    @contextmanager
    def breaks(loop: TrialLoop) -> Iterator[None]:
        step = loop.step
        calls.append(1)

        def bad(batch: Any) -> None:
            with torch.no_grad():
                machine.model.weight.fill_(float("nan"))
            raise RuntimeError("does not work in /a/folder/here")

        loop.step = bad
        try:
            yield
        finally:
            loop.step = step

    bad = Change("bad", "bad.", lambda *_: None, breaks)
    first, second = machine.run(bad, machine.saving("good", 20_000)).run()
    assert (first["status"], first["reason"]) == ("failed", "RuntimeError: does not work in here")
    assert first["difference_ns"] is None
    assert second["status"] == "measured"
    assert len(calls) == 1
    assert torch.isfinite(machine.model.weight).all()


def test_a_defect_of_the_recorder_is_not_taken_for_a_failed_trial() -> None:
    machine = Machine()

    @contextmanager
    def interrupted(_: TrialLoop) -> Iterator[None]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        machine.run(Change("a", "a.", lambda *_: None, interrupted)).run()


def test_what_does_not_apply_says_why() -> None:
    machine = Machine()
    never = Change("a", "a.", lambda *_: "there is none", lambda _: nullcontext())
    slow = machine.saving("slow", 1, on_request=True)
    plan = TrialPlan(names=("a", "slow"), seconds=0.01)
    found = machine.run(never, machine.saving("b", 1), slow, plan=plan).run()
    assert [(entry["status"], entry["reason"]) for entry in found] == [
        ("not_applicable", "there is none"), ("not_applicable", "not asked for"), ("measured", None),
    ]  # fmt: skip
    (unasked,) = machine.run(slow).run()
    assert (unasked["status"], unasked["reason"]) == (
        "not_applicable", "takes long to set up; --trial slow tries it",
    )  # fmt: skip


def test_without_being_asked_trials_take_at_most_a_fifth_of_the_run() -> None:
    machine = Machine()
    changes = [machine.saving(f"change{number}", 10) for number in range(5)]
    # A round of k changes is (k + 2) blocks of five steps, and five rounds are counted: 7.5 ms for the first one.
    run = machine.run(*changes, plan=TrialPlan(), run_so_far_ns=5 * 7_400_000, typical_step_ns=100_000)
    assert run.run() == []
    assert run.note is not None
    assert "more than a fifth of the run" in run.note
    assert machine.steps == 0
    some = machine.run(*changes, plan=TrialPlan(), run_so_far_ns=5 * 13_000_000, typical_step_ns=100_000).run()
    assert [entry["status"] for entry in some].count("measured") in (1, 2)
    assert {entry["reason"] for entry in some if entry["status"] != "measured"} == {
        "beyond a fifth of the run; --trials runs it all the same"
    }


def test_two_batches_in_a_step_count_half_a_step() -> None:
    machine = Machine()
    (found,) = machine.run(machine.saving("larger_batch", 0, batches_per_step=2)).run()
    assert found["changed_step_ns"] == pytest.approx(found["baseline_step_ns"] / 2, rel=0.1)


def test_a_loader_that_cannot_follow_limits_the_saving() -> None:
    machine = Machine()
    (found,) = machine.run(machine.saving("a", 90_000), supply_ns=lambda: 10**9).run()
    assert found["difference_ns"] == {"low": 0, "likely": 0, "high": 0}
    assert found["reason"] == "the loader supplies a batch every 1000.0 ms at best, which limits the saving"


def test_a_change_set_up_once_alternates_with_the_baseline() -> None:
    machine = Machine()
    set_up = []

    @contextmanager
    def prepare(loop: TrialLoop) -> Iterator[None]:
        set_up.append(1)
        step = loop.step

        def faster(batch: Any) -> None:
            step(batch)
            machine.now_ns -= 50_000

        loop.step = faster
        try:
            yield
        finally:
            loop.step = step

    (found,) = machine.run(Change("a", "a.", lambda *_: None, prepare, apart=True)).run()
    assert len(set_up) == 1
    assert found["difference_ns"]["low"] <= 50_000 <= found["difference_ns"]["high"]


@pytest.mark.parametrize("change", GENERAL, ids=lambda change: change.name)
def test_every_change_leaves_the_process_as_it_was(change: Change) -> None:
    machine = Machine()
    machine.step(torch.ones(1, 2))
    machine.loop.model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    threshold, item, empty_cache = gc.isenabled(), torch.Tensor.item, torch.cuda.empty_cache
    patches = list(machine.loop.callback_patches)
    step, fetch = machine.loop.step, machine.loop.fetch
    torch.autograd.set_detect_anomaly(change.name == "anomaly_off")
    try:
        with change.apply(machine.loop):
            assert torch.is_anomaly_enabled() is False
    finally:
        was = torch.is_anomaly_enabled()
        torch.autograd.set_detect_anomaly(False)
    assert was == (change.name == "anomaly_off")
    assert (gc.isenabled(), torch.Tensor.item, torch.cuda.empty_cache) == (threshold, item, empty_cache)
    assert "to" not in vars(torch.Tensor)
    assert machine.loop.callback_patches == patches
    assert machine.loop.callbacks_enabled
    assert (machine.loop.step, machine.loop.fetch) == (step, fetch)


# -- the plan and the statistics -----------------------------------------------------------------------------------


def test_a_round_holds_each_change_once_and_the_baseline_twice_in_an_order_of_its_own() -> None:
    names = [f"c{number}" for number in range(6)]
    rounds = [block_order(names, seed=1, index=index) for index in range(10)]
    assert all(sorted(blocks) == sorted([BASELINE, BASELINE, *names]) for blocks in rounds)
    assert len({tuple(blocks) for blocks in rounds}) == 10
    assert rounds[3] == block_order(names, seed=1, index=3)
    assert rounds[3] != block_order(names, seed=2, index=3)


@given(st.integers(1, 50), st.integers(1, 16))
def test_blocks_hold_whole_optimizer_steps(steps: int, accumulate: int) -> None:
    found = whole_cycles(steps, accumulate)
    assert found % accumulate == 0
    assert steps <= found < steps + accumulate


@pytest.mark.parametrize(
    ("trials", "seconds", "names", "expected"),
    [
        (False, None, (), None),
        (None, None, (), TrialPlan()),
        (True, None, (), TrialPlan(seconds=30.0)),
        (None, 5.0, (), TrialPlan(seconds=5.0)),
        (None, None, ("tf32",), TrialPlan(names=("tf32",), seconds=30.0)),
    ],
)
def test_options_make_a_plan(
    trials: bool | None, seconds: float | None, names: tuple[str, ...], expected: TrialPlan | None
) -> None:
    assert plan_of(trials, seconds, names, 0) == expected


def coverage(rounds: int, draw: Callable[[np.random.Generator, int], np.ndarray[Any, Any]]) -> float:
    """Return how often the interval of simulated rounds with a true difference of 5 ms holds it."""
    generator = np.random.default_rng(11)
    held = 0
    for seed in range(300):
        values = [float(value) for value in 5e6 + draw(generator, rounds)]
        found = paired_difference(values, seed=seed)
        held += found.low <= 5_000_000 <= found.high
    return held / 300


@pytest.mark.parametrize("rounds", [4, 6, 12])
def test_the_interval_holds_the_true_difference_as_often_as_it_says(rounds: int) -> None:
    # 300 simulations of a 95 % interval: below 0.92 it would be too narrow (three standard errors are 0.04).
    assert coverage(rounds, lambda generator, count: generator.normal(0, 1e6, count)) >= 0.92


def test_one_hiccup_does_not_move_the_estimate() -> None:
    values = [1.0e6, 1.1e6, 0.9e6, 1.0e6, 1.05e6, 0.95e6, 1.0e6, 60e6]
    assert paired_difference(values, seed=0).likely == pytest.approx(1e6, rel=0.05)
    assert paired_difference(values, seed=0, trim=False).likely == pytest.approx(statistics.mean(values), abs=1)


def test_equal_rounds_have_an_interval_of_no_width() -> None:
    found = paired_difference([7.0, 7.0, 7.0], seed=0)
    assert (found.low, found.likely, found.high, found.smallest_effect) == (7, 7, 7, 0)


def test_one_round_is_not_enough() -> None:
    with pytest.raises(ValueError, match="two rounds"):
        paired_difference([1.0], seed=0)
