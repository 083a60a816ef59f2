"""How often the release gate raises a false alarm, and what it finds: resampled pairs of one long recording.

    python -m tests.benchmarks.gate_study RECORDING [--pairs 300]

RECORDING is a recording (or an Analysis in JSON) of several hundred steady steps. Every pair takes two disjoint,
equally long stretches of consecutive steps, so the drift and the autocorrelation of the real run stay in. For power
the same pairs are used with a known change put into the candidate. Stretches are chosen with a fixed seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats

from traceanalyzer.comparison.compare import compare_runs
from traceanalyzer.comparison.samples import Run, load_run, select_steps
from traceanalyzer.pipeline import analyze
from traceanalyzer.results.comparison import Comparison, Family, Verdict

Change = Callable[[Run], Run]


def stretch_kernels(factor: float) -> Change:
    """Make every kernel longer."""

    def apply(run: Run) -> Run:
        families = {k: v * factor for k, v in run.kernel_family_ns.items()}
        return replace(run, kernel_ns=run.kernel_ns * factor, kernel_family_ns=families)

    return apply


def add_gap(position: int, extra_ns: float) -> Change:
    """Make the host later before one launch of every step, by the same time; the device waits for it."""

    def apply(run: Run) -> Run:
        interval = run.interval_ns.copy()
        interval[:, position] += extra_ns
        return replace(
            run,
            interval_ns=interval,
            in_step_idle_ns=run.in_step_idle_ns + extra_ns,
            step_ns=run.step_ns + extra_ns,
        )

    return apply


def add_copy(run: Run) -> Run:
    """Issue one more H2D copy per step."""
    return replace(run, counters={**run.counters, "h2d": run.counters["h2d"] + 1})


def add_item(run: Run) -> Run:
    """Read one more scalar back per step: a D2H copy and a synchronising call."""
    more = {name: run.counters[name] + 1 for name in ("d2h", "synchronisations")}
    return replace(run, counters={**run.counters, **more})


def slow_host(factor: float) -> Change:
    """Stretch all host time, launch calls too: a slower machine, not a regression."""

    def apply(run: Run) -> Run:
        extra = run.in_step_idle_ns * (factor**1.5 - 1)
        return replace(
            run,
            interval_ns=run.interval_ns * factor,
            launch_call_ns=run.launch_call_ns * factor,
            in_step_idle_ns=run.in_step_idle_ns + extra,
            step_ns=run.step_ns + extra,
        )

    return apply


def pairs(run: Run, length: int, count: int, seed: int) -> list[tuple[Run, Run]]:
    """Choose disjoint stretches of consecutive steps.

    Args:
        run: The long run.
        length: Steps a side.
        count: Number of pairs.
        seed: Seed of the choice.
    """
    random = np.random.default_rng(seed)
    chosen = []
    while len(chosen) < count:
        first, second = random.integers(0, run.steps - length + 1, 2)
        if abs(int(first) - int(second)) >= length:
            chosen.append(
                (
                    select_steps(run, np.arange(first, first + length)),
                    select_steps(run, np.arange(second, second + length)),
                )
            )
    return chosen


def upper_bound(hits: int, trials: int) -> float:
    """Upper 95 % bound (Clopper–Pearson, one-sided) of a share."""
    return 1.0 if hits == trials else float(stats.beta.ppf(0.95, hits + 1, trials - hits))


def found(comparison: Comparison, family: Family, text: str = "") -> bool:
    """Say whether a regression of one family (and name) was raised."""
    return any(t.family is family and text in t.name for t in comparison.regressions)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recording")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    run = load_run(analyze(arguments.recording), arguments.recording)
    quiet = int(np.nanargmin(np.nanstd(run.interval_ns, axis=0)))
    middle = run.interval_ns.shape[1] // 2
    changes: list[tuple[str, Change, Callable[[Comparison], bool]]] = [
        ("kernels +5 %", stretch_kernels(1.05), lambda c: found(c, Family.PRIMARY, "kernel_time")),
        ("+50 µs, quietest gap", add_gap(quiet, 5e4), lambda c: found(c, Family.POSITION, f"launch {quiet + 1} of")),
        ("+50 µs, middle gap", add_gap(middle, 5e4), lambda c: found(c, Family.POSITION, f"launch {middle + 1} of")),
        ("one more H2D copy", add_copy, lambda c: found(c, Family.COUNTER, "h2d")),
        ("one more .item()", add_item, lambda c: found(c, Family.COUNTER, "d2h")),
        ("host 5 % slower", slow_host(1.05), lambda c: c.verdict is Verdict.REGRESSION),
    ]
    lengths = [n for n in (10, 20, 50, 100, 145) if 2 * n <= run.steps]
    print(f"{run.steps} steady steps; {arguments.pairs} pairs per cell; one run a side")
    print("| change | " + " | ".join(f"n = {n}" for n in lengths) + " |")
    print("| --- |" + " ---: |" * len(lengths))
    cells, alarms = [], {}
    for length in lengths:
        chosen = pairs(run, length, arguments.pairs, arguments.seed + length)
        results = [compare_runs([a], [b]) for a, b in chosen]
        hits = sum(c.verdict is Verdict.REGRESSION for c in results)
        for c in results:
            for test in c.regressions:
                alarms[(length, test.family.value, test.name[:60])] = (
                    alarms.get((length, test.family.value, test.name[:60]), 0) + 1
                )
        cells.append(f"{hits}/{len(results)} (≤ {100 * upper_bound(hits, len(results)):.1f} %)")
    print("| none: false alarms (upper 95 % bound) | " + " | ".join(cells) + " |")
    for name, change, hit in changes:
        row = []
        for length in lengths:
            chosen = pairs(run, length, min(arguments.pairs, 100), arguments.seed + length)
            power = sum(hit(compare_runs([a], [change(b)])) for a, b in chosen)
            row.append(f"{100 * power / len(chosen):.0f} %")
        print(f"| {name} | " + " | ".join(row) + " |")
    for key, count in sorted(alarms.items(), key=lambda item: -item[1])[:20]:
        print("false alarm", key, count)


if __name__ == "__main__":
    main()
