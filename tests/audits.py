"""What audits are of: a run that is verified soon, and what an auditor from the run would ask for."""

from __future__ import annotations

import json
from contextlib import suppress

from smpc_dp.logs.audits.audit_selection import Wanted
from smpc_dp.wire.canonical_session import session_digest
from smpc_dp_lab.vectors.verifiable_runs import INPUTS, PARAMETERS, Setting

# The parties of the vectors with one coordinate each: the second auditor, in Python, needs half a second for
# their proofs, and ten for those of the vectors.
ONE = Setting({name: row[:1] for name, row in INPUTS.items()}, PARAMETERS | {"length": 1})


def of_itself(log: bytes) -> Wanted:
    """Return session and run of a log; of one without a right header nothing."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        header = json.loads(log.partition(b"\n")[0])
        return Wanted(session=session_digest(header["session"].encode()).hex(), run=header["run_id"])
    return Wanted()
