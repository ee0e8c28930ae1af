"""Reusable memory for data that passes through: tables, labels, messages."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

LARGE_PAGE = 1 << 21


def working_memory(size: int) -> NDArray[np.uint8]:
    """Return an uninitialised byte array of this size, in large pages where the system has some.

    The system allocates pages at their first use. 512 small pages take ten times as long as a large one, and
    longer than the computation on them; a few small pages take less.
    """
    if size < LARGE_PAGE // 16 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    # Linux uses large pages for mappings of a whole number of them.
    whole = -(-size // LARGE_PAGE) * LARGE_PAGE
    memory = mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)[:size]
