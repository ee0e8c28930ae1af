"""Exchanges over the in-memory network: the roles of one request, and a learner's messages by party."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smpc_dp.capabilities.learn.averager import Parties, Rows
from smpc_dp.capabilities.learn.exchanges import ExchangeOfProcess, PlannedMessages, Recipients, request_of
from smpc_dp.encoding import RingVector
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.session.exchange import states
from smpc_dp.session.exchange.params import ExchangeParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, simulated_run
from smpc_dp.transport.memory import Faults, MemoryNetwork


def drive_exchange(
    parameters: ExchangeParameters,
    ring_vector: Sequence[RingVector],
    *,
    request: int = 1,
    seed_for_simulation: int | None = None,
    kill: Mapping[int, int] | None = None,
) -> tuple[list[Run[Outcome]], dict[str, SmpcError]]:
    """Run an exchange to its end; return its parties, and the errors of those that failed, by name.

    `kill`: by the index of a party, the number of the message before which it dies.
    """
    simulated = simulated_run(
        len(ring_vector),
        request=request,
        seed_for_simulation=seed_for_simulation,
        protocol=parameters.protocol,
        operation=parameters.planned(),
    )
    names = simulated.context.names
    parties = [
        states.party(simulated.context, parameters, simulated.signers[name], brought, simulated.sources[name])
        for name, brought in zip(names, ring_vector, strict=True)
    ]
    aggregator = states.aggregator(simulated.context, parameters, simulated.signers[AGGREGATOR])
    issues = Faults(kill={names[index]: message for index, message in (kill or {}).items()})
    errors = drive([aggregator, *parties], MemoryNetwork(issues, seed=seed_for_simulation or 0), AGGREGATOR)
    return parties, errors


@dataclass(frozen=True, slots=True)
class _Call:
    """One party's call to take part in a request."""

    vectors: Rows
    edges: Recipients | None
    answer: asyncio.Future[dict[int, Rows]]


class MemoryRelay:
    """Serves the exchanges of parties that each run a learner in a task of their own.

    A request begins when all parties that are still there have made their call, which must be the same
    everywhere. `kill`: by party, the request in which it dies, before its second message.
    `seed_for_simulation` makes the run reproducible and thereby insecure.
    """

    def __init__(
        self,
        parties: int,
        exchanging: PlannedMessages,
        *,
        seed_for_simulation: int | None = None,
        kill: Mapping[int, int] | None = None,
    ) -> None:
        self.parties = parties
        self.exchanging = exchanging
        self.exchanges = [MemoryExchange(self, party) for party in range(parties)]
        self._seed, self._kill = seed_for_simulation, dict(kill or {})
        self._calls: dict[int, _Call] = {}
        self._left: set[int] = set()
        self._requests = 0

    async def call(self, party: int, vectors: Rows, edges: Recipients | None) -> dict[int, Rows]:
        """Take part in the next request for a party, and return the vectors that it is sent."""
        answer: asyncio.Future[dict[int, Rows]] = asyncio.get_running_loop().create_future()
        self._calls[party] = _Call(vectors, edges, answer)
        self._begin()
        return await answer

    def leave(self, party: int) -> None:
        """Go on without this party, which is missing from now on."""
        self._left.add(party)
        self._begin()

    def _begin(self) -> None:
        """Begin the request if all parties that are still there have called."""
        if not self._calls or len(self._calls) + len(self._left) < self.parties:
            return
        calls, self._calls = self._calls, {}
        self._requests += 1
        first = next(iter(calls.values()))
        for party, call in calls.items():
            if call.edges != first.edges:
                raise LocalError(
                    f"party {party} makes another call than the others in request {self._requests}"
                )
        if first.edges is not None and not first.edges:
            for call in calls.values():
                call.answer.set_result({})
            return
        self._run(calls, first.edges)

    def _run(self, calls: dict[int, _Call], edges: Recipients | None) -> None:
        """Run the exchange of these calls, and hand each party its result."""
        parameters, involved = request_of(self.exchanging.parameters, edges)
        dying = {sender for sender, request in self._kill.items() if request == self._requests}
        ring_vector = [
            self._ring_vector(parameters, calls[sender].vectors)
            if sender in calls
            else np.zeros(parameters.shape, parameters.encoding.dtype)
            for sender in involved
        ]
        kill = {index: 2 for index, sender in enumerate(involved) if sender in dying}
        kill |= {index: 1 for index, sender in enumerate(involved) if sender in self._left}
        seed = None if self._seed is None else self._seed + (self._requests << 32)
        parties, errors = drive_exchange(
            parameters, ring_vector, request=self._requests, seed_for_simulation=seed, kill=kill
        )
        number = {party.name: sender for party, sender in zip(parties, involved, strict=True)}
        by_party = {number[party.name]: party for party in parties}
        for sender, call in calls.items():
            party = by_party.get(sender)
            if sender in dying:
                call.answer.set_exception(LocalError(f"party {sender} was killed"))
            elif party is None:
                call.answer.set_result({})
            elif party.name in errors:
                call.answer.set_exception(errors[party.name])
            else:
                received = party.state.received.items()
                call.answer.set_result(
                    {number[name]: parameters.real(ring_vector) for name, ring_vector in received}
                )

    def _ring_vector(self, parameters: ExchangeParameters, vectors: Rows) -> RingVector:
        """Encode a party's vectors for the exchange."""
        rows = [parameters.encoding.encode(vector, party="a party")[0] for vector in vectors]
        return np.stack(rows).reshape(parameters.shape)


class MemoryExchange(ExchangeOfProcess):
    """Exchange of one party of a `MemoryRelay`; a `PeerExchange`."""

    def __init__(self, aggregator: MemoryRelay, party: int) -> None:
        if not 0 <= party < aggregator.parties:
            raise ConfigError.at("user", f"must be below {aggregator.parties}, is {party}", ConfigCheck.RANGE)
        self._aggregator, self._own = aggregator, party
        self._participations = aggregator.exchanging.participation_counter(aggregator.parties)

    @property
    def parties(self) -> int:
        """The number of parties of the aggregator."""
        return self._aggregator.parties

    @property
    def here(self) -> Parties:
        """The local party."""
        return np.array([self._own])

    @property
    def claim(self) -> str:
        """The privacy of the messages in a real run, in words."""
        return f"a simulation of: {self._aggregator.exchanging.claim}"

    async def meet(self, vectors: Rows, edges: Recipients | None) -> dict[int, Rows]:
        """Take part in one request; see `ExchangeOfProcess.meet`."""
        if edges is None or self._own in edges:
            self._participations.count(self.here)
        return await self._aggregator.call(self._own, vectors, edges)

    def leave(self) -> None:
        """Leave: be missing from now on."""
        self._aggregator.leave(self._own)
