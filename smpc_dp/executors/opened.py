"""The executor of a command: processes of this machine, or a cluster of Ray."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

from smpc_dp.errors import ConfigCheck, ConfigError

MAX_WORKERS = 256
# What most shards import: once for all processes.
PRELOADED = "smpc_dp.simulate"


@contextmanager
def open_executor(
    workers: int | None = None, ray: str | None = None, *, alone: bool = False
) -> Iterator[Executor | None]:
    """Context manager that gives an executor on local processes or a Ray cluster; None for one worker.

    Args:
        workers: processes of this machine, by default one for each processor. One: None is yielded, and
            shards run in this process.
        ray, alone: address of a cluster of Ray and how shards share it, as of `RayExecutor`.

    Raises:
        ConfigError: both are given, or `workers` is not 1 to 256. LocalError: as of `RayExecutor`.
    """
    if ray is not None and workers is not None:
        raise ConfigError.at(
            "workers", "are processes of this machine: give none for Ray", ConfigCheck.CONFLICT
        )
    if workers is not None and not 1 <= workers <= MAX_WORKERS:
        raise ConfigError.at("workers", f"must be 1 to {MAX_WORKERS}, is {workers}", ConfigCheck.RANGE)
    if ray is not None:
        # Not at the top: Ray takes a second to load, and few have it.
        from smpc_dp.executors.ray import RayExecutor

        with RayExecutor(ray, alone=alone) as executor:
            yield executor
        return
    count = workers or os.cpu_count() or 1
    if count == 1:
        yield None
        return
    # Not copies of this process, which would have its locks and not its threads, but of one that has none.
    context = get_context("forkserver")
    context.set_forkserver_preload([PRELOADED])
    pool = ProcessPoolExecutor(count, context, initializer=_begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Prepare a worker process: ignore Ctrl-C, and end when the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent process has ended, then end this worker process."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
