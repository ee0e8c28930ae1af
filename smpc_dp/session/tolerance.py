"""Numbers of losses and corrupt members that the requests of a session tolerate."""

from __future__ import annotations

from typing import Any

import msgspec

from smpc_dp.session.session_file import SessionFile


class Tolerance(msgspec.Struct, frozen=True):
    """How many parties a request may lose, how many must sign, and how many may collude.

    Attributes:
        lost: the number of parties that may be lost while the request goes on.
        later: the number of those that may be lost from a request after the first one: of its survivors none
            where all exact sums of a session are over the same.
        quorum: the number of parties that must sign a set of parties; 0 where none is signed.
        corrupt: the number of parties that may collude, with the aggregator too.
        servers, curious: the number of servers, and of those that may pool their data; 0 without servers.
            With servers nothing depends on the number of colluding parties, and `corrupt` is all of them.
    """

    parties: int
    lost: int
    corrupt: int
    later: int
    servers: int = 0
    curious: int = 0
    quorum: int = 0

    def __str__(self) -> str:
        text = f"tolerates {self.lost} lost, {self.corrupt} corrupt of {self.parties} parties"
        text += f", quorum {self.quorum}" if self.quorum else ""
        if self.later < self.lost:
            text += f"; after the first request {self.later} lost"
        return text + (
            f"; {self.curious} curious of {self.servers} servers, none lost" if self.servers else ""
        )


def tolerances(session: SessionFile) -> list[Tolerance]:
    """Return the different tolerances of a session's requests: lost and colluding parties."""
    servers = len(session.roster.servers)
    return list(dict.fromkeys(_tolerance(one, servers) for one in session.checked_parameters.requests))


def _tolerance(parameters: Any, servers: int) -> Tolerance:
    """Return how many lost and colluding parties requests with these parameters tolerate."""
    parties, lost, corrupt = parameters.tolerated
    later = 0 if parameters.keeps_survivors else lost
    curious = (servers - 1) // 2 if servers else 0
    return Tolerance(parties, lost, corrupt, later, servers, curious, parameters.quorum)
