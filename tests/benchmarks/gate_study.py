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
from traceanalyzer.comparison.host import log_host_factors
from traceanalyzer.comparison.matrices import row_medians
from traceanalyzer.comparison.samples import Run, select_steps
from traceanalyzer.gate import LoadOptions, load_runs
from traceanalyzer.results.comparison import Comparison, Family, Verdict

Change = Callable[[Run], Run]

IDLE_SLOPE = 1.5  # of log idle on log host factor, measured on the same 300 steps


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


def runs_of_one_level(run: Run, length: int, count: int, spread: float, random: np.random.Generator) -> list[Run]:
    """Cut stretches out of a run and give their idle a run-to-run spread of a known size.

    Args:
        run: The long run.
        length: Steps of each stretch.
        count: Number of stretches; they may overlap.
        spread: Standard deviation of the runs' log levels.
        random: Source of chance.
    """
    made = []
    for first in random.integers(0, run.steps - length + 1, count):
        part = select_steps(run, np.arange(first, first + length))
        hosts, own, _ = log_host_factors([run], [part])
        whole = np.log(run.in_step_idle_ns).mean() - IDLE_SLOPE * hosts[0].mean()
        level = np.log(part.in_step_idle_ns).mean() - IDLE_SLOPE * own[0].mean()
        idle = part.in_step_idle_ns * np.exp(whole - level + random.normal(scale=spread))
        made.append(replace(part, in_step_idle_ns=idle))
    return made


def scale_idle(factor: float) -> Change:
    """Make all idle inside the step longer."""
    return lambda run: replace(run, in_step_idle_ns=run.in_step_idle_ns * factor)


def raw_mean(base: Run, candidate: Run) -> bool:
    """What a plain threshold does: the candidate's mean idle is more than 5 % larger."""
    return bool(candidate.in_step_idle_ns.mean() > 1.05 * base.in_step_idle_ns.mean())


def raw_welch(base: Run, candidate: Run) -> bool:
    """What a textbook does: Welch's test on the steps, one-sided at 1 %."""
    test = stats.ttest_ind(candidate.in_step_idle_ns, base.in_step_idle_ns, equal_var=False, alternative="greater")
    return bool(test.pvalue < 0.01)


def raw_mann_whitney(base: Run, candidate: Run) -> bool:
    """Mann and Whitney's test on the steps, one-sided at 1 %."""
    test = stats.mannwhitneyu(candidate.in_step_idle_ns, base.in_step_idle_ns, alternative="greater")
    return bool(test.pvalue < 0.01)


def share(hits: int, trials: int) -> str:
    """Write a share with its upper 95 % bound."""
    return f"{hits}/{trials} (≤ {100 * upper_bound(hits, trials):.1f} %)"


def print_row(name: str, cells: list[str]) -> None:
    """Print one row of a Markdown table, at once, so that a stopped study leaves what it has."""
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def false_alarms(run: Run, lengths: list[int], count: int, seed: int) -> None:
    """Print how often pairs without any change raise an alarm, by test."""
    others: list[tuple[str, Callable[[Run, Run], bool]]] = [
        ("raw idle, mean more than 5 % larger", raw_mean),
        ("raw idle, Welch's test over steps", raw_welch),
        ("raw idle, Mann–Whitney over steps", raw_mann_whitney),
    ]
    alarms: dict[str, list[int]] = {name: [] for name, _ in others}
    alarms |= {f"gate: {family.value}": [] for family in Family if family is not Family.ADVISORY}
    alarms["gate: verdict"] = []
    for length in lengths:
        chosen = pairs(run, length, count, seed + length)
        results = [compare_runs([a], [b]) for a, b in chosen]
        for name, test in others:
            alarms[name].append(sum(test(a, b) for a, b in chosen))
        for family in Family:
            if family is not Family.ADVISORY:
                alarms[f"gate: {family.value}"].append(sum(found(c, family) for c in results))
        alarms["gate: verdict"].append(sum(c.verdict is Verdict.REGRESSION for c in results))
    for name, hits in alarms.items():
        print_row(name, [share(h, count) for h in hits])


def power(run: Run, lengths: list[int], count: int, seed: int) -> None:
    """Print how often a known change of every step is found, by test, with one run a side."""
    middle = run.interval_ns.shape[1] // 2
    typical = row_medians(run.interval_ns.T)
    # + 50 µs passes the floor of 25 % where the host takes less than 200 µs; steps hold it in at least half
    eligible = np.flatnonzero((typical < 190_000) & (np.isfinite(run.interval_ns).mean(axis=0) > 0.9))
    random = np.random.default_rng(seed)

    def anywhere(_: Run) -> int:
        return int(random.choice(eligible))

    simple: list[tuple[str, Change, Callable[[Comparison], bool]]] = [
        ("kernels + 5 %: kernel time", stretch_kernels(1.05), lambda c: found(c, Family.PRIMARY, "kernel_time")),
        ("kernels + 5 %: a kernel family", stretch_kernels(1.05), lambda c: found(c, Family.KERNEL_FAMILY)),
        ("one more H2D copy: that counter", add_copy, lambda c: found(c, Family.COUNTER, "h2d")),
        ("one more .item(): D2H counter", add_item, lambda c: found(c, Family.COUNTER, "d2h")),
        ("one more .item(): synchronisations", add_item, lambda c: found(c, Family.COUNTER, "synchronisations")),
        ("host 5 % slower: any regression (wanted: 0 %)", slow_host(1.05), lambda c: c.verdict is Verdict.REGRESSION),
    ]
    for name, change, hit in simple:
        row = []
        for length in lengths:
            chosen = pairs(run, length, count, seed + length)
            hits = sum(hit(compare_runs([a], [change(b)])) for a, b in chosen)
            row.append(f"{100 * hits / count:.0f} %")
        print_row(name, row)
    places = [("+ 50 µs before the middle launch: that launch", lambda _: middle)]
    places.append(("+ 50 µs before any launch below 190 µs: that launch", anywhere))
    for name, place in places:
        row = []
        for length in lengths:
            hits = 0
            for a, b in pairs(run, length, count, seed + length):
                at = place(b)
                comparison = compare_runs([a], [add_gap(at, 5e4)(b)])
                hits += [t.position for t in comparison.regressions if t.family is Family.POSITION] == [at]
            row.append(f"{100 * hits / count:.0f} %")
        print_row(name, row)
    for name, test in (("raw mean", raw_mean), ("raw Welch", raw_welch), ("raw Mann–Whitney", raw_mann_whitney)):
        row = []
        for length in lengths:
            chosen = pairs(run, length, count, seed + length)
            row.append(f"{100 * sum(test(a, scale_idle(1.05)(b)) for a, b in chosen) / count:.0f} %")
        print_row(f"idle + 5 %: {name}", row)


def several_runs(run: Run, length: int, count: int, seed: int) -> None:
    """Print false alarms and power on idle with several runs a side that differ by a known spread."""
    random = np.random.default_rng(seed)
    for side, spread, change in ((3, 0.02, 1.1), (5, 0.02, 1.1), (5, 0.02, 1.05), (5, 0.03, 1.1)):
        hits = alarms = 0
        for _ in range(count):
            before = runs_of_one_level(run, length, side, spread, random)
            after = runs_of_one_level(run, length, side, spread, random)
            alarms += found(compare_runs(before, after), Family.PRIMARY, "in_step_idle")
            worse = [scale_idle(change)(r) for r in after]
            hits += found(compare_runs(before, worse), Family.PRIMARY, "in_step_idle")
        print_row(
            f"{side} v {side} runs, run SD {100 * spread:.0f} %, idle + {100 * change - 100:.0f} %",
            [share(alarms, count), f"{100 * hits / count:.1f} %"],
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recording", help="a recording, or its Analysis in JSON")
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    (run,) = load_runs(arguments.recording, LoadOptions())
    lengths = [n for n in (10, 20, 50, 100, 145) if 2 * n <= run.steps]
    head = " | ".join(f"n = {n}" for n in lengths)
    print(f"{run.steps} steady steps; {arguments.pairs} pairs per cell; one run a side.\n")
    print(f"| false alarms (upper 95 % bound) | {head} |")
    print("| --- |" + " ---: |" * len(lengths), flush=True)
    false_alarms(run, lengths, arguments.pairs, arguments.seed)
    print(f"\n| power: change and what must name it | {head} |")
    print("| --- |" + " ---: |" * len(lengths), flush=True)
    power(run, lengths, arguments.pairs, arguments.seed)
    print("\n| several runs a side, 50 steps each | false alarms (upper 95 % bound) | power |")
    print("| --- | ---: | ---: |", flush=True)
    several_runs(run, 50, arguments.pairs, arguments.seed)


if __name__ == "__main__":
    main()
