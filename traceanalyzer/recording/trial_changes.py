"""Changes any PyTorch training step can be tried with."""

from __future__ import annotations

import builtins
import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from traceanalyzer.recording.trial_patches import replaced, says_non_blocking, several
from traceanalyzer.recording.trials import Change, Seen, TrialLoop

NEEDS_CUDA = "needs a CUDA device"


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _always(_: TrialLoop, __: Seen) -> str | None:
    return None


# -- input -------------------------------------------------------------------------------------------------------


@contextmanager
def _reuse(loop: TrialLoop) -> Iterator[None]:
    fetch, batch = loop.fetch, loop.fetch()
    loop.fetch = lambda: batch
    try:
        yield
    finally:
        loop.fetch = fetch


# -- the allocator, synchronisation, debugging -----------------------------------------------------------------------


def _never_seen(name: str, what: str, *, cuda: bool = False) -> Any:
    def obstacle(loop: TrialLoop, seen: Seen) -> str | None:
        if cuda and not loop.on_cuda:
            return NEEDS_CUDA
        return None if seen[name] else f"the step does not {what}"

    return obstacle


def _without_empty_cache(_: TrialLoop) -> AbstractContextManager[None]:
    import torch

    return replaced(torch.cuda, "empty_cache", _nothing)


@contextmanager
def _without_synchronize(loop: TrialLoop) -> Iterator[None]:
    import torch

    wait = torch.cuda.synchronize
    with replaced(torch.cuda, "synchronize", _nothing), replaced(loop, "synchronise", wait):
        yield


def _anomaly_is_off(_: TrialLoop, __: Seen) -> str | None:
    import torch

    return None if torch.is_anomaly_enabled() else "anomaly mode is off"


@contextmanager
def _anomaly_off(_: TrialLoop) -> Iterator[None]:
    import torch

    checks = torch.is_anomaly_check_nan_enabled()
    torch.autograd.set_detect_anomaly(False)
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(True, checks)


# -- callbacks ---------------------------------------------------------------------------------------------------


@contextmanager
def _callbacks_off(loop: TrialLoop) -> Iterator[None]:
    loop.callbacks_enabled = False
    try:
        yield
    finally:
        loop.callbacks_enabled = True


@contextmanager
def _in_callbacks(loop: TrialLoop, *patches: tuple[Any, str, Any]) -> Iterator[None]:
    def active() -> AbstractContextManager[None]:
        return several(*patches)

    loop.callback_patches.append(active)
    try:
        yield
    finally:
        loop.callback_patches.remove(active)


def _without_item(loop: TrialLoop) -> AbstractContextManager[None]:
    import torch

    return _in_callbacks(loop, (torch.Tensor, "item", lambda _: 0.0))


def _without_print(loop: TrialLoop) -> AbstractContextManager[None]:
    return _in_callbacks(loop, (builtins, "print", _nothing))


# -- arithmetic --------------------------------------------------------------------------------------------------


def _tf32_is_on(loop: TrialLoop, _: Seen) -> str | None:
    import torch

    if not loop.on_cuda:
        return NEEDS_CUDA
    if torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32:
        return "TF32 is allowed already"
    return None


def _tf32(_: TrialLoop) -> AbstractContextManager[None]:
    import torch

    return _switched((torch.backends.cuda.matmul, "allow_tf32"), (torch.backends.cudnn, "allow_tf32"))


def _benchmark_is_on(loop: TrialLoop, _: Seen) -> str | None:
    import torch

    if not loop.on_cuda:
        return NEEDS_CUDA
    return "cudnn.benchmark is on already" if torch.backends.cudnn.benchmark else None


def _cudnn_benchmark(_: TrialLoop) -> AbstractContextManager[None]:
    import torch

    return _switched((torch.backends.cudnn, "benchmark"))


@contextmanager
def _switched(*flags: tuple[Any, str]) -> Iterator[None]:
    before = [getattr(owner, name) for owner, name in flags]
    try:
        for owner, name in flags:
            setattr(owner, name, True)
        yield
    finally:
        for (owner, name), value in zip(flags, before, strict=True):
            setattr(owner, name, value)


# -- layout and optimizer ------------------------------------------------------------------------------------------


def is_channels_last(model: Any) -> bool:
    """Say whether a model's convolution weights lie in the channels-last layout."""
    import torch

    return any(
        value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()
        for value in model.parameters()
        if value.dim() == 4
    )


def _layout_is_there(loop: TrialLoop, _: Seen) -> str | None:
    if not any(value.dim() == 4 for value in loop.model.parameters()):
        return "the model has no convolution"
    return "the model is channels_last already" if is_channels_last(loop.model) else None


@contextmanager
def _channels_last(loop: TrialLoop) -> Iterator[None]:
    """Lay weights, optimizer slots and inputs out anew; the state kept aside brings the old layout back."""
    import torch

    loop.model.to(memory_format=torch.channels_last)
    for slots in loop.optimizer.state.values():
        for name, value in slots.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                slots[name] = value.contiguous(memory_format=torch.channels_last)
    for value in loop.model.parameters():
        if value.grad is not None and value.dim() == 4:
            value.grad = value.grad.contiguous(memory_format=torch.channels_last)

    def lay_out(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value.contiguous(memory_format=torch.channels_last)
            if isinstance(value, torch.Tensor) and value.dim() == 4
            else value
            for value in inputs
        )

    first = next(module for module in loop.model.modules() if isinstance(module, torch.nn.Conv2d))
    hook = first.register_forward_pre_hook(lay_out)
    try:
        yield
    finally:
        hook.remove()


_FUSED_FORMS = ("SGD", "Adam", "AdamW", "Adagrad")


def _no_fused_form(loop: TrialLoop, _: Seen) -> str | None:
    import torch

    kind = type(loop.optimizer)
    if kind.__name__ not in _FUSED_FORMS or kind is not getattr(torch.optim, kind.__name__):
        return f"{kind.__name__} has no fused form"
    if all(group.get("fused") for group in loop.optimizer.param_groups):
        return "the optimizer is fused already"
    return None


@contextmanager
def _fused_optimizer(loop: TrialLoop) -> Iterator[None]:
    """Let the optimizer use its fused kernels; the state kept aside brings groups and slots back."""
    import torch

    optimizer = loop.optimizer
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = True, False
    for value, slots in optimizer.state.items():
        if isinstance(slots.get("step"), torch.Tensor):
            slots["step"] = slots["step"].to(value.device)
    scales = vars(optimizer).get("_step_supports_amp_scaling")
    optimizer._step_supports_amp_scaling = True
    try:
        yield
    finally:
        if scales is None:
            vars(optimizer).pop("_step_supports_amp_scaling", None)
        else:
            optimizer._step_supports_amp_scaling = scales


# -- the interpreter -----------------------------------------------------------------------------------------------


@contextmanager
def _gc_frozen(_: TrialLoop) -> Iterator[None]:
    was_enabled, frozen_before = gc.isenabled(), gc.get_freeze_count()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen_before:  # what the program itself froze must stay so, and cannot be told apart
            gc.unfreeze()
        if was_enabled:
            gc.enable()


# -- copies --------------------------------------------------------------------------------------------------------


def non_blocking_copies() -> AbstractContextManager[None]:
    """Make every ``Tensor.to`` from the host one that does not block."""
    import torch

    move = torch.Tensor.to

    def to(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.device.type == "cpu" and not says_non_blocking(arguments, named):
            named["non_blocking"] = True
            arguments = tuple(value for value in arguments if value is not False)
        return move(self, *arguments, **named)

    return replaced(torch.Tensor, "to", to)


GENERAL: tuple[Change, ...] = (
    Change("reused_batch", "the same batch again and again: input costs nothing", _always, _reuse),
    Change(
        "empty_cache_off", "torch.cuda.empty_cache() does nothing",
        _never_seen("empty_cache", "call torch.cuda.empty_cache()", cuda=True), _without_empty_cache,
    ),
    Change("anomaly_off", "autograd's anomaly detection is off", _anomaly_is_off, _anomaly_off),
    Change("tf32", "TF32 is allowed in matrix products and convolutions", _tf32_is_on, _tf32),
    Change(
        "callbacks_off", "callbacks of the training step are skipped (validation, logging, checkpoints)",
        _never_seen("user_callbacks", "run callbacks of its own"), _callbacks_off,
    ),
    Change(
        "item_removed", "Tensor.item() in callbacks returns without reading the device",
        _never_seen("item", "read values back in callbacks"), _without_item,
    ),
    Change(
        "device_sync_off", "torch.cuda.synchronize() does nothing",
        _never_seen("synchronize", "call torch.cuda.synchronize()", cuda=True), _without_synchronize,
    ),
    Change("print_removed", "print() in callbacks does nothing", _never_seen("print", "print tensors in callbacks"),
           _without_print),
    Change("channels_last", "the model's weights and inputs lie channels_last", _layout_is_there, _channels_last),
    Change("fused_optimizer", "the optimizer steps with its fused kernels", _no_fused_form, _fused_optimizer),
    Change("cudnn_benchmark", "torch.backends.cudnn.benchmark is on", _benchmark_is_on, _cudnn_benchmark),
    Change("gc_frozen", "objects are frozen out of garbage collection, which is off", _always, _gc_frozen, trim=False),
)  # fmt: skip
