"""Bound the work of composing loss distributions, where a stranger has written what is to be planned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from smpc_dp.errors import LocalError

_left: ContextVar[int | None] = ContextVar("_left", default=None)


class TooMuchWorkError(LocalError):
    """The work that was allowed does not suffice: nothing is said of what it was for."""


@contextlib.contextmanager
def at_most(cells: int) -> Iterator[None]:
    """Allow so many cells of loss distributions within the block, on this thread."""
    token = _left.set(cells)
    try:
        yield
    finally:
        _left.reset(token)


def spend(cells: float) -> None:
    """Count cells that are about to be computed; raise TooMuchWorkError beyond what is allowed."""
    left = _left.get()
    if left is None:
        return
    if cells > left:
        raise TooMuchWorkError("the accountant would need more work than is allowed")
    _left.set(left - int(cells))
