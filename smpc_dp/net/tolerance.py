"""How many losses and corrupt members the requests of a session tolerate."""

from __future__ import annotations

import msgspec

from smpc_dp.net.session_file import SessionFile


class Tolerance(msgspec.Struct, frozen=True):
    """What one request of `parties` parties tolerates.

    Attributes:
        lost: so many of the parties may be lost, and the request goes on.
        corrupt: so many may collude, with the aggregator too.
        servers, curious: of so many servers so many may pool what they see; 0 where there are none. Then
            nothing depends on how many parties collude, and `corrupt` is all of them.
    """

    parties: int
    lost: int
    corrupt: int
    servers: int = 0
    curious: int = 0

    def __str__(self) -> str:
        text = f"tolerates {self.lost} lost, {self.corrupt} corrupt of {self.parties} parties"
        return text + (
            f"; {self.curious} curious of {self.servers} servers, none lost" if self.servers else ""
        )


def tolerances(session: SessionFile) -> list[Tolerance]:
    """Return what the requests of a session tolerate, each once: of one that learns there may be several."""
    servers = len(session.roster.servers)
    pool = (servers, (servers - 1) // 2) if servers else ()
    planned = getattr(session.checked_parameters, "requests", ())
    return list(dict.fromkeys(Tolerance(*one.tolerated, *pool) for one in planned))
