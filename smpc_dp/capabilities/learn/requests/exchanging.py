"""Messages of a learner between processes: each call is one request, sealed through the aggregator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from smpc_dp.capabilities.learn.averager import (
    Boxes,
    Parties,
    Rows,
    check_boxes,
    check_mixing,
    check_partners,
    check_rows,
)
from smpc_dp.capabilities.learn.exchanges import (
    ExchangeOfProcess,
    PlannedMessages,
    Recipients,
    partner_edges,
    request_of,
    weight_edges,
)
from smpc_dp.capabilities.learn.requests.averaging import LearnerRequests
from smpc_dp.capabilities.learn.requests.saved_averages import Tally
from smpc_dp.errors import SmpcError
from smpc_dp.session.charging import Raised, charge_run
from smpc_dp.session.connection import Connection
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import Counter
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from scipy import sparse

    from smpc_dp.encoding import RingVector
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt


class _Exchanges:
    """Base of both sides of a learner's messages in a session: a request's parties and its edges."""

    def __init__(self, membership: Membership, exchanging: PlannedMessages, counter: Counter) -> None:
        self._membership = membership
        self._exchanging = exchanging
        self._counter = counter
        self._names = membership.session.roster.party_names

    @property
    def parties(self) -> int:
        """The number n of parties in the roster."""
        return len(self._names)

    @property
    def claim(self) -> str:
        """The privacy claim of the exchanged messages, in words, with its adversaries."""
        return self._membership.claim(self._exchanging.claim)

    def name_of(self, party: int) -> str:
        """Return the name of the party with this index in the roster, from 0."""
        return self._names[party]

    def _of(self, edges: Recipients | None) -> Membership:
        """Return the membership of a request for the parties at these edges; None: all send to all."""
        parameters, involved = request_of(self._exchanging.parameters, edges)
        return self._membership.of_group(parameters, tuple(self._names[party] for party in involved))


class PartyExchange(_Exchanges, ExchangeOfProcess):
    """Exchange of one party's learner in a session: by requests it exchanges vectors with its neighbours.

    `charged`: the ledger, if there is one. It is charged once for each vector that is sent, whatever its
    receivers; or for `whole`, the release of all vectors, before the first. `requested`: the operation of
    each request.
    """

    def __init__(
        self,
        membership: Membership,
        exchanging: PlannedMessages,
        counter: Counter,
        connection: Connection,
        charged: Ledger | None,
        whole: ReleaseEvent | None = None,
        requested: str = "exchange",
    ) -> None:
        super().__init__(membership, exchanging, counter)
        self._connection = connection
        self._requested = requested
        self._ledger = charged
        self._whole = whole
        self._charged = False
        self._last = self._taken = 0
        self._own = self._names.index(membership.name)
        self._participations = exchanging.participation_counter(self.parties)

    @property
    def tally(self) -> Tally:
        """The counts so far: vectors sent, and the number of the last request."""
        return Tally(self._taken, self._last, 0, 0)

    def restore(self, tally: Tally) -> None:
        """Continue the counts of messages that an earlier process of the party has saved."""
        self._count(tally.participations)
        self._last = tally.last

    def _count(self, times: int = 1) -> None:
        """Count vectors that the party sends; raise PrivacyError beyond the planned number."""
        for _ in range(times):
            self._participations.count(self.here)
        self._taken += times

    @property
    def here(self) -> Parties:
        """The number of the party that this process runs, as an array of one element."""
        return np.array([self._own])

    async def meet(self, vectors: Rows, edges: Recipients | None) -> dict[int, Rows]:
        """Send the party's vectors along edges in one request; return arrivals by sender, {} without edges.

        Raises TimeoutFault naming the missing parties that are needed.
        """
        number = self._counter.take(1)
        if edges is not None and not edges:
            return {}
        membership = self._of(edges)
        if membership.name not in membership.names:
            return {}
        # Others may be at requests since this party's last one, and no earlier ones.
        before, self._last = number - self._last - 1, number
        sends = edges is None or self._own in edges
        if sends:
            self._count()
        parameters, name, state = membership.parameters, membership.name, self._connection.state
        scope = membership.context(number).scope
        if state.saves and number < state.number:
            raise state.progress.missing(number)
        try:
            rows = [parameters.encoding.encode(vector, party=name)[0] for vector in vectors]
        except SmpcError as error:
            if not await finish_in_thread(partial(state.is_open, number, scope)):
                # The others must not wait for this vector.
                await self._connection.decline(number, error, membership)
            raise
        ring_vector = np.stack(rows).reshape(parameters.shape)
        ledger = self._ledger if sends else None
        operation = f"{self._requested} {parameters.planned()}"
        await finish_in_thread(partial(state.begin_call, number, operation, chosen=True, scope=scope))
        once = self._whole is not None
        state.charge_to(ledger, lambda: self._whole or parameters.event(), counts=False, once=once)

        async def charge(run_id: bytes, raised: Raised | None = None) -> Receipt | None:
            if ledger is None or (self._whole is not None and self._charged):
                return None
            event = self._whole or parameters.event()
            receipt = await charge_run(ledger, lambda: event, number, run_id, raised)
            self._charged = True
            return receipt

        try:
            await self._connection.run(number, operation, ring_vector, charge, membership, before)
        except SmpcError as error:
            self._connection.fail(number, error)
        received: dict[str, RingVector] = self._connection.ended.state.received
        return {self._names.index(who): parameters.real(ring_vector) for who, ring_vector in received.items()}


class AggregatorExchange(_Exchanges):
    """Aggregator's side of a learner's messages: forwards encrypted messages that it cannot read."""

    def __init__(self, served: LearnerRequests, exchanging: PlannedMessages, counter: Counter) -> None:
        super().__init__(served.membership, exchanging, counter)
        self._served = served

    @property
    def here(self) -> Parties:
        """The parties that this process runs: none, since the aggregator only forwards."""
        return np.zeros(0, dtype=np.intp)

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        """Forward the messages of one exchange between partners; return no rows."""
        vector, partner = check_rows(self, vector), check_partners(self.parties, partner)
        await self._serve(partner_edges(partner))
        return vector

    async def mix(self, vector: Rows, weights: sparse.csr_array) -> Rows:
        """Forward the messages of one round between neighbours; return no rows."""
        vector, weights = check_rows(self, vector), check_mixing(self.parties, weights)
        await self._serve(weight_edges(weights))
        return vector

    async def all_to_all(self, vectors: Boxes) -> Boxes:
        """Forward the messages of one round from all parties to all; return no rows."""
        vectors = check_boxes(self, vectors)
        await self._serve(None)
        return vectors

    async def _serve(self, edges: Recipients | None) -> None:
        """Forward the messages of one request along these edges; with no edges only count the request."""
        number = self._counter.take(1)
        if edges is not None and not edges:
            return
        membership = self._of(edges)
        await self._served.serve(number, membership.parameters, membership.names)
