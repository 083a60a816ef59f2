"""Root causes, one per file; opinions only. ``RULES`` is the registry, in code order."""

from __future__ import annotations

from typing import cast

from traceanalyzer.rules import (
    allocation_retries,
    allocator_churn,
    anomaly_mode_left_on,
    augmentation_heavy,
    blocking_h2d_copies,
    cache_emptied,
    checkpoint_stall,
    data_parallel_not_ddp,
    device_wide_sync,
    exposed_communication,
    exposed_h2d_copies,
    garbage_collection_pauses,
    grid_too_small,
    incomplete_recording,
    input_bursts,
    launch_bound,
    launcher_preempted,
    layout_conversions,
    lazy_module_loading,
    loader_in_main_process,
    loader_restart,
    loader_too_slow,
    logging_stall,
    memory_creep,
    memory_fragmentation,
    memory_near_limit,
    nothing_to_fix,
    observer_effect,
    pageable_h2d_copies,
    plan_search,
    python_overhead,
    slowdown_over_time,
    step_jitter,
    straggler_rank,
    sync_in_step,
    tensor_cores_unused,
    tiny_copies,
    unfused_optimizer,
    unused_parameter_search,
    validation_stall,
)
from traceanalyzer.rules.base import RuleModule

RULES: tuple[RuleModule, ...] = tuple(
    cast(RuleModule, module)
    for module in (
        loader_in_main_process,  # TA101
        loader_too_slow,  # TA102
        input_bursts,  # TA103
        loader_restart,  # TA104
        augmentation_heavy,  # TA105
        launch_bound,  # TA201
        plan_search,  # TA202
        lazy_module_loading,  # TA203
        python_overhead,  # TA204
        garbage_collection_pauses,  # TA205
        launcher_preempted,  # TA206
        anomaly_mode_left_on,  # TA207
        pageable_h2d_copies,  # TA301
        blocking_h2d_copies,  # TA302
        exposed_h2d_copies,  # TA303
        tiny_copies,  # TA304
        allocator_churn,  # TA401
        cache_emptied,  # TA402
        allocation_retries,  # TA403
        memory_fragmentation,  # TA404
        memory_near_limit,  # TA405
        memory_creep,  # TA406
        sync_in_step,  # TA501
        device_wide_sync,  # TA502
        tensor_cores_unused,  # TA601
        grid_too_small,  # TA602
        layout_conversions,  # TA603
        unfused_optimizer,  # TA604
        exposed_communication,  # TA701
        straggler_rank,  # TA702
        data_parallel_not_ddp,  # TA703
        unused_parameter_search,  # TA704
        validation_stall,  # TA801
        checkpoint_stall,  # TA802
        logging_stall,  # TA803
        slowdown_over_time,  # TA804
        step_jitter,  # TA805
        incomplete_recording,  # TA901
        observer_effect,  # TA902
        nothing_to_fix,  # TA903
    )
)
