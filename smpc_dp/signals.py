"""What a process does on SIGTERM and SIGHUP: it ends as on an exception, so that everything is closed."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit 143 and 129, so that all is closed and removed on the way."""

    def unwind(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # What is ignored stays so: nohup.
    changed = [number for number in STOP_SIGNALS if before[number] != signal.SIG_IGN]
    for number in changed:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])
