"""The step of a role among peers: each party sends letters to all others, and one of them coordinates.

A letter is a message that is signed once for all receivers; letters come in any order. A protocol gives one
state for each phase, with a wait and a function for its end (`Phase`), and a function for the letters of each
step. Signatures, losses, deadlines and the ends of a run are the same for all protocols, and are handled
here.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from smpc_dp.engine import events
from smpc_dp.engine.party import Member
from smpc_dp.engine.state import State, Transition
from smpc_dp.errors import Check, Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.wire.abort import ABORT, LEAVE, NOT_CONNECTED, Abort, abort_of, error_of, leave_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

P_co = TypeVar("P_co", covariant=True)

# The greatest number of stored faults.
MAX_FAULTS = 256


@dataclass(frozen=True, slots=True)
class Letter:
    """Message that a party signed for all others, stored with the SHA-256 of its body."""

    run_id: bytes
    body: bytes
    body_hash: bytes
    signature: bytes


@dataclass(slots=True)
class Inbox:
    """Messages that a party without aggregator has sent and received in one run; it grows in place.

    No letter is copied, or replaced once the run has begun.

    Attributes:
        letters: of each step the letter of each party, this one's too.
        gone: parties that are not waited for any more.
        faults: the texts of the errors, for the result.
        unsent: messages that are sent after the others of the step.
        retained: how many letters were kept, those that were replaced since too.
        events: the number of events that have changed anything.
    """

    letters: dict[str, dict[int, Letter]] = field(default_factory=dict)
    gone: dict[int, None] = field(default_factory=dict)
    faults: dict[str, None] = field(default_factory=dict)
    unsent: list[Envelope] = field(default_factory=list)
    retained: int = 0
    events: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the inbox's collections, by which a step notices whether an event has changed it."""
        return (self.retained, len(self.gone), len(self.faults), len(self.unsent))

    def letter(self, step: str, party: int) -> Letter | None:
        """Return the stored message of a party for a step; None if no such message is stored."""
        return self.letters.get(step, {}).get(party)

    def senders(self, step: str) -> Collection[int]:
        """Return the numbers of the parties whose message of a step has come."""
        return self.letters.get(step, {}).keys()

    def keep(self, step: str, party: int, letter: Letter) -> None:
        """Store a party's message of a step, replacing an earlier one."""
        of_step = self.letters.setdefault(step, {})
        self.retained += of_step.get(party) != letter
        of_step[party] = letter

    def note(self, fault: SmpcError | str) -> None:
        """Store the text of an error for the run's result, unless MAX_FAULTS are stored."""
        if len(self.faults) < MAX_FAULTS:
            self.faults[str(fault)] = None


I = TypeVar("I", bound=Inbox)  # noqa: E741


class PeerState(State, Generic[I], frozen=True, kw_only=True, eq=False):
    """State of a party in a protocol without aggregator: results of earlier phases, and its inbox."""

    inbox: I
    count: int = 0


class Stopped(State, frozen=True, kw_only=True, eq=False):
    """Final state of a party without aggregator whose run has ended by an error, maybe with evidence.

    `left`: the others were told.
    """

    ended: SmpcError
    over: ClassVar[bool] = True
    left: bool = False


@dataclass(frozen=True, slots=True)
class Peer(Member[P_co]):
    """Constant values that a party's steps read in runs without aggregator: context, key, parameters.

    The context's aggregator is the receiver name of messages signed for all.

    Attributes:
        coordinator: the number of the party that coordinates the run, this one or another.
    """

    coordinator: int

    @property
    def coordinates(self) -> bool:
        """Whether this party coordinates the run for all others."""
        return self.index == self.coordinator

    @property
    def everyone(self) -> range:
        """The numbers of all parties in the roster, from 1."""
        return range(1, self.parties + 1)

    def enter(self, state: State) -> None:
        """Do nothing: sessions without aggregator keep no value of a state."""

    def refuse(self, reason: str, check: Check) -> PeerFault:
        """Return a PeerFault, to be raised, that the coordinator has sent something invalid."""
        return PeerFault(self.name_of(self.coordinator), reason, check)

    def signed_under(self, state: State) -> bytes:
        """Return the id that signatures cover: the run's, or the session's before the run has one."""
        return state.run_id or self.context.session_digest

    def letters(self, state: PeerState[Any], step: str, among: Iterable[int]) -> dict[int, Letter]:
        """Return the stored letters of a step in this run, of the parties in `among`, in roster order."""
        expected, of_step = self.signed_under(state), state.inbox.letters.get(step, {})
        result = ((party, of_step.get(party)) for party in sorted(among))
        return {party: letter for party, letter in result if letter is not None and letter.run_id == expected}

    def broadcast(
        self, state: PeerState[Any], step: str, message: msgspec.Struct, to: Iterable[int]
    ) -> list[Envelope]:
        """Sign and store this party's message of a step, and return copies; LocalError if sent before."""
        if state.inbox.letter(step, self.index) is not None:
            raise LocalError(f"{self.name}: step '{step}' was sent before in this run")
        own = self.write(self.signed_under(state), step, message)
        state.inbox.keep(step, self.index, letter_of(own, hashlib.sha256(own.body).digest()))
        return self.address(own, to)

    def address(self, own: Envelope, to: Iterable[int]) -> list[Envelope]:
        """Return copies of a message signed for all, one to each of these parties except this one."""
        index = self.index
        return [replace(own, receiver=self.name_of(party)) for party in to if party != index]

    def write_to(self, run_id: bytes, step: str, message: msgspec.Struct, party: int) -> Envelope:
        """Return a message for one party alone, signed by this party."""
        [envelope] = self.context.write(self.identity, run_id, step, (self.name_of(party),), message)
        return envelope


def _never(_peer: Any, _state: Any) -> bool:
    """Return False: by default a phase needs the messages of all parties."""
    return False


@dataclass(frozen=True, slots=True)
class Wait:
    """What a phase waits for: the parties whose messages are missing, and what happens at the deadline.

    Attributes:
        of: the senders, for the table in the specification.
        missing: (peer, state) -> the parties whose letter is expected; an SmpcError if it cannot come.
        expire: (peer, state) goes on without the late parties, or raises TimeoutFault.
    """

    of: str
    missing: Callable[[Any, Any], Collection[int]]
    expire: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """Row of a state table without aggregator: the messages that a state waits for, and the next state.

    Attributes:
        state: the state.
        wait: what the state waits for.
        act: (peer, state) -> the next state and the messages, when no letter is missing.
        next: the states that may follow.
        sends: the steps of these messages.
        ends: the possibilities that end with it, for the table in the specification.
        enough: (peer, state) -> whether as many letters have come as the run needs, though others may.
    """

    state: type[PeerState[Any]]
    wait: Wait
    act: Callable[[Any, Any], Transition]
    next: tuple[type[State], ...]
    sends: tuple[str, ...]
    ends: str
    enough: Callable[[Any, Any], bool] = _never


# (peer, state, party, envelope, SHA-256 of its body) -> the answers, when the letter is kept. A PeerFault
# of its sender is noted and does not end the run, unless the sender coordinates.
Take = Callable[[Any, Any, int, Envelope, bytes], Sequence[Envelope]]


@dataclass(frozen=True)
class PeerRole:
    """Role of a party in a protocol without an aggregator, as a table of states without I/O.

    Attributes:
        first: the state before the run begins.
        begin: (peer, state) -> the state in which the peer waits for others, and its hello.
        hello: the step of what `begin` sends.
        phases: the table.
        takes: by step, the function for letters of the step.
        to_one: the steps of messages that are signed for one party alone.
        most_bytes: (peer, step) -> the longest body, so that no party can fill the memory.
        last: the coordinator's last step: after it the run can end well without the coordinator.
        saved: whether its states may be saved.
    """

    first: type[PeerState[Any]]
    begin: Callable[[Any, Any], Transition]
    hello: str
    phases: tuple[Phase, ...]
    takes: Mapping[str, Take]
    to_one: Collection[str]
    most_bytes: Callable[[Any, str], int]
    last: str
    saved: bool = False

    @property
    def patience(self) -> tuple[bool, ...]:
        """Whether each phase waits for a coordinator that waits for others first, in order of phases."""
        return tuple({phase.state.phase: phase.state.patient for phase in self.phases}.values())

    @property
    def releases(self) -> frozenset[str]:
        """Names of the steps whose messages are the first that depend on the party's vector."""
        return frozenset(step for phase in self.phases if phase.state.releases for step in phase.sends)

    def phase(self, state: State) -> Phase | None:
        """Return the row of the table of states for a state; None before and after the run."""
        return next((phase for phase in self.phases if type(state) is phase.state), None)

    def waiting_for(self, peer: Peer[Any], state: PeerState[Any]) -> frozenset[str]:
        """Return the names of parties whose message the phase expects; none before and after the run."""
        phase = self.phase(state)
        return frozenset(map(peer.name_of, phase.wait.missing(peer, state))) if phase else frozenset()

    def waiting_count(self, peer: Peer[Any], state: PeerState[Any]) -> int:
        """Return the number of parties whose message the phase still expects."""
        return len(self.waiting_for(peer, state))

    def has_enough(self, peer: Peer[Any], state: PeerState[Any]) -> bool:
        """Tell whether the phase has as many messages as it needs, though others may still come."""
        phase = self.phase(state)
        return phase is not None and phase.enough(peer, state)

    def step(self, peer: Peer[Any], state: PeerState[Any], event: events.Event) -> Transition:
        """Return the next state after an event, and messages; the inbox, which states share, grows in place.

        The inbox grows in place; `state` is the newest that refers to it, or LocalError is raised.

        Raises:
            SmpcError: the run cannot go on for this peer; only `Cancellation` may follow.
        """
        match event:
            case events.Cancellation(error) if state.outcome is None and not _has_left(state):
                leave = peer.write(peer.context.session_digest, LEAVE, abort_of(error))
                stopped = Stopped(run_id=state.run_id, ended=error, left=True)
                return Transition(stopped, peer.address(leave, peer.everyone))
            case _ if state.over:
                return Transition(state)
            case events.Message(envelope):
                party = _party_number(peer, envelope.sender)
                if party in (0, peer.index):
                    return Transition(state)
        inbox = state.inbox
        if state.count != inbox.events:
            raise LocalError(f"{peer.name}: a second step from one state of '{state.step}'")
        sizes = inbox.sizes
        sent: Sequence[Envelope] = ()
        match event:
            case events.Start():
                begun = self.begin(peer, state)
                inbox.events += 1
                return Transition(replace(begun.state, count=inbox.events), begun.messages)
            case events.Message(envelope):
                sent = self._receive(peer, state, party, envelope)
            case events.PeersLost(peers):
                lose(peer, state, peers, self.last)
            case events.Deadline():
                if (phase := self.phase(state)) is not None:
                    phase.wait.expire(peer, state)
            case _:
                pass
        return self._advance(peer, state, sent, sizes)

    def failed(self, state: State, error: SmpcError) -> Stopped:
        """Return the final state after an error, without secrets; `Cancellation` gives last messages."""
        return Stopped(run_id=state.run_id, ended=error)

    def _advance(
        self, peer: Peer[Any], state: PeerState[Any], sent: Sequence[Envelope], sizes: tuple[int, ...]
    ) -> Transition:
        """Go to later phases while no expected message is missing; return the state and messages."""
        inbox, messages, after = state.inbox, [*sent], Transition(state)
        while (phase := self.phase(after.state)) and not phase.wait.missing(peer, after.state):
            after = phase.act(peer, after.state)
            messages += after.messages
        if after.state is state and not messages and inbox.sizes == sizes:
            return after
        inbox.events += 1
        unsent, inbox.unsent = inbox.unsent, []
        newest = after.state if after.state.over else replace(after.state, count=inbox.events)
        return Transition(newest, [*messages, *unsent])

    def _receive(
        self, peer: Peer[Any], state: PeerState[Any], party: int, envelope: Envelope
    ) -> Sequence[Envelope]:
        """Check and store a party's message; record a fault of another party, raise the coordinator's."""
        try:
            return self._take(peer, state, party, envelope)
        except PeerFault as fault:
            # A deviating party does not end the run: those of its letters that count come through the
            # coordinator.
            if fault.culprit != envelope.sender or party == peer.coordinator:
                raise
            state.inbox.note(fault)
            return ()

    def _take(
        self, peer: Peer[Any], state: PeerState[Any], party: int, envelope: Envelope
    ) -> Sequence[Envelope]:
        """Check a party's message, and return the answers of its step's function; PeerFault if invalid."""
        sender, step = envelope.sender, envelope.step
        if envelope.receiver != peer.name:
            raise PeerFault(sender, f"sent a message for {envelope.receiver!r}", Check.WRONG_RECEIVER)
        if len(envelope.body) > self.most_bytes(peer, step):
            raise PeerFault(
                sender, f"sent {len(envelope.body)} bytes in step '{step[:40]}'", Check.WRONG_LENGTH
            )
        to_all = replace(envelope, receiver=peer.context.aggregator)
        body_hash = peer.context.check(envelope if step in self.to_one else to_all)
        if step in (LEAVE, ABORT):
            self._left(peer, state, party, envelope)
            return ()
        if step not in self.takes:
            raise PeerFault(sender, f"sent '{step[:40]}', which is not its to send", Check.WRONG_SENDER)
        return self.takes[step](peer, state, party, envelope, body_hash)

    def _left(self, peer: Peer[Any], state: PeerState[Any], party: int, envelope: Envelope) -> None:
        """Record that a party left; raise the coordinator's error if it aborts, or leaves too early."""
        abort = decode(envelope.body, Abort, envelope.sender)
        if envelope.run_id != peer.context.session_digest:
            raise PeerFault(envelope.sender, "left another session", Check.OTHER_SESSION)
        teller = dataclasses.replace(peer.context, aggregator=peer.name_of(peer.coordinator))
        aborts = envelope.step == ABORT
        if party == peer.coordinator and (aborts or _requires_coordinator(peer, state, self.last)):
            raise error_of(abort, teller)
        if aborts:
            raise PeerFault(
                envelope.sender, "sent an abort, which is the coordinator's to send", Check.WRONG_SENDER
            )
        state.inbox.note(leave_of(abort, envelope.sender, state.step, teller))
        state.inbox.gone[party] = None


def letter_of(envelope: Envelope, body_hash: bytes) -> Letter:
    """Return a received message in the form in which it is stored, with the SHA-256 of its body."""
    return Letter(envelope.run_id, envelope.body, body_hash, envelope.signature)


def lose(peer: Peer[Any], state: PeerState[Any], names: Iterable[str], last: str) -> None:
    """Stop waiting for lost parties; TimeoutFault for the coordinator before its message of step `last`."""
    parties = {_party_number(peer, name) for name in names} - {0}
    if peer.coordinator in parties and _requires_coordinator(peer, state, last):
        name = peer.name_of(peer.coordinator)
        raise TimeoutFault({name}, state.step, NOT_CONNECTED, code=Code.LOST)
    state.inbox.gone |= dict.fromkeys(sorted(parties))


def _requires_coordinator(peer: Peer[Any], state: PeerState[Any], last: str) -> bool:
    """Tell whether the coordinator's last message is still needed to end the run well."""
    return not peer.coordinates and state.inbox.letter(last, peer.coordinator) is None


def _has_left(state: State) -> bool:
    """Tell whether this party has told the others that it has left the run."""
    return isinstance(state, Stopped) and state.left


def _party_number(peer: Peer[Any], name: str) -> int:
    """Return the number, from 1, of the party with this name; 0 if no party has it."""
    try:
        return peer.context.number(name)
    except ValueError:
        return 0
