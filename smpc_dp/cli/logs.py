"""The option `--log-level`: write the library's log records to standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from smpc_dp.errors import MOST_ERROR, printable

Level = Literal["debug", "info", "warning"]

_ROOT = logging.getLogger("smpc_dp")
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Formatter that writes each log record as a single line.

    Parts of a record may come from a peer, which must not be able to forge lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line, with unprintable characters escaped."""
        return printable(super().format(record), MOST_ERROR)


@contextmanager
def shown_logs(level: Level) -> Iterator[None]:
    """Context manager that writes log records from this level on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT, "%H:%M:%S"))
    before = _ROOT.level
    _ROOT.addHandler(handler)
    _ROOT.setLevel(level.upper())
    try:
        yield
    finally:
        _ROOT.setLevel(before)
        _ROOT.removeHandler(handler)


def log_options(level: Level | None) -> list[str]:
    """Return the command-line options with which a child process logs at this level."""
    return [] if level is None else ["--log-level", level]
