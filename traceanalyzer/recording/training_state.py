"""Everything a training step changes, kept aside so that steps run for measurement leave no trace.

Tensors are put back into the storage they were in: fused kernels, captured graphs and averaged copies of a model hold
on to addresses, and a layout that was changed for a trial comes back with them.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from typing import Any

_MISSING = object()


class TrainingState:
    """A copy of a training's state.

    Args:
        model: A ``torch.nn.Module``.
        optimizer: A ``torch.optim.Optimizer``.
        scaler: A ``GradScaler``, or None.
        averaged: A further module updated beside the model (its moving average), or None.
        objects: Objects and the names of their attributes to put back as they are; lists and dicts are copied.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        scaler: Any = None,
        averaged: Any = None,
        objects: Iterable[tuple[Any, tuple[str, ...]]] = (),
    ) -> None:
        import torch

        self._optimizer = optimizer
        self._scaler = scaler
        with torch.no_grad():
            self._tensors = [
                (tensor, tensor.data, tensor.data.clone())
                for module in (model, averaged)
                if module is not None
                for tensor in (*module.parameters(), *module.buffers())
            ]
            self._gradients = [
                (value, None if value.grad is None else value.grad.clone()) for value in model.parameters()
            ]
            self._slots = {value: _copied(slots) for value, slots in optimizer.state.items()}
        self._groups = [
            {name: copy.copy(value) for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._scaler_state = copy.deepcopy(scaler.state_dict()) if scaler is not None else None
        self._attributes = [
            (owner, name, _shallow(vars(owner).get(name, _MISSING))) for owner, names in objects for name in names
        ]
        self._random = random_state()

    def restore(self, *, randomness: bool = True) -> None:
        """Put everything back; may be called any number of times.

        Args:
            randomness: Put random generators back too. Blocks of a trial go on drawing, so that they do not all see
                the same sizes and images.
        """
        import torch

        with torch.no_grad():
            for tensor, storage, saved in self._tensors:
                if tensor.data_ptr() != storage.data_ptr() or tensor.stride() != storage.stride():
                    tensor.data = storage
                tensor.data.copy_(saved)
            for value, gradient in self._gradients:
                value.grad = None if gradient is None else gradient.clone()
            self._optimizer.state.clear()
            for value, slots in self._slots.items():
                self._optimizer.state[value] = _copied(slots)
        for group, saved_group in zip(self._optimizer.param_groups, self._groups, strict=True):
            for name in [name for name in group if name != "params" and name not in saved_group]:
                del group[name]
            group.update({name: copy.copy(value) for name, value in saved_group.items()})
        if self._scaler is not None:
            if self._scaler_state:  # an unused scaler has none
                self._scaler.load_state_dict(copy.deepcopy(self._scaler_state))
            getattr(self._scaler, "_per_optimizer_states", {}).clear()
        for owner, name, value in self._attributes:
            if value is _MISSING:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, _shallow(value))
        if randomness:
            set_random_state(self._random)


def _copied(slots: dict[Any, Any]) -> dict[Any, Any]:
    import torch

    return {
        name: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        for name, value in slots.items()
    }


def _shallow(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, list | dict) else value


def random_state() -> tuple[Any, ...]:
    """Return the state of every random generator a training step or a loader in this process draws from."""
    import numpy as np
    import torch

    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), devices


def set_random_state(state: tuple[Any, ...]) -> None:
    """Put the generators back to a state that ``random_state`` returned."""
    import numpy as np
    import torch

    python, numbers, host, devices = state
    random.setstate(python)
    np.random.set_state(numbers)
    torch.set_rng_state(host)
    if devices:
        torch.cuda.set_rng_state_all(devices)
