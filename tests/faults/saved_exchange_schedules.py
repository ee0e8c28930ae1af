"""Simulated exchanges with saved states, whose members crash and are started again.

`python -m tests.faults.saved_exchange_schedules --runs 1000` plays so many in simulated time, as
`saved_session_schedules` does for sums. Members call what the requests of a learner's messages call, and go
on with the request whose result they have not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np

from smpc_dp.capabilities.learn.exchanges import PlannedMessages, Recipients, request_of
from smpc_dp.capabilities.learn.requests.averaging import LearnerRequests
from smpc_dp.capabilities.learn.requests.exchanging import AggregatorExchange, PartyExchange
from smpc_dp.errors import SmpcError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.connection import IN_TOTAL, AggregatorConnection
from smpc_dp.session.events import ignore
from smpc_dp.session.exchange.messages import HELLO
from smpc_dp.session.exchange.params import ExchangeParameters, plan_exchange
from smpc_dp.session.member import Membership
from smpc_dp.session.opening import open_connection
from smpc_dp.session.requests import Counter
from smpc_dp.wire.envelope import Envelope
from tests.faults import saved_session_schedules as sums
from tests.faults.saved_session_schedules import EXACT, PARTIES, Crashing, Kind

LENGTH, BOUND, EPSILON = 2, 8.0, 4.0
# Round a ring, from all to all, and from one party to the others.
EDGES: tuple[Recipients, ...] = (
    {0: [1], 1: [2], 2: [0]},
    {0: [1, 2], 1: [0, 2], 2: [0, 1]},
    {1: [0, 2]},
)
KIND = Kind("secagg", (EXACT,), 40, 15)


@cache
def parameters() -> ExchangeParameters:
    """Return noisy messages."""
    return plan_exchange(
        PARTIES, length=LENGTH, l2_bound=BOUND, precision=BOUND / 64, epsilon=EPSILON, delta=1e-5
    )


@dataclass
class CrashingExchanges(Crashing):
    """The members of one run.

    Attributes:
        is_once: whether a ledger is charged for all messages together, with the first.
        told: the signature of each message, by run, step and both ends.
    """

    is_once: bool = False
    told: dict[tuple[bytes, str, str, str], bytes] = field(default_factory=dict)
    twice: list[tuple[bytes, str, str, str]] = field(default_factory=list)

    def on_message(self, envelope: Envelope, size: int) -> None:
        """See `Crashing.on_message`; note a second message of one step."""
        key = (envelope.run_id, envelope.step, envelope.sender, envelope.receiver)
        # Hellos of all requests have the session's digest in the place of a run id.
        if envelope.step != HELLO and self.told.setdefault(key, envelope.signature) != envelope.signature:
            self.twice.append(key)
        super().on_message(envelope, size)

    def _group(self, membership: Membership, number: int) -> Membership:
        asked, involved = request_of(parameters(), EDGES[number - 1])
        return membership.of_group(asked, tuple(self.simulated.parties[party] for party in involved))

    async def serve(self, name: str) -> None:
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        first = state.first_request()
        try:
            logs = log_folder(membership, self.folder / "session.toml", None)
            async with open_aggregator(membership, logs=logs, state=state) as server:
                served = LearnerRequests(membership, server.request)
                if first > 1:
                    server.resume_earlier(first, self._group(membership, first - 1))
                exchange = AggregatorExchange(served, PlannedMessages(parameters()), Counter(first - 1))
                for edges in EDGES[first - 1 :]:
                    await exchange._serve(edges)
                if first <= len(EDGES):
                    await server.end()
                assert not served.failures, served.failures
        finally:
            state.close()

    async def _compute(self, name: str) -> None:
        membership, state = self.simulated.membership(name, self.folder), self.state(name)
        ledger, connection = Ledger.open(self.ledger(name)), None
        got, own = self.results.setdefault(name, []), self.simulated.parties.index(name)
        try:
            connection = await open_connection(membership, ignore, state=state)
            assert isinstance(connection, AggregatorConnection)
            counter, whole = Counter(len(got)), parameters().event() if self.is_once else None
            exchange = PartyExchange(
                membership, PlannedMessages(parameters()), counter, connection, ledger, whole
            )
            for edges in EDGES[len(got) :]:
                received = await exchange.meet(np.full((1, LENGTH), 1.0 + own), edges)
                got.append({sender: vector.tolist() for sender, vector in received.items()})
            await connection.close()
        except SmpcError as error:
            got.append(error)
        finally:
            if connection is not None:
                connection.connections.abort()
            state.close()

    def check(self) -> None:
        """Raise AssertionError unless each message is there, the same for all its receivers, and charged."""
        shown = f"{self.crashed}: {self.results}"
        assert not self.twice, f"{self.twice}: {shown}"
        for number, edges in enumerate(EDGES):
            received = [self._received(name, number) for name in self.simulated.parties]
            for to, got in enumerate(received):
                senders = {sender for sender, receivers in edges.items() if to in receivers}
                assert got is None or got.keys() == senders, shown
            for sender, receivers in edges.items():
                there = [got for to in receivers if (got := received[to]) is not None]
                assert all(got[sender] == there[0][sender] for got in there), shown
        for party, name in enumerate(self.simulated.parties):
            sends = sum(party in edges for edges in EDGES)
            assert len(Ledger.open(self.ledger(name)).entries()) == (1 if self.is_once else sends), shown

    def _received(self, name: str, number: int) -> dict[int, list[float]] | None:
        """Return what a party has received; None where it came after the aggregator's last request."""
        got: dict[int, list[float]] | SmpcError = self.results[name][number]
        if not isinstance(got, SmpcError):
            return got
        assert number == len(EDGES) - 1, f"{name}: {got}"
        assert "not reached" in str(got), f"{name}: {got}"
        assert IN_TOTAL in str(got), f"{name}: {got}"
        return None

    @property
    def became(self) -> str:
        """How many parties came back after the aggregator's last request, and lack its result."""
        late = sum(isinstance(got[-1], SmpcError) for got in self.results.values())
        return f"{late} too late" if late else "all results"


def play(seed: int, folder: Path) -> CrashingExchanges:
    """Play one run; raise AssertionError unless all go on to all messages."""
    made: Callable[..., CrashingExchanges] = partial(CrashingExchanges, is_once=seed % 2 == 0)
    return sums.play_kind(seed, folder, KIND, made)


if __name__ == "__main__":
    sums.main({"exchange": play})
