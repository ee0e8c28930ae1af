"""The signals of a process that a test starts."""

from __future__ import annotations

# The beginning of a script: a job in the background, or one of `nohup`, has inherited these as ignored.
DEFAULT_SIGNALS = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
)
