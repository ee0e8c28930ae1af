"""Limit the work of composing loss distributions for plans that strangers have written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from smpc_dp.errors import LocalError

_left: ContextVar[int | None] = ContextVar("_left", default=None)


class TooMuchWorkError(LocalError):
    """The allowed work does not suffice; the result is unknown."""


@contextlib.contextmanager
def limit_work(cells: int) -> Iterator[None]:
    """Allow at most this many cells of loss distributions within the block, on this thread."""
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
