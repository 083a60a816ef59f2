"""What measures the recorder's own cost: its statistics, and that off means off."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.paired_statistics import mean_interval, median_interval

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("count", "left_out"),
    # the tables of the sign test at 5 %: how many values lie outside at either end (largest k with 2 P(X < k) <= 0.05)
    [(6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (15, 3), (20, 5), (25, 7), (50, 17), (100, 39)],
)
def test_the_median_lies_between_the_order_statistics_of_the_sign_test(count: int, left_out: int) -> None:
    values = [float(value) for value in range(count)]
    random.Random(1).shuffle(values)
    assert median_interval(values) == (left_out, count - 1 - left_out)


def test_thousands_of_values_do_not_overflow() -> None:
    low, high = median_interval([float(value) for value in range(5001)])
    # normal approximation: 2500 +- 1.96 * sqrt(5001) / 2
    assert low == pytest.approx(2500 - 69.3, abs=2)
    assert high == pytest.approx(2500 + 69.3, abs=2)


def test_the_bootstrap_of_the_mean_agrees_with_the_normal_interval() -> None:
    source = random.Random(3)
    values = [source.gauss(1.0, 2.0) for _ in range(400)]
    low, high = mean_interval(values)
    half = 1.96 * statistics.stdev(values) / 20
    assert low == pytest.approx(statistics.fmean(values) - half, abs=0.03)
    assert high == pytest.approx(statistics.fmean(values) + half, abs=0.03)


@pytest.mark.torch
def test_a_real_training_is_switched_between_steps(tmp_path: Path) -> None:
    pytest.importorskip("ultralytics")
    words = ["--steps=8", "--batch=2", "--imgsz=64", "--workers=2", "--batches=12", "--warm-up=4", "--loader-pairs=2"]
    command = [sys.executable, str(ROOT / "tests/tools/instrumentation_overhead.py"), f"--out={tmp_path / 'out.jsonl'}"]
    finished = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    result = json.loads((tmp_path / "out.jsonl").read_text())
    assert [[len(side) for side in group] for group in result["wall_ns"]] == [[2, 2], [2, 2]]
    assert [sorted([*group[0], *group[1]]) for group in result["sampled_wall_ns"]] == [
        sorted([*group[0], *group[1]]) for group in result["wall_ns"]
    ]
    # every wrapper of the trainer's methods, its moving average's, the loss and the backward pass
    assert {"preprocess_batch", "optimizer_step", "update", "init_criterion", "backward"} < set(result["switched"])
    # batches made while the recorder was off are not among those its workers timed
    assert 0 < result["loader_batches_timed"] < 12
    assert "load_image" in result["switched_in_loader"]


def test_times_that_differ_by_nothing_but_noise_give_no_cost() -> None:
    from tests.tools.instrumentation_overhead import differences

    # the plain ratios are 2 and 1/2: their mean is 1.25
    assert sum(differences([[[200, 200], [100, 100]], [[100, 100], [200, 200]]])) == pytest.approx(0)


def test_the_cost_of_a_gpu_sample_counts_once_each_half_second() -> None:
    from tests.tools.instrumentation_overhead import sample_differences

    result = {"sampled_wall_ns": [[[103_000_000, 107_000_000], [100_000_000, 100_000_000]]], "sample_ns": {"whole": 1}}
    assert sample_differences(result) == [pytest.approx(1.0)]  # 5 ms of 500 ms
    assert sample_differences({**result, "sample_ns": {}}) == []
