"""Processes that verify proofs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

MOST_WORKERS = 256


def default_workers(memory: int) -> int:
    """Return a number of processes for which processors and memory, `memory` MiB each, suffice."""
    # The process that reads the log takes as much.
    room = (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20) // memory - 1
    return max(1, min(os.cpu_count() or 1, room, MOST_WORKERS))


@contextmanager
def open_processes(count: int) -> Iterator[Executor | None]:
    """Context manager of an executor of `count` processes; yields None for one process."""
    if count == 1:
        yield None
        return
    executor = ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a worker process: ignore Ctrl-C, and start a thread that ends it with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent process has ended, then end this worker process with code 1."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
