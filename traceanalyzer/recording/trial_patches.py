"""Replacing a function for the time of a block, and watching what unchanged steps call."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from traceanalyzer.recording.trials import Seen, TrialLoop


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute and put back what was there, or nothing where it was inherited."""
    had = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def several(*patches: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace several attributes."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(replaced(owner, name, value))
        yield


@contextmanager
def watched(loop: TrialLoop, seen: Seen) -> Iterator[None]:
    """Count what steps call that a change could take away.

    Reading values back and printing are counted only while callbacks run: elsewhere the step needs the value.

    Args:
        loop: The loop.
        seen: Where counts go.
    """
    import torch

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen.add(name)
            return original(*arguments, **named)

        return call

    move = torch.Tensor.to

    def to(self: Any, *arguments: Any, **named: Any) -> Any:
        result = move(self, *arguments, **named)
        if self.device.type == "cpu" and result.device.type == "cuda" and not says_non_blocking(arguments, named):
            seen.add("copy")
        return result

    def printing(*values: Any, **named: Any) -> None:
        if any(isinstance(value, torch.Tensor) for value in values):
            seen.add("print")
        original_print(*values, **named)

    original_print = builtins.print

    def in_callbacks() -> Any:
        seen.add("callbacks")
        return several((torch.Tensor, "item", counting("item", torch.Tensor.item)), (builtins, "print", printing))

    loop.callback_patches.append(in_callbacks)
    try:
        with several(
            (torch.cuda, "empty_cache", counting("empty_cache", torch.cuda.empty_cache)),
            (torch.cuda, "synchronize", counting("synchronize", torch.cuda.synchronize)),
            (torch.Tensor, "to", to),
        ):
            yield
    finally:
        loop.callback_patches.remove(in_callbacks)


def says_non_blocking(arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Say whether the arguments of ``Tensor.to`` ask for a copy that does not block."""
    return bool(named.get("non_blocking")) or any(value is True for value in arguments)
