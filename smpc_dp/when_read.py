"""Fields of dataclasses with slots whose values are computed where they are first read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class ComputedValue(ABC):
    """Value of a field that is computed where the field is first read."""

    __slots__ = ()

    @abstractmethod
    def compute(self) -> Any:
        """Return the value."""


class WhenRead(ComputedValue):
    """Value that a function returns."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def compute(self) -> Any:
        """Return what the function returns."""
        return self._function()


class _Field:
    """Descriptor of a slot that may hold a deferred value."""

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self.slot.__get__(instance, owner)
        if isinstance(value, ComputedValue):
            value = value.compute()
            self.slot.__set__(instance, value)
        return value

    def __set__(self, instance: object, value: Any) -> None:
        self.slot.__set__(instance, value)


def compute_when_read(kind: type, *names: str) -> None:
    """Let these fields of a dataclass with slots be given as `ComputedValue`."""
    for name in names:
        setattr(kind, name, _Field(vars(kind)[name]))


def unread(instance: object, name: str) -> Any:
    """Return the value of such a field as it is: deferred, until it is read."""
    return vars(type(instance))[name].slot.__get__(instance)
