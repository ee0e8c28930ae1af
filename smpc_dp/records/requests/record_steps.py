"""The requests of one call for statistics of records, which go on where an earlier process has stopped.

Specification: protocols/saved-states/sessions.md, "Calls of several requests".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.records.step_sums import StepSums
from smpc_dp.session.session_state import LostRunError, SessionState

if TYPE_CHECKING:
    from smpc_dp.session.party_requests import PartyRequests


@dataclass(frozen=True)
class StepsOfCall:
    """Progress of a party's call of one or more requests: their numbers, and stored sums to resume from.

    Attributes:
        resumed: whether results of an earlier process are there.
    """

    requests: PartyRequests
    first: int
    last: int
    label: str
    resumed: bool

    @property
    def _state(self) -> SessionState:
        """The saved state of the party's session."""
        return self.requests.state

    def sums(self, number: int) -> StepSums | None:
        """Return the stored sums of a request, None if unfinished; raise LocalError if they are lost."""
        stored = self._state.progress.results.get(number)
        if stored is None and self._state.saves and number < self._state.number:
            raise self._state.progress.missing(number)
        return None if stored is None else StepSums.decode(stored)

    def take(self, number: int) -> None:
        """Reserve the number of a request, unless `begin_steps` has reserved it already."""
        if number > self.first or (self._state.saves and self.first < self.last):
            self.requests.take(number, self.label)

    def keep(self, number: int, sums: StepSums) -> None:
        """Store the opened sums of a request, so that the call can resume after it."""
        self._state.progress.add(number, sums.encode())

    def fail(self, error: SmpcError) -> None:
        """Record that an error has ended the call, unless the call can be resumed."""
        number = self.requests.number
        is_own = isinstance(error, LocalError) and not isinstance(error, LostRunError)
        if not is_own and self.first < self.last and not self._state.is_open(number):
            self._state.progress.add(number, b"")


def begin_steps(requests: PartyRequests, number: int | None, label: str, steps: int) -> StepsOfCall:
    """Begin or resume a call of several requests; raise an error if the ledger cannot afford the rest.

    Raises:
        ConfigError: as of `PartyRequests.take`; or the call has ended. PrivacyError: the ledger refuses.
    """
    state, progress = requests.state, requests.state.progress
    if not state.saves or steps == 1:
        # All steps, before the first; what is restored of a single one is charged already.
        is_charged = state.saves and state.is_under_way
        _check_ledger(requests, 0 if is_charged else steps if steps > 1 or state.saves else 0)
        requests.take(number, label)
        return StepsOfCall(requests, requests.number, requests.number + steps - 1, label, False)
    if number is None:
        # The checks of a call without a number.
        requests.check_known(label)
        number = state.following_call(label, steps)
    goes_on = (progress.first, progress.call) == (number, label) and not progress.has_failed
    if not goes_on and number <= state.number:
        reason = f"{requests.party}: request {number} has ended, or was for another label"
        raise ConfigError.at("number", reason, ConfigCheck.CONFLICT)
    left = steps - len(progress.results) if goes_on else steps
    newest = state.number
    if goes_on and newest not in progress.results and (state.is_open(newest) or state.is_counted(newest)):
        # It may be charged.
        left -= newest >= number
    _check_ledger(requests, left)
    if not goes_on:
        progress.begin(label, number)
    return StepsOfCall(requests, number, number + steps - 1, label, bool(progress.results))


def _check_ledger(requests: PartyRequests, count: int) -> None:
    """Raise an error unless the ledger, if any, affords so many requests; nothing is charged."""
    if requests.ledger is not None and count:
        requests.ledger.check([requests.membership.event()] * count)
