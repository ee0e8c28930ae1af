"""Bounds of memory and time for inputs, and the input that goes beyond them."""

from __future__ import annotations

import faulthandler
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# The clock is set anew at most so often, in seconds: each time costs a thread.
_OFTEN = 1.0


@contextmanager
def watched(file: Path, memory: int, seconds: float) -> Iterator[Callable[[int, bytes], None]]:
    """Bound this process, in MiB, and the time of each input; yield what is called before each.

    An input that needs more memory raises MemoryError, or ends the process; one that takes longer, within a
    call of another language too, ends it with the stack of the call. Then `file` has the number of the input,
    a line feed, and the input.
    """
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = memory << 20 if limits[1] == resource.RLIM_INFINITY else min(memory << 20, limits[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    due, length = 0.0, 0
    try:
        with file.open("wb", buffering=0) as written:

            def watch(number: int, content: bytes) -> None:
                nonlocal due, length
                before, length = length, os.pwrite(written.fileno(), b"%d\n%b" % (number, content), 0)
                if length < before:
                    written.truncate(length)
                if (now := time.monotonic()) >= due:
                    faulthandler.dump_traceback_later(seconds + _OFTEN, exit=True)
                    due = now + _OFTEN

            yield watch
        file.unlink()
    finally:
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, limits)
