"""A learner between processes: its averages are requests of a session, each for one group of the parties.

Every process runs the same learner: a party with its own row, the aggregator with no row at all. Each call
takes as many request numbers as it has groups, in the order of their labels; since the groups are public,
everyone counts alike, and who is in none of them goes on at once.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError, Fault, SmpcError, TimeoutFault
from smpc_dp.learn.averager import Averaged, Groups, Rows, Users, check_average
from smpc_dp.learn.data import read_table
from smpc_dp.learn.methods import Averaging, check_weights
from smpc_dp.learn.needs import Learned, Means
from smpc_dp.learn.registry import LearnParameters
from smpc_dp.protocols.result import Result
from smpc_dp.runtime.aggregator import Server, aggregator_name, open_logs, open_server
from smpc_dp.runtime.events import Event, OnEvent, ignore
from smpc_dp.runtime.exchanging import HubExchange, PartyExchange
from smpc_dp.runtime.line import HubLine
from smpc_dp.runtime.member import Membership
from smpc_dp.runtime.requests import AggregatorLostError, Counter, EverybodyLeftError
from smpc_dp.runtime.session import open_ledger
from smpc_dp.runtime.session_file import load_session

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt


class _Requests:
    """What the averagers of both sides share: who is in which request, with which parameters."""

    def __init__(self, membership: Membership, averaging: Averaging, counter: Counter, purpose: str) -> None:
        self._membership = membership
        self._averaging = averaging
        self._counter = counter
        self._purpose = purpose
        self._names = [member.name for member in membership.session.roster.parties]

    @property
    def users(self) -> int:
        """n, the parties of the roster."""
        return len(self._names)

    @property
    def claim(self) -> str:
        """What an average gives away, of the largest group planned."""
        return self._averaging.claim

    def _number(self, group: Groups) -> dict[int, int]:
        """Return the request number of each group, by its label."""
        labels = np.unique(group[group >= 0])
        first = self._counter.take(len(labels))
        return {int(label): first + place for place, label in enumerate(labels)}

    def _of(self, group: Groups, label: int) -> Membership:
        names = tuple(self._names[user] for user in np.flatnonzero(group == label))
        return self._membership.of_group(self._averaging.plan(len(names)), names)


class PartyAverager(_Requests):
    """The averages of one party; an `Averager` whose one row is its own.

    `charged`: the ledger, if there is one and the averages are private.
    """

    def __init__(
        self,
        membership: Membership,
        averaging: Averaging,
        counter: Counter,
        purpose: str,
        line: HubLine,
        charged: Ledger | None,
        on_event: OnEvent,
    ) -> None:
        super().__init__(membership, averaging, counter, purpose)
        self._line = line
        self._ledger = charged
        self._planned = averaging.planned(self.users)
        self._on_event = on_event
        self._last = 0

    @property
    def here(self) -> Users:
        """The party's own number."""
        return np.array([self._names.index(self._membership.name)])

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Return the average of the survivors of the party's group; see `Averager.average`.

        Raises:
            PrivacyError: the ledger refuses, or the plan; nothing of the vector has left.
            AggregatorLostError: no further average can be had.
        """
        vector, weight, group = check_average(self, vector, weight, group)
        check_weights(weight)
        numbers = self._number(group)
        own = int(group[self.here[0]])
        if own not in numbers:
            return Averaged(vector.copy(), np.zeros(1))
        number = numbers[own]
        membership = self._of(group, own)
        self._planned.take(self.here)
        before, self._last = number - self._last - 1, number
        try:
            lanes, _ = membership.parameters.encoding.encode(vector[0], party=membership.name)
        except SmpcError as error:
            # The others must not wait for this vector.
            await self._line.decline_as(membership, number, error)
            raise
        question = " ".join(part for part in (self._purpose, membership.parameters.planned()) if part)

        async def charge(run_id: bytes) -> Receipt | None:
            ledger = self._ledger
            if ledger is None:
                return None
            return await asyncio.to_thread(lambda: ledger.charge(run_id, membership.parameters.event()))

        try:
            outcome, _ = await self._line.run_as(membership, number, question, lanes, charge, before)
        except TimeoutFault as error:
            if not self._line.live:
                raise AggregatorLostError(
                    f"{membership.aggregator}: lost in request {number}: {error}"
                ) from None
            raise
        self._on_event(Event(membership.name, "step", number, f"{self._purpose} of {len(outcome.survivors)}"))
        result = Result.of(outcome, "average")
        return Averaged(
            np.asarray(result.value, dtype=np.float64)[None],
            np.array([float(result.weight)]),
            outcome.privacy.guarantee,
        )


class HubAverager(_Requests):
    """The aggregator's part in the averages: it serves each group, and has no row of its own.

    `failures` collects, by request number, what went wrong in groups that failed.
    """

    def __init__(
        self, membership: Membership, averaging: Averaging, counter: Counter, purpose: str, server: Server
    ) -> None:
        super().__init__(membership, averaging, counter, purpose)
        self._server = server
        self.failures: dict[int, str] = {}

    @property
    def here(self) -> Users:
        """Nobody."""
        return np.zeros(0, dtype=np.intp)

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Serve every group of the call, one after the other; a group that fails is told so itself.

        Raises:
            EverybodyLeftError: nobody is connected any more.
        """
        vector, weight, group = check_average(self, vector, weight, group)
        for label, number in self._number(group).items():
            ended = await self._server.request(number, self._of(group, label))
            if ended is None:
                raise EverybodyLeftError(f"all parties have left before request {number}")
            if isinstance(ended, SmpcError):
                self.failures[number] = str(ended)
        return Averaged(vector, np.zeros(0))


async def learn(
    session: str | os.PathLike[str],
    party: str,
    data: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    on_event: OnEvent = ignore,
) -> Learned:
    """Be one party of a session that learns, with the points in the file `data`.

    Args:
        session: path of a session file with protocol "learn".
        data: a table, one point a line, the label last; see `learn.data.read_table`.
        key, ledger, on_event: as for `connect`. Each average of private vectors that the party takes part in,
            and each message or all together, is charged before anything that depends on its data leaves.

    Raises:
        ConfigError: the session, the data or a rate that diverges.
        PrivacyError: the ledger's budget is too small for the steps planned; nothing was sent.
        AggregatorLostError: the aggregator is gone. LocalError, TimeoutFault, PeerFault: as for `connect`.
    """
    membership = Membership.load(session, party, key)
    parameters = learn_parameters(membership)
    table = await asyncio.to_thread(read_table, data)
    parameters.learner.check_data(table, party)
    book = None if ledger is None else await asyncio.to_thread(open_ledger, ledger, party)
    own = [member.name for member in membership.session.roster.parties].index(party)
    if book is not None:
        await asyncio.to_thread(check_budget, book, parameters, own)
    line = await HubLine.open(membership, membership.endpoint(), on_event)
    counter = Counter()

    def averager(averaging: Averaging | None, purpose: str, charged: Ledger | None) -> PartyAverager | None:
        if averaging is None:
            return None
        return PartyAverager(membership, averaging, counter, purpose, line, charged, on_event)

    try:
        exchange = None
        if parameters.exchange is not None:
            # Where steps are not private one by one, all at once, before the first message.
            whole = None if book is None else own_release(parameters)
            exchange = PartyExchange(membership, parameters.exchange, counter, line, book, whole)
        means = Means(
            averager(parameters.average, "average", book),
            averager(parameters.mix, "mix", None),
            exchange,
        )
        learned = await parameters.learner.run(means, [table])
    finally:
        await line.close()
    on_event(Event(party, "done", counter.taken, "done"))
    return parameters.completed(learned)


def check_budget(ledger: Ledger, parameters: LearnParameters, user: int) -> None:
    """Raise PrivacyError unless the ledger affords all that the user is planned to take part in."""
    needs = parameters.learner.needs(parameters.users)
    planned: list[ReleaseEvent] = []
    if needs.average is not None and parameters.average is not None:
        # Groups of several sizes have noise for one and the same epsilon.
        event = next(iter(parameters.average.plans.values())).event()
        planned += [event] * int(needs.average.participations[user])
    if needs.exchange is not None and parameters.exchange is not None and parameters.exchange.guarantee:
        planned += [parameters.exchange.parameters.event()] * int(needs.exchange.participations[user])
    whole = own_release(parameters)
    if whole is not None:
        planned.append(whole)
    ledger.check(planned)


def own_release(parameters: LearnParameters) -> ReleaseEvent | None:
    """Return what a ledger is charged for all messages of a run at once; None where each is charged.

    Messages that nothing protects are an exact release, which a budget refuses.
    """
    needs = parameters.learner.needs(parameters.users)
    if needs.own is not None or parameters.exchange is None or parameters.exchange.guarantee is not None:
        return needs.own
    from smpc_dp.privacy.accountant.events import exact_release

    return exact_release("messages that nothing protects", "substitution")


async def serve_learning(
    session: str | os.PathLike[str],
    *,
    name: str | None = None,
    key: str | os.PathLike[str] | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    board: str | os.PathLike[str] | None = None,
    begin_with: int | None = None,
) -> dict[int, str]:
    """Be the aggregator of a session that learns, to the end of its schedule; arguments as of `serve`.

    It begins when `begin_with` parties (None: all) have connected, or `connect` seconds have passed. Who
    comes later takes part in its groups from then on.

    Returns what went wrong in groups that failed, by request number.
    """
    membership = Membership.load(session, name or aggregator_name(session), key, "aggregator")
    parameters = learn_parameters(membership)
    logs = open_logs(membership, session, board)
    failures: dict[int, str] = {}
    async with open_server(membership, listen_on, logs=logs, on_event=on_event) as server:
        await server.gather(begin_with)
        counter = Counter()

        def averager(averaging: Averaging | None, purpose: str) -> HubAverager | None:
            if averaging is None:
                return None
            made = HubAverager(membership, averaging, counter, purpose, server)
            made.failures = failures
            return made

        exchange = None
        if parameters.exchange is not None:
            exchange = HubExchange(membership, parameters.exchange, counter, server)
            exchange.failures = failures
        means = Means(averager(parameters.average, "average"), averager(parameters.mix, "mix"), exchange)
        try:
            await parameters.learner.run(means, [])
        except EverybodyLeftError as error:
            failures[counter.taken] = str(error)
    on_event(Event(membership.name, "done", counter.taken, "done"))
    return failures


def learn_parameters(membership: Membership) -> LearnParameters:
    """Return the parameters of a session that learns; raise ConfigError for another."""
    checked = membership.session.checked_parameters
    if not isinstance(checked, LearnParameters):
        raise ConfigError([Fault("protocol", f"is '{membership.session.protocol}', not 'learn'")])
    return checked


def is_learning(session: str | os.PathLike[str]) -> bool:
    """Tell whether a session file is of protocol "learn"."""
    return isinstance(load_session(session).checked_parameters, LearnParameters)
