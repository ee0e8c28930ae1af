"""What an auditor from the run would ask for: its session and its run, as the log's own header has them."""

from __future__ import annotations

import json
from contextlib import suppress

from smpc_dp.net.audit_selection import Wanted
from smpc_dp.protocols.session import session_digest


def of_itself(log: bytes) -> Wanted:
    """Return session and run of a log; of one without a right header nothing."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        header = json.loads(log.partition(b"\n")[0])
        return Wanted(session=session_digest(header["session"].encode()).hex(), run=header["run_id"])
    return Wanted()
