"""Deadlines of sessions in which nobody is missing, and how long a test waits."""

from smpc_dp.session.session_file import Timeouts

# Longer than a test may take: on a loaded machine a process gets no processor for seconds, and then a party
# that only waits would be missing.
HOURS = Timeouts(connect=7200.0, step=7200.0, gather=7200.0)

# Seconds for what comes at once, but on a machine that is busy. In sessions with the deadlines above it would
# otherwise come after hours.
WAIT = 300.0
