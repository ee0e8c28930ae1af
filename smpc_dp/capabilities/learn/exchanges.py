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
    """Return values rounded to the grid on which noiseless messages of this L2 bound are exact."""
    bits = math.floor(math.log2(EXACT_STEPS / l2_bound))
    return np.asarray(np.ldexp(np.rint(np.ldexp(values, bits)), -bits))


@dataclass(frozen=True)
class PlannedMessages:
    """Plan of a learner's private messages: their noise, and the guarantee over all of one party.

    `participations`: how many vectors a party may send for that.
    """

    parameters: ExchangeParameters
    guarantee: PrivacyGuarantee | None = None
    participations: int = 0

    def participation_counter(self, parties: int) -> ParticipationCounter:
        """Return a counter that raises PrivacyError beyond the planned messages; never without noise."""
        return ParticipationCounter(parties, None if self.guarantee is None else self.participations)

    @property
    def claim(self) -> str:
        """The privacy claim of one message, with the adversary against whom it holds, in words."""
        return self.parameters.privacy(self.parameters.plan.parties).claim


def plan_messages(required: PrivateMessages, parties: int) -> PlannedMessages:
    """Return a plan of messages that are (epsilon, delta)-locally private together; exact without epsilon.

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
    """Exchange of one party's process: each call is a request, sent by the subclass's `meet`."""

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, for errors."""
        return f"party {party}"

    async def meet(self, vectors: Rows, edges: Recipients | None) -> dict[int, Rows]:
        """Send vectors along the edges in a request; return arrivals by sender; subclasses implement this.

        Args:
            vectors: shape (1, length), the same for all receivers; or where `edges` is None (n, length).
            edges: the recipients of each sender; None: everyone to everyone, each another vector.
        """
        raise NotImplementedError

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Exchange vectors by one request; return the partner's, or the own one without a partner."""
        vector, partner = check_rows(self, vector), check_partners(self.parties, partner)
        received = await self.meet(vector, partner_edges(partner))
        return np.asarray(received.get(int(partner[self.here[0]]), vector[0])[None])

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Send the own vector along the edges; return the weighted sum of own and received vectors."""
        vector, weights = check_rows(self, vector), check_mixing(self.parties, weights)
        received = await self.meet(vector, weight_edges(weights))
        return mixed_row(vector[0], received, int(self.here[0]), weights)[None]

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Send one vector to each party, and return the vectors that all parties sent to this one."""
        vectors = check_boxes(self, vectors)
        result = vectors.copy()
        for party, vector in (await self.meet(vectors[0], None)).items():
            result[0, party] = vector
        return result


def request_of(
    parameters: ExchangeParameters, edges: Recipients | None
) -> tuple[ExchangeParameters, list[int]]:
    """Return a request's parameters and the ascending numbers of parties that its edges concern."""
    if edges is None:
        return parameters.to_each(), list(range(parameters.plan.parties))
    involved = sorted({*edges, *(party for sent in edges.values() for party in sent)})
    index = {party: number for number, party in enumerate(involved, 1)}
    numbered = tuple(tuple(sorted(index[to] for to in edges.get(party, []))) for party in involved)
    return parameters.between(numbered), involved


def partner_edges(partner: Parties) -> Recipients:
    """Return, for each party that has a partner, this partner as the recipient of its message."""
    return {int(party): [int(partner[party])] for party in np.flatnonzero(partner != np.arange(len(partner)))}


def mixed_row(own: Rows, received: dict[int, Rows], party: int, weights: sparse.csr_array) -> Rows:
    """Return the weighted sum of a party's own and received vectors, by its row of weights.

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
    """Return the recipients of each sender: the parties that give the sender a nonzero weight."""
    entries = weights.tocoo()
    edges: Recipients = {}
    for receiver, sender, weight in zip(entries.row, entries.col, entries.data, strict=True):
        if receiver != sender and weight != 0:
            edges.setdefault(int(sender), []).append(int(receiver))
    return edges
