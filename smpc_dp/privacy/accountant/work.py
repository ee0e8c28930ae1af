"""Limit the work of composing loss distributions for plans that strangers have written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from smpc_dp.errors import LocalError

_left: ContextVar[int | None] = ContextVar("_left", default=None)


class TooMuchWorkError(LocalError):
    """Error: computing a privacy bound would take more work than the caller allowed."""


@contextlib.contextmanager
def limit_work(cells: int) -> Iterator[None]:
    """Context manager in which `spend` raises TooMuchWorkError after this many cells, in this thread."""
    token = _left.set(cells)
    try:
        yield
    finally:
        _left.reset(token)


def spend(cells: float) -> None:
    """Count cells of loss distributions about to be computed; TooMuchWorkError beyond the limit, if any."""
    left = _left.get()
    if left is None:
        return
    if cells > left:
        raise TooMuchWorkError("the accountant would need more work than is allowed")
    _left.set(left - int(cells))
