"""The requests of a party's open session: their numbers and charges, and how each begins and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import (
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    LocalError,
    OtherRequestError,
    PrivacyError,
    SmpcError,
    TimeoutFault,
)
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.session.charging import Raised, charge_run
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from smpc_dp.encoding import RingVector
    from smpc_dp.engine.result import Outcome
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt, SpentBudget
    from smpc_dp.privacy.budget import Budget
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.member import Membership
    from smpc_dp.session.tasks import Beside

LABEL_LIMIT = 200
# Requests are numbered in 31 bits: servers tag mpyc's bytes with one more. There is a number after the last.
MOST_REQUESTS = (1 << 31) - 2


class EncodedVector:
    """Holder of one encoded vector, which a run takes once, so that its memory is freed after use.

    `clipped` is the number of its values that were clipped.
    """

    def __init__(self, ring_vector: RingVector, clipped: int = 0) -> None:
        self._ring_vectors, self.clipped = [ring_vector], clipped

    def take(self) -> RingVector:
        """Return the encoded vector, once; raise LocalError if it was taken before."""
        if not self._ring_vectors:
            raise LocalError("an encoded vector is for one request")
        return self._ring_vectors.pop()


class PartyRequests:
    """A party's requests in one session: numbers them, sends them, charges for them, one at a time.

    Attributes:
        membership, connection, on_event, ledger: of the session.
        state: what the party keeps of its session.
        number: of the last call.
        behind: the error of a call for an earlier request than the others'; None after another call.
        evaluations: those with other parties, closed with the session; None before the first.
        evaluations_lock: held by the call that makes them; later calls wait in their order.
    """

    def __init__(
        self, membership: Membership, connection: Connection, on_event: OnEvent, ledger: Ledger | None
    ) -> None:
        self.membership = membership
        self.connection = connection
        self.on_event = on_event
        self.ledger = ledger
        self.state = connection.state
        self.number = self.state.number
        self._chosen = False
        self.behind: OtherRequestError | TimeoutFault | None = None
        self.evaluations: Any = None
        self.evaluations_lock = asyncio.Lock()

    @property
    def party(self) -> str:
        """The name of the party."""
        return self.membership.name

    def check_expected(self, expect: Mapping[str, object]) -> None:
        """Raise ConfigError that names each key whose value differs in the session file."""
        session = self.membership.session
        declared = {"protocol": session.protocol, "version": session.version, **session.parameters}
        issues = [
            ConfigIssue(
                key, f"is {value!r}, the session file says {declared.get(key)!r}", ConfigCheck.DIFFERS
            )
            for key, value in expect.items()
            if declared.get(key) != value
        ]
        if issues:
            raise ConfigError(issues)

    def take(self, number: int | None, label: str = "") -> None:
        """Set the number of a call's request: given, next, or saved to resume; ConfigError if taken.

        Raises ConfigError for a number that was taken; and without one where most others were at another
        request: a vector that was not made for that one must not be part of it.
        """
        self._chosen = number is not None
        if number is None:
            self.check_known(label)
            number = self.state.following(self.number)
        least = self.state.least(self.number)
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        if not whole or not least <= number <= MOST_REQUESTS:
            reason = f"{self.party}: must be a whole number above {least - 1}, the last call's"
            raise ConfigError.at("number", f"{reason}, is {number!r}", ConfigCheck.RANGE)
        self.number, self.behind = int(number), None

    def check_known(self, label: str) -> None:
        """Raise ConfigError if a call lacks a label, or a number, to tell which request it is."""
        if self.state.saves and not label:
            reason = f"{self.party}: with a state each call has a number, or a label, to be known again"
            raise ConfigError.at("number", reason, ConfigCheck.MISSING)
        if self.behind is not None:
            reason = f"{self.party}: say which request this is for: {self._following(self.behind)}"
            raise ConfigError.at("number", reason, ConfigCheck.MISSING)

    def _following(self, error: OtherRequestError | TimeoutFault) -> str:
        """Return text on which request the others ask for, and who says so."""
        if isinstance(error, OtherRequestError):
            return f"the others ask for {error.next}"
        aggregator = self.membership.session.roster.aggregator
        member = "a member" if aggregator is None else aggregator.name
        return f"{member} says that the others ask for {error.number}"

    @asynccontextmanager
    async def declining(self, beside: Beside | None = None) -> AsyncIterator[None]:
        """Context manager that tells the others, on an SmpcError, that this party declines.

        The others must neither wait for this input nor take the next one for it. A saved request that is
        open is not declined: a later process goes on in it.
        """
        try:
            yield
        except SmpcError as error:
            if not await finish_in_thread(partial(self.state.is_open, self.number)):
                await self.connection.decline(self.number, error, beside=beside)
            raise

    async def begin(self, operation: str) -> None:
        """Begin or resume a call's request, and store its number; ConfigError if another is open.

        Raises ConfigError where another request is under way.
        """
        self.number = await finish_in_thread(
            partial(self.state.begin_call, self.number, operation, chosen=self._chosen)
        )

    async def outcome(
        self, kind: str, vector: EncodedVector, label: str, planned: str
    ) -> tuple[Outcome, Receipt | None]:
        """Take part in one sum with a vector; return (result, the ledger's receipt or None).

        `planned`: what parties must have in common beside the label.
        """
        from smpc_dp.engine.registry import origin_of

        # Parties with different versions of another package's protocol are not added up.
        origin = origin_of(self.membership.session.protocol)
        operation = " ".join(part for part in (kind, label, planned, origin) if part)

        await self.begin(operation)
        await self._check_budget()
        self.state.charge_to(self.ledger, self.membership.event)
        book = partial(charge_run, self.ledger, self.membership.event, self.number)

        opened = self.membership.opened_tables

        async def charge(run_id: bytes, raised: Raised | None = None) -> Receipt | None:
            entry = await book(run_id, raised)
            if opened is not None:
                await asyncio.to_thread(opened.add, run_id)
            # Also of a request that fails later: it may have released what it was charged for.
            if raised is None:
                self.state.count_charge(self.number)
            return entry

        with self.noting_others():
            outcome, receipt = await self.connection.run(
                self.number, operation, vector.take(), charge, label=label
            )
        self.notify_done(outcome.survivors, outcome.absent)
        if BUDGET in self.membership.session.parameters:
            spent = await asyncio.to_thread(self._spent_budget)
            outcome = replace(outcome, privacy=replace(outcome.privacy, budget=spent))
        return outcome, receipt

    @contextmanager
    def noting_others(self) -> Iterator[None]:
        """Context manager that notes, from an error it lets pass, if others are at another request."""
        try:
            yield
        except OtherRequestError as error:
            # With another label the next call is of the next request all the same, and its label is compared.
            relabelled = error.asked == error.number and error.label != error.asked_label
            self.behind = None if relabelled else error
            raise
        except TimeoutFault as error:
            # Without evidence, so it says nothing but that the next input is not for the next request.
            later = error.code == Code.PAST and self.number < error.number <= MOST_REQUESTS
            self.behind = error if later else None
            raise

    def _budget(self) -> Budget | None:
        """Return the budget of all requests that the session file declares; None if it declares none."""
        if BUDGET not in self.membership.session.parameters:
            return None
        from smpc_dp.privacy.budget import read_budget

        return read_budget(self.membership.session.parameters)[0]

    async def _check_budget(self) -> None:
        """Raise PrivacyError, and decline the request, if the session's budget is used up."""
        budget = self._budget()
        state = self.state
        if budget is None or state.charged < budget.requests or state.is_counted(self.number):
            return
        error = PrivacyError(
            f"epsilon is short: {self.party}: request {self.number} is refused: the session's budget, "
            f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g}, is for {budget.requests} requests"
        )
        await self.connection.decline(self.number, error)
        raise error

    def _spent_budget(self) -> SpentBudget | None:
        """Return how much of the session's budget its requests have spent; None without a budget."""
        from smpc_dp.privacy.budget import spent_budget

        budget = self._budget()
        return None if budget is None else spent_budget(budget, self.membership.event(), self.state.charged)

    def notify_done(self, survivors: tuple[str, ...], absent: tuple[str, ...]) -> None:
        """Report to the watcher that the last request has ended, with survivors and absent parties."""
        reported = Event(self.party, "done", self.number, "done", survivors=survivors, absent=absent)
        self.on_event(reported)


def check_label(label: str, limit: int = LABEL_LIMIT) -> None:
    """Raise ConfigError for a request's label that is too long, or begins or ends with a blank."""
    if label != label.strip():
        reason = f"must not begin or end with a blank, is {label!r}"
        raise ConfigError.at("label", reason, ConfigCheck.FORMAT)
    if len(label) > limit:
        raise ConfigError.at("label", f"at most {limit} characters, has {len(label)}", ConfigCheck.TOO_LARGE)
