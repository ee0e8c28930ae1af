"""How many losses and corrupt members the requests of a session tolerate."""

from __future__ import annotations

import msgspec

from smpc_dp.protocols.names import has_servers
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.runtime.member import learning_of
from smpc_dp.runtime.session_file import SessionFile


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
    learning = learning_of(session)
    plans: tuple[object, ...] = (session.checked_parameters,)
    if learning is not None:
        plans = (*learning.planned, *learning.shared)
    found = [
        Tolerance(one.plan.parties, one.plan.max_dropouts, one.plan.max_corrupt)
        for one in plans
        if isinstance(one, SumParameters)
    ]
    if has_servers(session.protocol, session.parameters):
        found += _of_servers(plans, len(session.roster.servers))
    return list(dict.fromkeys(found))


def _of_servers(plans: tuple[object, ...], servers: int) -> list[Tolerance]:
    # Not at the top: sessions with servers alone have such parameters.
    from smpc_dp.protocols.mpyc.params import SharedParameters, threshold_of

    return [
        Tolerance(one.users, one.users - one.fewest, one.users, servers, threshold_of(servers))
        for one in plans
        if isinstance(one, SharedParameters)
    ]
