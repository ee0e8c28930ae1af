"""Handling of SIGTERM and SIGHUP: both end the process by an exception, so that resources are released."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Stopped(SystemExit):
    """Exception that ends the process after a signal, with the signal's exit status."""


@contextlib.contextmanager
def unwind_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP in the block into SystemExit 143 and 129, so that clean-up code runs."""

    def unwind(number: int, _frame: object) -> None:
        raise Stopped(128 + number)

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # Ignored signals stay ignored: nohup.
    changed = [number for number in STOP_SIGNALS if before[number] != signal.SIG_IGN]
    for number in changed:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


@contextlib.contextmanager
def hangups_ignored() -> Iterator[None]:
    """Ignore SIGHUP within the block, until an event loop in it handles that signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
