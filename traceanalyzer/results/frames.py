"""pandas tables of what a document holds. pandas is imported only here, and only when a table is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

if TYPE_CHECKING:
    from traceanalyzer.results.analysis import Analysis, RankReport
    from traceanalyzer.results.comparison import Comparison

_SERIES = ("start_ns", "window_ns", "idle_ns", "boundary_idle_ns", "kernel_ns", "exposed_h2d_ns", "max_gap_ns")


def steps_frame(analysis: Analysis) -> pd.DataFrame:
    """Return one row per step window of every rank; see ``Analysis.steps``.

    Columns: ``rank``, ``step`` (position), ``name``, ``class``, the ``*_ns`` series, ``idle.<cause>_ns``,
    ``busy.<kind>_ns``, ``family.<kernel family>_ns`` and ``count.<counter>``. A column another rank lacks is missing
    (``<NA>``) there, not 0.
    """
    tables = [_rank_steps(rank) for rank in analysis.ranks]
    tables = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame({"rank": [], "step": [], "name": [], "class": [], **{name: [] for name in _SERIES}})
    return pd.concat(tables, ignore_index=True).convert_dtypes()


def _rank_steps(rank: RankReport) -> pd.DataFrame:
    series, count = rank.per_step, rank.steps.count
    names = rank.steps.name or [""] * count
    columns: dict[str, list[Any]] = {
        "rank": [rank.rank] * count,
        "step": list(range(count)),
        "name": list(names),
        "class": [step_class.value for step_class in rank.steps.step_class],
    }
    if series.device_id is None:  # without GPU activity, busy and idle were not measured: absent, not 0
        columns["window_ns"] = series.window_ns
    else:
        columns |= {name: getattr(series, name) for name in _SERIES}
        columns |= {f"idle.{cause}_ns": values for cause, values in series.idle_by_cause_ns.items()}
        columns |= {f"busy.{kind}_ns": values for kind, values in series.busy_by_kind_ns.items()}
        columns |= {f"family.{family}_ns": values for family, values in series.kernel_family_ns.items()}
        columns |= {f"count.{name}": values for name, values in series.counters.items()}
    return pd.DataFrame(columns)


def idle_frame(analysis: Analysis) -> pd.DataFrame:
    """Return idle time by rank, device, cause and phase; see ``Analysis.idle``."""
    rows = [
        (rank.rank, device.device_id, part.cause, part.phase, part.ns)
        for rank in analysis.ranks
        for device in rank.devices
        for part in device.idle_by_cause_and_phase_ns
    ]
    return pd.DataFrame(rows, columns=["rank", "device_id", "cause", "phase", "ns"])


def tests_frame(comparison: Comparison) -> pd.DataFrame:
    """Return the tests of a comparison; see ``Comparison.frame``."""
    from traceanalyzer.results.comparison import Test

    names = [field.name for field in msgspec.structs.fields(Test)]
    return pd.DataFrame([msgspec.to_builtins(test) for test in comparison.tests], columns=names).convert_dtypes()
