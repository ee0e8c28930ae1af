"""Messages between single users by the machines of the protocol, for a whole network in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smpc_dp.errors import LocalError
from smpc_dp.learn.averager import Rows, Users, check_mixing, check_partners, check_rows
from smpc_dp.learn.exchanges import Exchanging, among, mixed_row, partner_edges, weight_edges
from smpc_dp.protocols.exchange.params import ExchangeParameters
from smpc_dp.simulate.averagers import cast_exchange

if TYPE_CHECKING:
    from scipy import sparse


class MachineExchange:
    """Messages by the machines of every user and the hub, over an in-memory network; a `PeerExchange`.

    `seed_for_simulation` makes the run reproducible and thereby insecure.
    """

    def __init__(self, users: int, exchanging: Exchanging, seed_for_simulation: int | None = None) -> None:
        self._here = np.arange(users)
        self._exchanging = exchanging
        self._planned = exchanging.planned(users)
        self._seed = seed_for_simulation
        self._requests = 0

    @property
    def users(self) -> int:
        """n: all users live here."""
        return len(self._here)

    @property
    def here(self) -> Users:
        """All users."""
        return self._here

    @property
    def claim(self) -> str:
        """What a message gives away in a real run."""
        return f"a simulation of: {self._exchanging.claim}"

    async def exchange(self, vector: Rows, partner: Users) -> Rows:
        """Return the partners' vectors as they arrive; see `PeerExchange.exchange`."""
        vector, partner = check_rows(self, vector), check_partners(self.users, partner)
        received = self._run(vector, partner_edges(partner))
        found = vector.copy()
        for user, heard in received.items():
            found[user] = heard[int(partner[user])]
        return found

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Return the weighted sums of what arrives; see `PeerExchange.mix`."""
        vector, weights = check_rows(self, vector), check_mixing(self.users, weights)
        received = self._run(vector, weight_edges(weights))
        rows = [mixed_row(own, received.get(user, {}), user, weights) for user, own in enumerate(vector)]
        return np.array(rows).reshape(vector.shape)

    def _run(self, vector: Rows, edges: dict[int, list[int]]) -> dict[int, dict[int, Rows]]:
        """Return what each user that is in the request was sent, by its sender."""
        self._requests += 1
        if not edges:
            return {}
        self._planned.take(np.array(sorted(edges), dtype=np.intp))
        parameters, involved = among(self._exchanging.parameters, edges)
        if not isinstance(parameters, ExchangeParameters):
            raise LocalError("an exchange has its own parameters")
        seed = None if self._seed is None else self._seed + (self._requests << 32)
        parties = cast_exchange(
            parameters, vector[involved], request=self._requests, seed_for_simulation=seed
        )
        names = {party.name: user for party, user in zip(parties, involved, strict=True)}
        return {
            names[party.name]: {names[name]: parameters.real(lanes) for name, lanes in party.received.items()}
            for party in parties
        }
