"""Properties that are computed on first use, by one thread, and kept."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar, overload

_Value = TypeVar("_Value")


class _Locked(Protocol):
    def lock_of(self, name: str) -> RLock:
        """Return the lock under which a property is computed."""


class measured_once(Generic[_Value]):  # noqa: N801  (a decorator, spelled like ``property``)
    """A property computed when first asked for; another thread that asks meanwhile waits instead of computing it too.

    Properties may ask for one another as long as no two do so in a circle: then no thread can wait for one that waits
    for it. (``functools.cached_property`` locks in Python 3.11 and does not from 3.12 on.)
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__
        self._name = compute.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> measured_once[_Value]: ...

    @overload
    def __get__(self, instance: _Locked, owner: type | None = None) -> _Value: ...

    def __get__(self, instance: _Locked | None, owner: type | None = None) -> _Value | measured_once[_Value]:
        if instance is None:
            return self
        # what is kept lies in the instance's own dictionary, which Python looks into first from then on
        kept = vars(instance)
        with instance.lock_of(self._name):
            if self._name not in kept:
                kept[self._name] = self._compute(instance)
            value: _Value = kept[self._name]
            return value
