"""Memory that is used over and over for what passes through: tables, labels, messages."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

LARGE_PAGE = 1 << 21


def working_memory(size: int) -> NDArray[np.uint8]:
    """Return `size` bytes, in pages of 2 MiB where the system has them; nothing is taken before it is used.

    To find 512 small pages takes it ten times as long, and longer than what is computed in them.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    # Linux aligns to large pages what is a whole number of them.
    whole = -(-size // LARGE_PAGE) * LARGE_PAGE
    memory = mmap.mmap(-1, whole, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)[:size]
