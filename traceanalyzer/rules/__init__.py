"""Root causes, one per file; opinions only. ``RULES`` is the registry, in code order."""

from __future__ import annotations

from typing import cast

from traceanalyzer.rules import (
    allocator_churn,
    anomaly_mode_left_on,
    blocking_h2d_copies,
    cache_emptied,
    checkpoint_stall,
    incomplete_recording,
    launch_bound,
    loader_in_main_process,
    loader_too_slow,
    nothing_to_fix,
    observer_effect,
    pageable_h2d_copies,
    plan_search,
    sync_in_step,
    validation_stall,
)
from traceanalyzer.rules.base import RuleModule

RULES: tuple[RuleModule, ...] = tuple(
    cast(RuleModule, module)
    for module in (
        loader_in_main_process,  # TA101
        loader_too_slow,  # TA102
        launch_bound,  # TA201
        plan_search,  # TA202
        anomaly_mode_left_on,  # TA207
        pageable_h2d_copies,  # TA301
        blocking_h2d_copies,  # TA302
        allocator_churn,  # TA401
        cache_emptied,  # TA402
        sync_in_step,  # TA501
        validation_stall,  # TA801
        checkpoint_stall,  # TA802
        incomplete_recording,  # TA901
        observer_effect,  # TA902
        nothing_to_fix,  # TA903
    )
)
