"""The step of a collecting role: it takes one message of each party, and goes on when all have come.

A protocol gives one state for each step, with a function for one party's message and one for the end of the
step (`CollectorRow`). Signatures, order, repetitions, equivocation, losses and the ends of a run are the same
for all protocols, and are handled here.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from smpc_dp.engine import events
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import (
    Check,
    Code,
    LocalError,
    PeerFault,
    SmpcError,
    TimeoutFault,
    evidenced,
    without_frames,
)
from smpc_dp.wire.abort import ABORT, LEAVE, NOT_CONNECTED, Abort, abort_of, code_of, equivocation, leave_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer, decode

P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Item:
    """A party's decoded message of a step with its signature, kept by a role that collects messages."""

    message: Any
    body: bytes
    signature: bytes

    def __post_init__(self) -> None:
        # A view would keep the file of its message open until the step ends, of each party one.
        object.__setattr__(self, "body", bytes(self.body))


class Inbox:
    """Messages and exclusions of one run at an aggregator or another role that collects messages.

    Messages and exclusions are only added. The end of a step removes its `items`, and `unsent` aborts go with
    the next messages. A step's running sums, in its state, grow in place too.

    Attributes:
        alive: the parties that are not excluded.
        items: the accepted messages of the current step, by party.
        seen: for each party and step the SHA-256 of the body, and the signature.
        excluded: for each excluded party the error.
        faults: the texts of the errors, for the result.
        unsent: aborts of excluded parties that go with the next messages.
        unwritten: lines that are written to a log when the step is over.
        answered: excluded parties that said hello again and were answered.
        past: earlier run ids of the run.
        events: the number of messages and exclusions.
    """

    __slots__ = (
        "alive",
        "answered",
        "events",
        "excluded",
        "faults",
        "items",
        "past",
        "seen",
        "unsent",
        "unwritten",
    )

    def __init__(self, alive: set[int]) -> None:
        self.alive = alive
        self.items: dict[int, Item] = {}
        self.seen: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self.excluded: dict[int, SmpcError] = {}
        self.faults: list[str] = []
        self.unsent: list[Envelope] = []
        self.unwritten: list[Any] = []
        self.answered: set[int] = set()
        self.past: set[bytes] = set()
        self.events = 0


class CollectorState(State, frozen=True, kw_only=True, eq=False):
    """State of a role that collects messages (an aggregator's): earlier results, and its inbox.

    The step carries on the inbox, and the run id where a transition gives none. `awaits`: whose messages it
    takes, in words.
    """

    awaits: ClassVar[str] = "parties"
    inbox: Inbox = msgspec.field(default_factory=lambda: Inbox(set()))
    count: int = 0

    @property
    def unwritten(self) -> Sequence[Any]:
        """The lines to be written to a log before the last step's messages are sent."""
        return self.inbox.unwritten

    @property
    def waiting(self) -> Set[int]:
        """The parties whose message of the step has not come: by default of all not excluded."""
        return self.inbox.alive - self.inbox.items.keys()

    @property
    def waiting_count(self) -> int:
        """The number of parties whose message of the step has not come, counted faster."""
        return len(self.inbox.alive) - len(self.inbox.items)

    @property
    def possible(self) -> int:
        """The greatest number of messages that the step can still have received at its end."""
        return len(self.inbox.alive)

    def asked(self, parties: int) -> int:
        """Return how many parties were asked for the step's message: by default all in the roster."""
        return parties


class Stopped(CollectorState, frozen=True, kw_only=True, eq=False):
    """Final state of a collecting role (an aggregator's) whose run has ended by an error with this code."""

    code: Code
    over: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Collector(Generic[P_co]):
    """Constant values of a role that collects messages: context of the run, signing key, parameters.

    Attributes:
        context: the session, the request and everyone's public keys.
        parameters: checked parameters of the session.
        identity: signs every message, so that two differing answers are evidence.
    """

    context: Context
    parameters: P_co
    identity: Signer

    @property
    def name(self) -> str:
        """The name of the member that collects messages."""
        return self.identity.name

    @property
    def parties(self) -> int:
        """The number of parties in the roster."""
        return len(self.context.names)

    def name_of(self, party: int) -> str:
        """Return the name of the party with this number, from 1."""
        return self.context.names[party - 1]

    def enter(self, state: State) -> None:
        """Record values of a new state for the session's later requests; by default do nothing."""

    def write_log(self, state: CollectorState) -> None:
        """Write the lines that wait in a new state's inbox to the logs; by default do nothing."""

    def resume_log(self, state: CollectorState, lines: Iterable[bytes]) -> None:
        """Continue the logs of a restored state, which had these lines; by default do nothing."""

    def write(
        self, run_id: bytes, step: str, parties: Iterable[int], message: msgspec.Struct
    ) -> list[Envelope]:
        """Return the signed message of a step, once for each of these parties."""
        names = [self.name_of(party) for party in parties]
        return self.context.write(self.identity, run_id or self.context.session_digest, step, names, message)

    def write_own(self, run_id: bytes, kind: str, message: msgspec.Struct) -> Envelope:
        """Return a log entry of this member, signed as a message to itself."""
        [signed] = self.context.write(self.identity, run_id, kind, (self.name,), message)
        return signed

    def broadcast(self, state: CollectorState, step: str, message: msgspec.Struct) -> list[Envelope]:
        """Return the signed message of a step, once for each party that is not excluded."""
        return self.write(state.run_id, step, sorted(state.inbox.alive), message)

    def to_each(
        self, run_id: bytes, inbox: Inbox, step: str, message: Callable[[int], msgspec.Struct]
    ) -> list[Envelope]:
        """Return signed messages to the parties not excluded, each with its own content from `message`."""
        return [
            envelope
            for party in sorted(inbox.alive)
            for envelope in self.write(run_id, step, (party,), message(party))
        ]

    def exclude(self, state: CollectorState, party: int, error: SmpcError) -> None:
        """Exclude a party from the run, and queue the abort message that tells the party why."""
        inbox = state.inbox
        inbox.alive.discard(party)
        inbox.excluded[party] = without_frames(error)
        inbox.faults.append(str(error))
        inbox.unsent += self.write(state.run_id, ABORT, (party,), abort_of(error))
        inbox.events += 1

    def too_few(self, state: CollectorState, needed: int) -> TimeoutFault:
        """Return the error that fewer parties remain than the run needs, naming those that are excluded.

        An exclusion with evidence is its cause.
        """
        inbox = state.inbox
        excluded = {self.name_of(party): error for party, error in inbox.excluded.items()}
        why = {name: code_of(error, name) for name, error in excluded.items()}
        left = f"{state.possible} of {state.asked(self.parties)} {state.awaits} are left"
        detail = f"{left}, {needed} are needed"
        reasons = "; ".join(str(error) for error in list(excluded.values())[:5])
        few = TimeoutFault(why, state.step, f"{detail}: {reasons}", code=Code.FEW, why=why, number=needed)
        few.__cause__ = evidenced(excluded.values())
        return few


def _nothing(_collector: Any, _state: Any) -> None:
    """Do nothing: by default a loss needs no check, and a run that stops keeps no evidence."""


def _once(_collector: Any) -> int:
    """Return 1: the step is made once in a run."""
    return 1


def _nobody(_collector: Any, _state: Any, _party: int) -> Sequence[Envelope]:
    """Return no messages: by default the others are not told that a party is excluded."""
    return ()


def _accepted(_collector: Any, state: CollectorState) -> int:
    """Return how many messages of the current step were accepted."""
    return len(state.inbox.items)


@dataclass(frozen=True, slots=True)
class CollectorRow:
    """Row of an aggregator's table of states: the message that a state expects, and functions for its end.

    Attributes:
        state: the state, which expects one step of each party.
        accept: (collector, state, party, envelope) -> the stored item; a PeerFault excludes the party.
        finish: (collector, state) -> the next state and the messages, when every party's message is there.
        required: (collector, state) -> how many parties the step needs.
        next: the states that may follow.
        sends: the steps of these messages.
        ends: the possibilities that end with it, for the table in the specification.
        agreed: (collector, state) -> how many of the accepted messages count for what the step needs.
        beside: by step, the function for messages of which a party may send any number while the state
            lasts: (collector, state, party, envelope) -> the answers; a PeerFault excludes the party. States
            without the step ignore such messages.
        late: (collector, state) -> the next state and the messages, when the time of the step is over; None:
            the parties whose message has not come are excluded.
        report: (collector, state, result) takes a result of the state's work, which has ended before; see
            `State.reports`.
        stop: (collector, state) keeps evidence from the state, when the run stops in it.
        times: (collector) -> how often a run is in the state, at most.
    """

    state: type[CollectorState]
    accept: Callable[[Any, Any, int, Envelope], Item]
    finish: Callable[[Any, Any], Transition]
    required: Callable[[Any, Any], int]
    next: tuple[type[CollectorState], ...]
    sends: tuple[str, ...]
    ends: str
    agreed: Callable[[Any, Any], int] = _accepted
    beside: Mapping[str, Callable[[Any, Any, int, Envelope], Sequence[Envelope]]] = field(
        default_factory=dict
    )
    late: Callable[[Any, Any], Transition] | None = None
    report: Callable[[Any, Any, bytes], None] | None = None
    stop: Callable[[Any, Any], None] = _nothing
    times: Callable[[Any], int] = _once


def _none(_collector: Any) -> int:
    """Return 0: by default no message is longer than the session plans."""
    return 0


@dataclass(frozen=True)
class CollectorRole:
    """Role of an aggregator in a protocol, as a table of states without I/O.

    Attributes:
        rows: the table; the first state is the one in which a run begins.
        check: (collector, state) raises an SmpcError where a run cannot go on after a loss.
        gone: (collector, state, party) -> the messages to the others when a party is excluded.
        longest: (collector) -> bytes of the longest message to accept; 0: as the session plans.
        saved: whether its states may be saved.
    """

    rows: tuple[CollectorRow, ...]
    check: Callable[[Any, Any], None] = _nothing
    gone: Callable[[Any, Any, int], Sequence[Envelope]] = _nobody
    longest: Callable[[Any], int] = _none
    saved: bool = False
    releases: ClassVar[frozenset[str]] = frozenset()

    @property
    def hello(self) -> str:
        """The name of the step with which a party begins a run."""
        return self.rows[0].state.expects

    def most_steps(self, collector: Collector[Any]) -> int:
        """Return the greatest number of steps that a run can have after its first step."""
        return sum(row.times(collector) for row in self.rows) - 1

    def row(self, state: State) -> CollectorRow:
        """Return the row of the role's table of states that belongs to a state."""
        return next(row for row in self.rows if type(state) is row.state)

    def with_row(self, state: type[CollectorState], **functions: Any) -> CollectorRole:
        """Return a role with other functions for one state, to deviate in tests and demonstrations."""
        rows = tuple(
            dataclasses.replace(row, **functions) if row.state is state else row for row in self.rows
        )
        return dataclasses.replace(self, rows=rows)

    def waiting_for(self, collector: Collector[Any], state: CollectorState) -> frozenset[str]:
        """Return the names of parties whose message of the step is missing; none once it is over."""
        if state.over:
            return frozenset()
        return frozenset(collector.name_of(party) for party in state.waiting)

    def waiting_count(self, _collector: Collector[Any], state: CollectorState) -> int:
        """Return the number of parties whose message is missing; 0 once the run is over."""
        return 0 if state.over else state.waiting_count

    def has_enough(self, collector: Collector[Any], state: CollectorState) -> bool:
        """Tell whether the messages received suffice for the step to end at its deadline."""
        if state.over:
            return False
        row = self.row(state)
        return row.agreed(collector, state) >= row.required(collector, state)

    def step(self, collector: Collector[Any], state: CollectorState, event: events.Event) -> Transition:
        """Return the next state after an event, and messages; the inbox, which states share, grows in place.

        The inbox grows in place; `state` is the newest that refers to it, or LocalError is raised.

        Raises:
            SmpcError: the run cannot go on; only `Cancellation` may follow.
        """
        inbox = state.inbox
        match event:
            case events.Cancellation(error):
                return self._stop(collector, state, error)
            case _ if state.over:
                return Transition(state)
        if state.count != inbox.events:
            raise LocalError(f"{collector.name}: a second step from one state of '{state.step}'")
        match event:
            case events.Message(envelope):
                return self._receive(collector, state, envelope)
            case events.PeersLost(peers):
                return self._lose(collector, state, peers, NOT_CONNECTED, Code.LOST)
            case events.Deadline():
                return self._expire(collector, state)
            case events.Conviction(peer, error):
                if (party := _party_number(collector, peer)) in inbox.alive:
                    self._exclude(collector, state, party, error)
                    return self._advance(collector, state)
            case events.Report(bytes(result)) if (report := self.row(state).report) is not None:
                report(collector, state, result)
                inbox.events += 1
                return _with_unsent(state, state, ())
        return Transition(state)

    def failed(self, state: CollectorState, _error: SmpcError) -> CollectorState:
        """Return the state unchanged after an error; the event `Cancellation` gives the last messages."""
        return state

    def _stop(self, collector: Collector[Any], state: CollectorState, error: SmpcError) -> Transition:
        """Return the final state, or a finished one as it is, and aborts to all; none if stopped before."""
        inbox = state.inbox
        if isinstance(state, Stopped):
            return Transition(state)
        if not state.over:
            self.row(state).stop(collector, state)
        sent = [*inbox.unsent, *collector.broadcast(state, ABORT, abort_of(error))]
        inbox.unsent = []
        if state.outcome is not None:
            return Transition(state, sent)
        return Transition(
            Stopped(run_id=state.run_id, inbox=inbox, count=inbox.events, code=error.code), sent
        )

    def _expire(self, collector: Collector[Any], state: CollectorState) -> Transition:
        """Return the transition at a step's deadline: by the row's `late`, else exclude late parties."""
        if (late := self.row(state).late) is not None:
            state.inbox.events += 1
            return _after(state, *late(collector, state))
        missing = sorted(self.waiting_for(collector, state), key=collector.context.number)
        return self._lose(collector, state, missing, "deadline passed", Code.LATE)

    def _lose(
        self,
        collector: Collector[Any],
        state: CollectorState,
        peers: Sequence[str],
        detail: str,
        code: Code,
    ) -> Transition:
        """Exclude parties that are late or disconnected, and go on; raise if too few remain."""
        for peer in peers:
            if (party := _party_number(collector, peer)) in state.inbox.alive:
                lost = TimeoutFault({peer}, state.step, detail, code=code)
                self._exclude(collector, state, party, lost)
            # A process that calls in its place is answered too.
            state.inbox.answered.discard(party)
        return self._advance(collector, state)

    def _exclude(
        self, collector: Collector[Any], state: CollectorState, party: int, error: SmpcError
    ) -> None:
        """Exclude a party for an error, and queue the messages that tell the others."""
        state.inbox.items.pop(party, None)
        collector.exclude(state, party, error)
        state.inbox.unsent += self.gone(collector, state, party)

    def _receive(self, collector: Collector[Any], state: CollectorState, envelope: Envelope) -> Transition:
        """Check and accept a party's message, or exclude the party; end the step if no message is missing."""
        inbox, party = state.inbox, _party_number(collector, envelope.sender)
        if not party:
            return Transition(state)
        if party not in inbox.alive:
            return Transition(state, self._answer_excluded(collector, state, party, envelope))
        error: SmpcError | None = None
        try:
            if self.is_beside(envelope):
                return self._receive_beside(collector, state, party, envelope)
            if not self._is_new(collector, state, party, envelope):
                return Transition(state)
            if envelope.step == LEAVE:
                error = _left(collector, state, envelope)
            else:
                inbox.items[party] = self.row(state).accept(collector, state, party, envelope)
        except PeerFault as fault:
            error = fault
        if error is None:
            inbox.events += 1
        else:
            self._exclude(collector, state, party, error)
        return self._advance(collector, state)

    def has_taken(self, collector: Collector[Any], state: CollectorState, envelope: Envelope) -> bool:
        """Tell whether exactly this message was accepted before from a party still in the run."""
        party, body_hash = _party_number(collector, envelope.sender), hashlib.sha256(envelope.body).digest()
        taken = state.inbox.seen.get((party, envelope.step))
        return party in state.inbox.alive and taken == (body_hash, envelope.signature)

    def has_taken_other(self, collector: Collector[Any], state: CollectorState, envelope: Envelope) -> bool:
        """Tell whether a different message of this step was accepted from its sender."""
        party, body_hash = _party_number(collector, envelope.sender), hashlib.sha256(envelope.body).digest()
        taken = state.inbox.seen.get((party, envelope.step))
        return taken is not None and taken != (body_hash, envelope.signature)

    def is_beside(self, envelope: Envelope) -> bool:
        """Tell whether a message belongs to no step, but to work that goes on beside the steps."""
        return any(envelope.step in row.beside for row in self.rows)

    def _receive_beside(
        self, collector: Collector[Any], state: CollectorState, party: int, envelope: Envelope
    ) -> Transition:
        """Handle a message outside the steps as the state's row says; do nothing without a rule."""
        take = self.row(state).beside.get(envelope.step)
        if take is None:
            return Transition(state)
        sent = take(collector, state, party, envelope)
        state.inbox.events += 1
        return _with_unsent(state, state, sent)

    def _is_new(
        self, collector: Collector[Any], state: CollectorState, party: int, envelope: Envelope
    ) -> bool:
        """Record a message as seen, return True; False if repeated; PeerFault if it is invalid."""
        sender, step, seen = envelope.sender, envelope.step, state.inbox.seen
        if envelope.receiver != collector.name:
            raise PeerFault(sender, f"sent a message for {envelope.receiver!r}", Check.WRONG_RECEIVER)
        body_hash = collector.context.check(envelope)
        expected = collector.context.session_digest if step == self.hello else state.run_id
        if (party, step) in seen:
            earlier, signature = seen[party, step]
            if earlier == body_hash:
                return False
            raise equivocation(envelope, collector.context, expected, earlier, signature)
        if step not in (LEAVE, state.step):
            raise PeerFault(sender, f"sent '{step}' where '{state.step}' is due", Check.UNEXPECTED_STEP)
        if envelope.run_id != expected and step != LEAVE:
            raise PeerFault(sender, f"sent '{step}' of another run", Check.OTHER_RUN)
        seen[party, step] = (body_hash, envelope.signature)
        return True

    def _answer_excluded(
        self, collector: Collector[Any], state: CollectorState, party: int, envelope: Envelope
    ) -> Sequence[Envelope]:
        """Return the abort message for an excluded party that says hello again, once; else no messages."""
        inbox = state.inbox
        if envelope.step != self.hello or party in inbox.answered:
            return ()
        try:
            collector.context.check(envelope)
        except PeerFault:
            return ()
        inbox.answered.add(party)
        # It does not know this run: like its hello, the answer is signed under the session digest.
        return collector.write(b"", ABORT, (party,), abort_of(inbox.excluded[party]))

    def _advance(self, collector: Collector[Any], state: CollectorState) -> Transition:
        """End the step when all remaining parties have sent; raise TimeoutFault if too few remain."""
        self.check(collector, state)
        row = self.row(state)
        needed = row.required(collector, state)
        if state.possible < needed:
            raise collector.too_few(state, needed)
        if state.waiting_count <= 0:
            return _after(state, *row.finish(collector, state))
        return _with_unsent(state, state, ())


def _after(before: CollectorState, state: CollectorState, sent: Sequence[Envelope]) -> Transition:
    """Return the transition out of a step, with the step's accepted messages dropped."""
    before.inbox.items = {}
    return _with_unsent(before, state, sent)


def _with_unsent(before: CollectorState, state: CollectorState, sent: Sequence[Envelope]) -> Transition:
    """Empty the inbox's queue of abort messages; return a transition that sends these, then `sent`."""
    inbox = before.inbox
    unsent, inbox.unsent = inbox.unsent, []
    run_id = state.run_id or before.run_id
    return Transition(replace(state, run_id=run_id, inbox=inbox, count=inbox.events), [*unsent, *sent])


def _left(collector: Collector[Any], state: CollectorState, envelope: Envelope) -> TimeoutFault:
    """Return the error that a party has left the run; raise PeerFault if its message is of another run."""
    abort = decode(envelope.body, Abort, envelope.sender)
    if envelope.run_id not in (state.run_id, collector.context.session_digest, *state.inbox.past):
        raise PeerFault(envelope.sender, "left another run", Check.OTHER_RUN)
    return leave_of(abort, envelope.sender, state.step, collector.context)


def _party_number(collector: Collector[Any], name: str) -> int:
    """Return the number, from 1, of the party with this name; 0 if no party has it."""
    try:
        return collector.context.number(name)
    except ValueError:
        return 0
