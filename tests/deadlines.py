"""Deadlines of sessions in which nobody is missing."""

from smpc_dp.session.session_file import Timeouts

# Longer than a test may take: on a loaded machine a process gets no processor for seconds, and then a party
# that only waits would be missing.
HOURS = Timeouts(connect=7200.0, step=7200.0, gather=7200.0)
