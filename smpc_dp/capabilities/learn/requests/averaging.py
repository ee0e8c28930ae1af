"""Averages of a learner between processes: each group's average is a request of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import FAILURES, Averaged, Groups, Parties, Rows, check_average
from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.capabilities.learn.requests.saved_averages import StoredAverage, Tally
from smpc_dp.capabilities.learn.requirements import AverageEvidence
from smpc_dp.engine.result import Outcome, Result
from smpc_dp.errors import SmpcError, TimeoutFault
from smpc_dp.session.charging import charge_run
from smpc_dp.session.connection import Connection
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.member import Membership
from smpc_dp.session.progress import Progress
from smpc_dp.session.requests import Counter, EverybodyLeftError, ServerLostError, ends_session
from smpc_dp.session.session_state import LostRunError
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.session.aggregator import RequestServer


class LearnerRequests:
    """Serves a learner's requests for averages and messages, at an aggregator or a server.

    Attributes:
        failures: by request number, the errors of groups that failed.
        first: the first request to be served: earlier processes have served those before.
    """

    def __init__(
        self,
        membership: Membership,
        request: Callable[[int, Membership], Awaitable[object | None]],
        server: RequestServer | None = None,
    ) -> None:
        """`request` serves the request of this number, for a group, and returns its outcome or error.

        `server`: the aggregator, which may go on after an earlier process.
        """
        self.membership = membership
        self._progress = Progress() if server is None else server.progress
        self.failures = {number: text.decode() for number, text in self._progress.results.items()}
        self.first = 1 if server is None else server.first
        self._request, self._server = request, server

    async def serve(self, number: int, parameters: Any, names: tuple[str, ...]) -> None:
        """Serve a request not served before; store its error, but raise if all left or a server is lost.

        Raises:
            EverybodyLeftError: no party is connected any more. ServerLostError: a server is gone or at fault.
        """
        group = self.membership.of_group(parameters, names)
        if self._server is not None and number < self.first:
            await self._server.skip(number, group)
            return
        ended = await self._request(number, group)
        if ended is None:
            raise EverybodyLeftError(f"all parties have left before request {number}")
        if self.membership.servers and ends_session(ended, self.membership.servers):
            # The original one may have evidence.
            raise ServerLostError(f"request {number}: {ended}") from cast("SmpcError", ended)
        if isinstance(ended, SmpcError):
            self.failures[number] = str(ended)
            await finish_in_thread(partial(self._progress.add, number, self.failures[number].encode()))


class _Requests:
    """Base of a learner's averagers in sessions: parties, parameters and numbers of requests."""

    def __init__(self, membership: Membership, averaging: PlannedAverages, counter: Counter) -> None:
        self._membership = membership
        self._averaging = averaging
        self._counter = counter
        self._names = list(membership.names)

    @property
    def parties(self) -> int:
        """The number n of parties in the roster."""
        return len(self._names)

    @property
    def claim(self) -> str:
        """Privacy claim of an average over the largest group planned."""
        return self._membership.claim(self._averaging.claim)

    def _number(self, group: Groups) -> dict[int, int]:
        """Take a request number for each group, in the order of their labels; return the numbers by label."""
        labels = np.unique(group[group >= 0])
        first = self._counter.take(len(labels))
        return {int(label): first + index for index, label in enumerate(labels)}

    def _members(self, group: Groups, label: int) -> tuple[str, ...]:
        """Return the names of the parties in the group with this label."""
        return tuple(self._names[party] for party in np.flatnonzero(group == label))


class PartyAverager(_Requests):
    """Averager of one party's learner in a session: averages its vector by requests to the others.

    Attributes:
        evidence: of its averages so far.
    """

    def __init__(
        self,
        connection: Connection,
        averaging: PlannedAverages,
        counter: Counter,
        purpose: str,
        requested: str,
        charged: Ledger | None,
        on_event: OnEvent,
    ) -> None:
        """`requested`: operation of each request; `charged`: the ledger, where the averages are private."""
        super().__init__(connection.membership, averaging, counter)
        self._connection = connection
        self._name = connection.membership.name
        self._purpose = purpose
        self._requested = f"average {requested}" if connection.membership.servers else requested
        self._charged = charged
        self._participations = averaging.participation_counter(self.parties)
        self._on_event = on_event
        self._state = connection.state
        self._last = self._taken = 0
        self.evidence = AverageEvidence(0, 0)

    @property
    def tally(self) -> Tally:
        """The counts so far: requests, the number of the last one, averages, and totals that were checked."""
        return Tally(self._taken, self._last, self.evidence.averages, self.evidence.checked)

    def restore(self, tally: Tally) -> None:
        """Continue the counts of requests that an earlier process of the party has saved."""
        self._count(tally.participations)
        self._last, self.evidence = tally.last, AverageEvidence(tally.averages, tally.checked)

    def _count(self, times: int = 1) -> None:
        """Count requests of the party; raise PrivacyError beyond the planned number."""
        for _ in range(times):
            self._participations.count(self.here)
        self._taken += times

    @property
    def here(self) -> Parties:
        """The number of the party that this process runs, as an array of one element."""
        return np.array([self._names.index(self._name)])

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Average the party's group by one request, over survivors; without a group keep the own vector.

        The result is that of an earlier process, where there is one.

        Raises:
            PrivacyError: the ledger refuses, or the plan; nothing of the vector has left.
            AggregatorLostError, ServerLostError: no further average is possible.
        """
        vector, weight, group = check_average(self, vector, weight, group)
        numbers = self._number(group)
        own = int(group[self.here[0]])
        if own not in numbers:
            return Averaged(vector.copy(), np.zeros(1))
        number = numbers[own]
        self._count()
        before, self._last = number - self._last - 1, number
        if (stored := self._state.progress.results.get(number)) is not None:
            known = StoredAverage.decode(stored)
            averaged, is_checked = known.averaged, known.checked
        else:
            outcome = await self._ask(self._members(group, own), number, vector, weight, before)
            self._on_event(Event(self._name, "step", number, f"{self._purpose} of {len(outcome.survivors)}"))
            result = Result.of(outcome, "average")
            average = np.asarray(result.value, dtype=np.float64)[None]
            values, weights = self._averaging.decode_averages(average, float(result.weight))
            averaged = Averaged(values, weights, outcome.privacy.guarantee, outcome.absent)
            is_checked = outcome.evidence.checked is True
            await self._keep(number, lambda: StoredAverage.of(averaged, checked=is_checked))
        self.evidence = AverageEvidence(self.evidence.averages + 1, self.evidence.checked + is_checked)
        return averaged

    async def _keep(self, number: int, stored: Callable[[], bytes]) -> None:
        """Save a request's result, if the session saves, until the learner saves its state after it."""
        if self._state.saves:
            await finish_in_thread(partial(self._state.progress.add, number, stored()))

    async def _ask(
        self,
        names: tuple[str, ...],
        number: int,
        vector: Rows,
        weight: NDArray[np.float64],
        before: int,
    ) -> Outcome:
        """Average the party's row with these parties in one request, charged to its ledger."""
        state, parameters = self._state, self._averaging.parameters(len(names))
        membership = self._connection.membership.of_group(parameters, names)
        scope = membership.context(number).scope
        if state.saves and number < state.number:
            raise state.progress.missing(number)
        try:
            sent = self._averaging.encode_vectors(vector, weight)
            ring_vector, _ = membership.encoding.encode(sent[0], party=self._name)
        except SmpcError as error:
            # The others must not wait for this vector.
            if not await finish_in_thread(partial(state.is_open, number, scope)):
                await self._connection.decline(number, error, membership)
            raise
        operation = " ".join(part for part in (self._requested, parameters.planned()) if part)
        charge = partial(charge_run, self._charged, membership.parameters.event, number)
        state.charge_to(self._charged, membership.parameters.event)
        begin = partial(state.begin_call, number, operation, chosen=True, scope=scope)
        await finish_in_thread(begin)
        try:
            outcome, _ = await self._connection.run(
                number, operation, ring_vector, charge, membership, before
            )
        except LostRunError as error:
            # The step goes on without this party, as where the others have lost it.
            lost = TimeoutFault({self._name}, "hello", str(error))
            await self._keep(number, lambda: StoredAverage.of_error(lost))
            raise lost from None
        except SmpcError as error:
            if isinstance(error, FAILURES) and self._connection.lost(number, error) is error:
                failed = error
                await self._keep(number, lambda: StoredAverage.of_error(failed))
            self._connection.fail(number, error)
        return outcome


class ServingAverager(_Requests):
    """Averager of an aggregator or server, which serves parties' averages and has no vector itself."""

    def __init__(self, served: LearnerRequests, averaging: PlannedAverages, counter: Counter) -> None:
        super().__init__(served.membership, averaging, counter)
        self._served = served

    @property
    def here(self) -> Parties:
        """The parties that this process runs: none, since it is an aggregator or server."""
        return np.zeros(0, dtype=np.intp)

    async def average(
        self, vector: Rows, weight: NDArray[np.float64] | None = None, group: Groups | None = None
    ) -> Averaged:
        """Serve the averages of all groups in turn, and return no rows."""
        vector, weight, group = check_average(self, vector, weight, group)
        for label, number in self._number(group).items():
            names = self._members(group, label)
            await self._served.serve(number, self._averaging.parameters(len(names)), names)
        return Averaged(vector, np.zeros(0))
