"""Fields of dataclasses with slots whose values are computed where they are first read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class ComputedValue(ABC):
    """Interface of a value that is computed when a field that holds it is first read."""

    __slots__ = ()

    @abstractmethod
    def compute(self) -> Any:
        """Compute and return the value; subclasses define how."""


class WhenRead(ComputedValue):
    """Deferred value of a field: a function that is called when the value is needed."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def compute(self) -> Any:
        """Call the deferred function and return its result, without a cache."""
        return self._function()


class _Field:
    """Descriptor of a dataclass field: computes a deferred value when it is first read, and stores it."""

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
    """Let fields `names` of a slotted dataclass hold deferred values, computed and kept at first read."""
    for name in names:
        setattr(kind, name, _Field(vars(kind)[name]))


def unread(instance: object, name: str) -> Any:
    """Return a field's stored value without computing it, even if it is deferred."""
    return vars(type(instance))[name].slot.__get__(instance)
