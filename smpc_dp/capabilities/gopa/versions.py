"""Name and versions of GOPA, and the kind of its sessions as written. This module loads no protocol."""

from __future__ import annotations

from collections.abc import Mapping

GOPA = "gopa"
# From three parties up a session tolerates one colluding party, unless its file says otherwise.
VERSION = 5
# An earlier version, whose sessions are run: the same messages, with another default of `corrupt`. It is the
# version of the runs of groups of learners too, and of their session.
EARLIER_VERSION = 4
# Earlier versions, of which logs are audited and no session is run: of verifiable sessions, and of those
# without verifiable averages, which have logs of statistics of pairs.
AUDITED_VERSIONS, PLAIN_VERSION = (2, 3), 1
# In it bounds of published values did not hold for keys that others chose.
UNBOUNDED_VERSION = 2


def is_verifiable(parameters: Mapping[str, object]) -> bool:
    """Tell whether the `[parameters]` of a session file ask for verifiable averages."""
    return parameters.get("verifiable") is True


def is_direct(parameters: Mapping[str, object]) -> bool:
    """Tell whether the `[parameters]` ask for channels between all parties, without an aggregator."""
    return parameters.get("topology") == "direct"
