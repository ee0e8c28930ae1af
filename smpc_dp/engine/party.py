"""The step of a party: it answers each message of the aggregator once, in order.

A protocol gives the states and, for each, the function for the aggregator's message (`Row`). Signatures,
order, repetitions, equivocation and the ends of a run are the same for all protocols, and are handled here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine import events
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import Check, Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.abort import ABORT, LEAVE, Abort, abort_of, equivocation, error_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer, decode, encode_envelope

P_co = TypeVar("P_co", covariant=True)


class Progress(msgspec.Struct, frozen=True):
    """Record of a party's run so far: hashes of messages received, and names of steps sent.

    Attributes:
        received: for each step of the aggregator the SHA-256 of the body, and the signature.
        sent: the steps of the messages that were sent.
    """

    received: Mapping[str, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)
    sent: tuple[str, ...] = ()


class PartyState(State, frozen=True, kw_only=True, eq=False):
    """State of a party in a protocol run, with the fields that all its states have.

    Attributes:
        seen: the state of the session log to store durably before the state's messages are sent; of protocols
            whose runs are logged.
        false_count: the number of parties shown to have signed a false statement.
        renews: whether the expected message gives a run id, which its own envelope carries.
    """

    progress: Progress = Progress()
    seen: Seen = NOTHING_SEEN
    false_count: int = 0
    renews: ClassVar[bool] = False

    def without(self, messages: Sequence[Envelope]) -> Self:
        """Return the state as if these messages were not sent, so that their steps can be sent later."""
        steps = {envelope.step for envelope in messages}
        sent = tuple(step for step in self.progress.sent if step not in steps)
        return replace(self, progress=Progress(self.progress.received, sent))


class Stopped(PartyState, frozen=True, kw_only=True, eq=False):
    """Final state of a party whose run has ended by an error with this code."""

    code: Code
    over: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Member(Generic[P_co]):
    """Constant values that a party's steps read: context of the run, signing key, parameters.

    Attributes:
        context: the session, the request and everyone's public keys.
        parameters: checked parameters of the session.
        identity: signs; its name is the party's.
        random: the operating system's; a seeded one only in simulations and tests.
    """

    context: Context
    parameters: P_co
    identity: Signer
    random: Randomness

    @property
    def name(self) -> str:
        """The name of the party that runs this role."""
        return self.identity.name

    @property
    def index(self) -> int:
        """The number of this party in the roster, from 1."""
        return self.context.number(self.identity.name)

    @property
    def parties(self) -> int:
        """The number of parties in the roster."""
        return len(self.context.names)

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, from 1."""
        return self.context.names[party - 1]

    def enter(self, state: State) -> None:
        """Record values of a new state for the session's later requests; by default do nothing."""

    def contradicted(self, fault: PeerFault) -> None:
        """Record that two signed messages of the aggregator contradict; by default do nothing."""

    def write(self, run_id: bytes, step: str, message: msgspec.Struct) -> Envelope:
        """Return the signed message of a step to the aggregator."""
        context = self.context
        [envelope] = context.write(self.identity, run_id, step, (context.aggregator,), message)
        return envelope

    def refuse(self, reason: str, check: Check) -> PeerFault:
        """Return a PeerFault, to be raised, that the aggregator has sent something invalid."""
        return PeerFault(self.context.aggregator, reason, check)


Apply = Callable[[Any, Any, Any], Transition]


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a party's table of states: which message a state expects, and the function that handles it.

    Attributes:
        state: the state.
        apply: (member, state, body of the message) -> the next state, and the answer; in a row of
            `PartyRole.reports` the holder's result is in the place of the body.
        next: the states that may follow.
        sends: the steps of the answer.
        ends: the possibilities that end with it, for the table in the specification.
        instead: the step of the message, where it may come in place of the one that the state expects.
    """

    state: type[PartyState]
    apply: Apply
    next: tuple[type[PartyState], ...]
    sends: tuple[str, ...]
    ends: str
    instead: str = ""


@dataclass(frozen=True)
class PartyRole:
    """Role of a party in a protocol with an aggregator, as a table of states without I/O.

    Attributes:
        first: the state before the run begins.
        begin: (member, state) -> the state in which the party waits for the aggregator, and its hello.
        hello: the step of that message.
        rows: the table.
        last: the step after which a party sends no `leave`: its part is done.
        reports: the rows of states that leave work to the role's holder, for its result.
        saved: whether its states may be saved: all other inputs of a step are public or fixed by the terms.
    """

    first: type[PartyState]
    begin: Callable[[Any, Any], Transition]
    hello: str
    rows: tuple[Row, ...]
    last: str
    reports: tuple[Row, ...] = ()
    saved: bool = False

    @property
    def releases(self) -> frozenset[str]:
        """Names of the steps whose messages are the first that depend on the party's vector."""
        return frozenset(step for row in self.rows if row.state.releases for step in row.sends)

    def row(self, state: State) -> Row:
        """Return the row of the table of states for a state and the message that it normally expects."""
        return next(row for row in self.rows if type(state) is row.state and not row.instead)

    def with_row(self, state: type[PartyState], apply: Apply) -> PartyRole:
        """Return a role in which another function handles the message that a state expects.

        To deviate in tests and demonstrations.
        """
        rows = tuple(
            dataclasses.replace(row, apply=apply) if row.state is state and not row.instead else row
            for row in self.rows
        )
        return dataclasses.replace(self, rows=rows)

    def waiting_for(self, member: Member[Any], state: State) -> frozenset[str]:
        """Return the name of the member whose message a state expects; empty if none."""
        return frozenset() if state.over else frozenset({member.context.aggregator})

    def waiting_count(self, _member: Member[Any], state: State) -> int:
        """Return the number of messages for which a state waits: 1, or 0 at the end."""
        return 0 if state.over else 1

    def has_enough(self, _member: Member[Any], _state: State) -> bool:
        """Return False: the party's step cannot end without the one message it waits for."""
        return False

    def longest(self, _member: Member[Any]) -> int:
        """Return 0: this role has no message longer than the session's parameters plan."""
        return 0

    def step(self, member: Member[Any], state: PartyState, event: events.Event) -> Transition:
        """Return a party's next state after an event, and messages to send; raise if the run cannot go on.

        Raises:
            SmpcError: the run cannot go on for this party; only `Cancellation` may follow.
        """
        match event:
            case events.Cancellation(error):
                return self._stop(member, state, error)
            case _ if state.over:
                return Transition(state)
            case events.Start():
                return _sent(member, state, self.begin(member, state), state.progress.received)
            case events.Message(envelope):
                return self._receive(member, state, envelope)
            case events.Report(result):
                return self._report(member, state, result)
            case events.PeersLost(peers) if member.context.aggregator not in peers:
                return Transition(state)
            case events.Deadline() | events.PeersLost():
                raise TimeoutFault({member.context.aggregator}, state.step)
            case events.Conviction():
                return Transition(state)

    def _report(self, member: Member[Any], state: PartyState, result: object) -> Transition:
        """Return the transition for the result of outside work; LocalError if the state left no such work."""
        row = next((row for row in self.reports if type(state) is row.state), None)
        if row is None:
            raise LocalError(f"{member.name}: '{state.step}' leaves no work to the holder of the role")
        return _sent(member, state, row.apply(member, state, result), state.progress.received)

    def failed(self, state: PartyState, error: SmpcError) -> PartyState:
        """Return the final state after an error, without secrets; `Cancellation` gives last messages."""
        return Stopped(
            run_id=state.run_id,
            progress=state.progress,
            seen=state.seen,
            false_count=state.false_count,
            code=error.code,
        )

    def _stop(self, member: Member[Any], state: PartyState, error: SmpcError) -> Transition:
        """Return the final state, and `leave` unless that or the last step was sent; a result stays."""
        if state.outcome is not None:
            return Transition(state)
        stopped = state if isinstance(state, Stopped) else self.failed(state, error)
        if not {LEAVE, self.last}.isdisjoint(state.progress.sent):
            return Transition(stopped)
        run_id = state.run_id or member.context.session_digest
        leave = Transition(stopped, (member.write(run_id, LEAVE, abort_of(error)),))
        return _sent(member, state, leave, state.progress.received)

    def _receive(self, member: Member[Any], state: PartyState, envelope: Envelope) -> Transition:
        """Return the next state and answer, the same state and none if repeated; PeerFault if invalid."""
        context = member.context
        if envelope.sender != context.aggregator:
            raise PeerFault(envelope.sender, "only the aggregator speaks to a party", Check.WRONG_SENDER)
        if envelope.receiver != member.name:
            raise member.refuse(f"sent a message for {envelope.receiver!r}", Check.WRONG_RECEIVER)
        body_hash = context.check(envelope)
        received = state.progress.received
        if envelope.step in received:
            earlier, signature = received[envelope.step]
            if earlier == body_hash:
                return Transition(state)
            raise equivocation(envelope, context, state.run_id, earlier, signature)
        if envelope.step == ABORT:
            return self._aborted(member, state, envelope)
        row = next((row for row in self.rows if _takes(row, state, envelope.step)), None)
        if row is None:
            raise member.refuse(f"sent '{envelope.step}' where '{state.step}' is due", Check.UNEXPECTED_STEP)
        if (row.instead or not state.renews) and envelope.run_id != state.run_id:
            raise member.refuse(f"sent '{envelope.step}' of another run", Check.OTHER_RUN)
        taken = {**received, envelope.step: (body_hash, envelope.signature)}
        # The evidence of a result has the signature of the message.
        state = replace(state, progress=Progress(taken, state.progress.sent))
        try:
            applied = row.apply(member, state, envelope.body)
        except PeerFault as fault:
            if fault.evidence and "message" not in fault.evidence:
                # With the message that contradicts it.
                protocol, version = context.bound
                shown = {"message protocol": protocol, "message version": version}
                fault.evidence |= shown | {"message": encode_envelope(envelope)}
                member.contradicted(fault)
            raise
        answer = _sent(member, state, applied, taken)
        if envelope.run_id != answer.state.run_id:
            raise member.refuse(f"{state.step} is not for the run that its nonces give", Check.RUN_ID_DIFFERS)
        return answer

    def _aborted(self, member: Member[Any], state: PartyState, envelope: Envelope) -> Transition:
        """Raise the error that the aggregator's abort names; ignore an abort for an earlier process."""
        if envelope.run_id in (state.run_id, member.context.session_digest):
            raise error_of(decode(envelope.body, Abort, envelope.sender), member.context)
        if state.run_id:
            raise member.refuse("sent an abort of another run", Check.OTHER_RUN)
        # For an earlier process of this party, whose connection was lost.
        return Transition(state)


def _takes(row: Row, state: PartyState, step: str) -> bool:
    """Tell whether the row of a state accepts messages of this step."""
    return type(state) is row.state and step == (row.instead or state.step)


def _sent(
    member: Member[Any],
    state: PartyState,
    answer: Transition,
    received: Mapping[str, tuple[bytes, bytes]],
) -> Transition:
    """Return a transition with its messages recorded as sent; raise LocalError if a step was sent before."""
    sent = state.progress.sent
    for envelope in answer.messages:
        if envelope.step in sent:
            raise LocalError(f"{member.name}: step '{envelope.step}' was sent before in this run")
        sent = (*sent, envelope.step)
    after: PartyState = answer.state
    carried = replace(
        after,
        run_id=after.run_id or state.run_id,
        progress=Progress(received, sent),
        seen=state.seen if after.seen is NOTHING_SEEN else after.seen,
        false_count=max(after.false_count, state.false_count),
    )
    return Transition(carried, answer.messages)
