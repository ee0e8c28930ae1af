"""Fields of dataclasses with slots whose values are computed where they are first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class WhenRead:
    """Value of a field that a function returns, called once: where the field is first read."""

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[], Any]) -> None:
        self.compute = compute


class _Field:
    """Descriptor of a slot that may hold a `WhenRead`."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self._slot.__get__(instance, owner)
        if isinstance(value, WhenRead):
            value = value.compute()
            self._slot.__set__(instance, value)
        return value

    def __set__(self, instance: object, value: Any) -> None:
        self._slot.__set__(instance, value)


def compute_when_read(kind: type, *names: str) -> None:
    """Let these fields of a dataclass with slots be given as a `WhenRead`."""
    for name in names:
        setattr(kind, name, _Field(vars(kind)[name]))
