"""Plan messages between two parties: their grid, the noise on each vector, and the recipients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smpc_dp.capabilities.learn.averager import (
    Boxes,
    Location,
    ParticipationCounter,
    Parties,
    Rows,
    check_boxes,
    check_mixing,
    check_partners,
    check_rows,
)
from smpc_dp.capabilities.learn.methods import calibrate, total_guarantee
from smpc_dp.capabilities.learn.requirements import STEPS, PrivateMessages
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.session.exchange.params import ExchangeParameters, plan_exchange

if TYPE_CHECKING:
    from scipy import sparse

# The recipients of each party that sends.
Recipients = dict[int, list[int]]
# Messages without noise are rounded to this fraction of the bound.
EXACT_STEPS = 1 << 40


def round_to_messages_grid(values: Rows, l2_bound: float) -> Rows:
    """Round values to the grid of messages without noise of this bound, which carry them exactly."""
    bits = math.floor(math.log2(EXACT_STEPS / l2_bound))
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits)), -bits))


@dataclass(frozen=True)
class PlannedMessages:
    """Planned messages; `guarantee` is of all messages of one party together, None without noise.

    `participations`: how many vectors a party may send for that.
    """

    parameters: ExchangeParameters
    guarantee: PrivacyGuarantee | None = None
    participations: int = 0

    def participation_counter(self, parties: int) -> ParticipationCounter:
        """Return a counter that keeps each of so many parties within `participations`."""
        return ParticipationCounter(parties, None if self.guarantee is None else self.participations)

    @property
    def claim(self) -> str:
        """The privacy of one message, and the adversary against whom it holds, in words."""
        return self.parameters.privacy(self.parameters.plan.parties).claim


def plan_messages(required: PrivateMessages, parties: int) -> PlannedMessages:
    """Plan messages with local differential privacy: all vectors of a party are (epsilon, delta)-DP.

    Raises ConfigError if no noise can do that.
    """
    if required.epsilon is None or required.delta is None:
        precision = required.l2_bound / EXACT_STEPS
        return PlannedMessages(
            plan_exchange(parties, length=required.length, l2_bound=required.l2_bound, precision=precision)
        )
    count = max(1, int(required.participations.max(initial=0)))

    def one(epsilon: float, delta: float) -> ExchangeParameters:
        """Return the parameters of one message of this epsilon and delta."""
        return plan_exchange(
            parties,
            length=required.length,
            l2_bound=required.l2_bound,
            precision=required.l2_bound / STEPS,
            epsilon=epsilon,
            delta=delta,
        )

    parameters = calibrate(one, required.epsilon, required.delta, count)
    guarantee = total_guarantee(
        (required.epsilon, required.delta),
        parties,
        parameters.encoding.diameter,
        f"{count} vectors at most, each with discrete Gaussian noise of variance {parameters.variance}",
        "none about others: local differential privacy; who sends to whom is public",
        "a party's vectors",
    )
    return PlannedMessages(parameters, guarantee, count)


class ExchangeOfProcess(Location):
    """A `PeerExchange` of one party: each call is one request, sent by the subclass's `meet`."""

    def name_of(self, party: int) -> str:
        """Return the name of a party, for errors."""
        return f"party {party}"

    async def meet(self, vectors: Rows, edges: Recipients | None) -> dict[int, Rows]:
        """Run one request; return the received vectors by sender.

        Args:
            vectors: shape (1, length), the same for all receivers; or where `edges` is None (n, length).
            edges: the recipients of each sender; None: everyone to everyone, each another vector.
        """
        raise NotImplementedError

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Return the partner's vector; see `PeerExchange.exchange`."""
        vector, partner = check_rows(self, vector), check_partners(self.parties, partner)
        received = await self.meet(vector, partner_edges(partner))
        return np.asarray(received.get(int(partner[self.here[0]]), vector[0])[None])

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Return the weighted sum of the own vector and those received; see `PeerExchange.mix`."""
        vector, weights = check_rows(self, vector), check_mixing(self.parties, weights)
        received = await self.meet(vector, weight_edges(weights))
        return mixed_row(vector[0], received, int(self.here[0]), weights)[None]

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Return the vector from every party to this one; see `PeerExchange.all_to_all`."""
        vectors = check_boxes(self, vectors)
        result = vectors.copy()
        for party, vector in (await self.meet(vectors[0], None)).items():
            result[0, party] = vector
        return result


def request_of(
    parameters: ExchangeParameters, edges: Recipients | None
) -> tuple[ExchangeParameters, list[int]]:
    """Return a request's parameters and parties, ascending; `edges` as of `ExchangeOfProcess.meet`."""
    if edges is None:
        return parameters.to_each(), list(range(parameters.plan.parties))
    involved = sorted({*edges, *(party for sent in edges.values() for party in sent)})
    index = {party: number for number, party in enumerate(involved, 1)}
    numbered = tuple(tuple(sorted(index[to] for to in edges.get(party, []))) for party in involved)
    return parameters.between(numbered), involved


def partner_edges(partner: Parties) -> Recipients:
    """Return the recipient of each party that has a partner."""
    return {int(party): [int(partner[party])] for party in np.flatnonzero(partner != np.arange(len(partner)))}


def mixed_row(own: Rows, received: dict[int, Rows], party: int, weights: sparse.csr_array) -> Rows:
    """Return the weighted sum of a party's own vector and those received, (length,).

    In the order of `IdealExchange`, the own vector last, so that both have the same bits.
    """
    row = weights[[party]].tocoo()
    total, mine = np.zeros_like(own), 0.0
    for other, weight in sorted(zip(row.col.tolist(), row.data.tolist(), strict=True)):
        if other == party:
            mine = weight
        elif weight != 0:
            total += weight * received[other]
    return np.asarray(mine * own + total)


def weight_edges(weights: sparse.csr_array) -> Recipients:
    """Return the recipients of each sender: l sends to k where weights[k, l] is not zero."""
    entries = weights.tocoo()
    edges: Recipients = {}
    for receiver, sender, weight in zip(entries.row, entries.col, entries.data, strict=True):
        if receiver != sender and weight != 0:
            edges.setdefault(int(sender), []).append(int(receiver))
    return edges
