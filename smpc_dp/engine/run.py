"""Holder of a role's state in one run; it takes one step from each state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from smpc_dp.engine.events import Cancellation, Event
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.wire.envelope import Envelope

R_co = TypeVar("R_co", covariant=True)


class RunningRole(Protocol):
    """Interface of one role in one run: a `Run`, or the role of a protocol without states."""

    @property
    def name(self) -> str:
        """The name of the session's member that runs this role."""

    @property
    def step(self) -> str:
        """The name of the protocol step that is under way."""

    @property
    def run_id(self) -> bytes:
        """The id of the run, as bytes; empty before the run has an id."""

    @property
    def waiting_for(self) -> frozenset[str]:
        """The names of the members whose messages are missing."""

    @property
    def waiting_count(self) -> int:
        """The number of members whose messages are missing."""

    @property
    def has_enough(self) -> bool:
        """Whether the step can end without the missing messages when its time has passed."""

    @property
    def finished(self) -> bool:
        """Whether the run has ended, with an outcome or an error."""

    @property
    def releases(self) -> frozenset[str]:
        """Names of the steps whose messages depend on the input, before which a ledger is charged."""

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the role; return the messages to send."""


class Run(Generic[R_co]):
    """A protocol role's state machine for one run: takes events, returns messages, does no I/O itself.

    A state in which the run is over may have an `outcome`, which is the result, or an `error`, which `handle`
    raises: the state's other fields then hold although the run has failed.

    Args:
        role: the table of the role's states, a `PartyRole`, a `CollectorRole` or a `PeerRole`.
        member: the party or aggregator that the role acts for, with the values that its steps read.
        state: the first state, or a restored one.
    """

    def __init__(self, role: Any, member: Any, state: State) -> None:
        self.role = role
        self.member = member
        self._state = state
        self._failed = False

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self._state!r})"

    @property
    def name(self) -> str:
        """Name of the party or aggregator that the role acts for."""
        name: str = self.member.name
        return name

    @property
    def state(self) -> Any:
        """The newest state of the role in this run."""
        return self._state

    @property
    def run_id(self) -> bytes:
        """Run id; empty until the parties present are agreed on."""
        return self._state.run_id

    @property
    def step(self) -> str:
        """Step whose messages are expected, "done" when finished; a driver renews its deadline on changes."""
        return "done" if self.finished else self._state.step

    @property
    def waiting_for(self) -> frozenset[str]:
        """Names of the members whose message of this step is still expected."""
        if self._failed:
            return frozenset()
        names: frozenset[str] = self.role.waiting_for(self.member, self._state)
        return names

    @property
    def waiting_count(self) -> int:
        """The number of members whose message is still expected, counted faster than by name."""
        return 0 if self._failed else int(self.role.waiting_count(self.member, self._state))

    @property
    def has_enough(self) -> bool:
        """Whether the step has as many messages as it needs, though others may still come."""
        enough: bool = not self.finished and self.role.has_enough(self.member, self._state)
        return enough

    @property
    def finished(self) -> bool:
        """Whether the run has ended for this role, with a result or an error."""
        return self._failed or self._state.over

    @property
    def releases(self) -> frozenset[str]:
        """Names of the steps whose messages first depend on the party's vector: charged before sent."""
        steps: frozenset[str] = self.role.releases
        return steps

    @property
    def result(self) -> R_co:
        """The result of the run; raise LocalError while there is none."""
        outcome: R_co | None = self._state.outcome
        if outcome is None:
            raise LocalError(f"{self.name}: the run has no result")
        return outcome

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the role in its newest state; return the messages to send.

        Raises:
            SmpcError: the run is over for this role; `Cancellation` gives the messages that are still to be
                sent, so that others need not wait.
        """
        return self.step_from(self._state, event)

    def step_from(self, state: State, event: Event) -> Sequence[Envelope]:
        """Handle an event in `state`, LocalError if not the newest; return messages, () after an error."""
        if state is not self._state:
            raise LocalError(f"{self.name}: a second step from one state of '{state.step}'")
        if self._failed and not isinstance(event, Cancellation):
            return ()
        try:
            transition: Transition = self.role.step(self.member, state, event)
        except SmpcError as error:
            self._failed = True
            # The secrets of the state are forgotten now, whatever the holder does next.
            self._state = self.role.failed(state, error)
            raise
        messages = self._take(transition, event)
        if (refusal := transition.state.error) is not None:
            self._failed = True
            raise refusal
        return messages

    def _take(self, transition: Transition, event: Event) -> Sequence[Envelope]:
        """Write the log lines of a new state and make it the newest; return the transition's messages."""
        state, messages = transition
        if state.unwritten:
            try:
                self.member.write_log(state)
            except SmpcError:
                # Where the run is over in any case the others are told.
                if not isinstance(event, Cancellation):
                    self._failed = True
                    raise
        self._state = state
        self.member.enter(self._state)
        return messages
