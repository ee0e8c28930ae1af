"""The two roles of a protocol in rounds around a hub: everybody answers the hub, step by step.

They hold what does not depend on the protocol: signatures, order of steps, repetitions and equivocation, who
is lost or late, and how a run ends early. A protocol gives the steps and what happens in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

import msgspec

from smpc_dp.errors import Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.abort import ABORT, LEAVE, Abort, abort_of, code_of, equivocation, error_of, leave_of
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine import events
from smpc_dp.protocols.envelope import Context, Signer, decode

R = TypeVar("R")

PartyHandler = Callable[[bytes], Sequence[Envelope]]
Accept = Callable[[int, Envelope], None]
Finish = Callable[[], list[Envelope]]


def handle(machine: Any, event: events.Event) -> Sequence[Envelope]:
    """Give one event to the method that takes it."""
    match event:
        case events.Start():
            sent = machine.start()
        case events.Message(envelope):
            sent = machine.receive(envelope)
        case events.Deadline():
            sent = machine.expire()
        case events.PeersLost(peers):
            lost_all = getattr(machine, "lost_all", None)
            sent = machine.lost(peers[0]) if lost_all is None else lost_all(peers)
        case events.Conviction(peer, error):
            sent = machine.ban(peer, error)
        case events.Cancellation(error):
            sent = machine.farewell(error)
    return cast("Sequence[Envelope]", sent)


class Role(Generic[R]):
    """What all machines of a run have in common."""

    def __init__(self, context: Context, identity: Signer) -> None:
        self._context = context
        self._identity = identity
        self._parties = len(context.names)
        self._run_id = b""
        self._position = 0
        self._over = False
        self._outcome: R | None = None

    @property
    def name(self) -> str:
        """Whom the machine acts for."""
        return self._identity.name

    @property
    def run_id(self) -> bytes:
        """The run id, empty until it is agreed on who takes part."""
        return self._run_id

    @property
    def finished(self) -> bool:
        """True when the result is there, or the run is over for this machine."""
        return self._over

    @property
    def result(self) -> R:
        """What the run ended with; raise LocalError while there is nothing."""
        if self._outcome is None:
            raise LocalError(f"{self.name}: the run has no result")
        return self._outcome

    def handle(self, event: events.Event) -> Sequence[Envelope]:
        """Take one event, and return what is to be sent."""
        return handle(self, event)

    def _name_of(self, party: int) -> str:
        return self._context.names[party - 1]


class PartyRole(Role[R]):
    """A party: it sends each of its steps once, and takes each step of the hub once, in order.

    `_handlers` maps every step of the hub, in order, to what the party does with its body. The first one, and
    those of `_renewing`, set the run id from that body; its envelope must carry the same.
    """

    _handlers: Mapping[str, PartyHandler]
    release_step = ""
    _renewing: frozenset[str] = frozenset()
    _last_step: str

    def __init__(self, context: Context, identity: Signer) -> None:
        super().__init__(context, identity)
        self._index = context.number(identity.name)
        self._sent: set[str] = set()
        self._seen: dict[str, tuple[bytes, bytes]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, waits for {self.step!r})"

    @property
    def step(self) -> str:
        """The hub's step that is due next, or "done"."""
        return "done" if self._over else list(self._handlers)[self._position]

    @property
    def state(self) -> Any:
        """The machine itself."""
        return self

    @property
    def releases(self) -> bool:
        """Whether the answer to the expected message is the first that depends on the vector."""
        return self.step == self.release_step

    @property
    def waiting_for(self) -> frozenset[str]:
        """The hub, until the end."""
        return frozenset() if self._over else frozenset({self._context.aggregator})

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take the hub's next message and return the answer."""
        if self._over:
            return ()
        try:
            return self._receive(envelope)
        except SmpcError:
            self._end()
            raise

    def lost(self, peer: str) -> Sequence[Envelope]:
        """End with TimeoutFault when the hub is gone."""
        return self.expire() if peer == self._context.aggregator else ()

    def expire(self) -> Sequence[Envelope]:
        """End with TimeoutFault: the hub did not send what is due."""
        if self._over:
            return ()
        step = self.step
        self._end()
        raise TimeoutFault({self._context.aggregator}, step)

    def farewell(self, error: SmpcError) -> Sequence[Envelope]:
        """Tell the hub that this party leaves, and why."""
        self._end()
        if not self._sent.isdisjoint((LEAVE, self._last_step)):
            return ()
        return self._emit(LEAVE, abort_of(error))

    def _end(self) -> None:
        """Be over; a protocol forgets its secrets here."""
        self._over = True

    def _emit(self, step: str, message: msgspec.Struct) -> Sequence[Envelope]:
        """Return the one message of a step; a second one is refused, whatever it says."""
        if step in self._sent:
            raise LocalError(f"{self.name}: step '{step}' was sent before in this run")
        self._sent.add(step)
        run_id = self._run_id or self._context.session_digest
        return self._context.write(self._identity, run_id, step, (self._context.aggregator,), message)

    def _refuse(self, reason: str) -> PeerFault:
        return PeerFault(self._context.aggregator, reason)

    def _receive(self, envelope: Envelope) -> Sequence[Envelope]:
        if envelope.sender != self._context.aggregator:
            raise PeerFault(envelope.sender, "only the aggregator speaks to a party")
        if envelope.receiver != self.name:
            raise self._refuse(f"sent a message for {envelope.receiver!r}")
        body_hash = self._context.check(envelope)
        if envelope.step in self._seen:
            earlier, signature = self._seen[envelope.step]
            if earlier == body_hash:
                return ()
            raise equivocation(envelope, self._context, self._run_id, earlier, signature)
        if envelope.step == ABORT:
            if envelope.run_id not in (self._run_id, self._context.session_digest):
                if not self._run_id:
                    # For a process of this party that was there before, and whose link was lost.
                    return ()
                raise self._refuse("sent an abort of another run")
            raise error_of(decode(envelope.body, Abort, envelope.sender), self._context)
        due = self.step
        if envelope.step != due:
            raise self._refuse(f"sent '{envelope.step}' where '{due}' is due")
        if self._position and due not in self._renewing and envelope.run_id != self._run_id:
            raise self._refuse(f"sent '{envelope.step}' of another run")
        answer = self._handlers[due](envelope.body)
        if envelope.run_id != self._run_id:
            raise self._refuse(f"{due} is not for the run that its nonces give")
        self._seen[envelope.step] = (body_hash, envelope.signature)
        self._position += 1
        return answer


class HubRole(Role[R]):
    """The hub: it collects one message of each party in every step, and goes on when all have spoken.

    `_steps` maps every step of the parties, in order, to what is done with one party's message (a PeerFault
    excludes that party) and to what is sent when the step is over. `_needed` says how many parties a step
    needs.
    """

    _steps: Mapping[str, tuple[Accept, Finish]]

    def __init__(self, context: Context, identity: Signer) -> None:
        super().__init__(context, identity)
        self._number = {name: place for place, name in enumerate(context.names, 1)}
        self._alive = set(range(1, self._parties + 1))
        self._excluded: dict[int, SmpcError] = {}
        self._faults: list[str] = []
        self._received: dict[int, Envelope] = {}
        self._seen: dict[tuple[int, str], tuple[bytes, bytes]] = {}
        self._untold: list[Envelope] = []
        self._told_late: set[int] = set()
        # Run ids that a protocol with several has left behind: a party may not have heard of it.
        self._past: set[bytes] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, waits for {len(self.waiting_for)} in {self.step!r})"

    @property
    def step(self) -> str:
        """The parties' step that is being collected, or "done"."""
        return "done" if self._over else list(self._steps)[self._position]

    @property
    def waiting_for(self) -> frozenset[str]:
        """The parties whose message of this step has not come."""
        if self._over:
            return frozenset()
        return frozenset(self._name_of(party) for party in self._alive - self._received.keys())

    @property
    def state(self) -> Any:
        """The machine itself."""
        return self

    def longest(self, _: object) -> int:
        """No message is longer than the session plans."""
        return 0

    @property
    def has_enough(self) -> bool:
        """True when as many parties have spoken in this step as it needs."""
        return not self._over and len(self._received) >= self._needed()

    role = property(lambda self: self)
    member = None
    inbox = property(lambda self: SimpleNamespace(excluded=self._excluded, faults=self._faults))

    def most_steps(self, _: object) -> int:
        """At most so many steps follow the first one."""
        return len(self._steps) - 1

    @property
    def matchings(self) -> int:
        """How many pairs a party may have to evaluate, one after the other, within this step."""
        return 0

    def ban(self, peer: str, error: SmpcError) -> Sequence[Envelope]:
        """Exclude a party that was convicted in an earlier run."""
        party = self._number.get(peer)
        if self._over or party is None or party not in self._alive:
            return ()
        return self._exclude(party, error)

    def start(self) -> Sequence[Envelope]:
        """Send nothing: parties speak first."""
        return ()

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take one party's message; a fault of the party excludes it."""
        party = self._number.get(envelope.sender)
        if self._over or party is None:
            return ()
        if party not in self._alive:
            return self._tell_late(party, envelope)
        try:
            if not self._is_new(party, envelope):
                return ()
            if envelope.step == LEAVE:
                return self._leave(party, envelope)
            accept, _ = self._steps[envelope.step]
            accept(party, envelope)
        except PeerFault as fault:
            return self._exclude(party, fault)
        self._received[party] = self._kept(envelope)
        return self._advance()

    def lost(self, peer: str) -> Sequence[Envelope]:
        """Exclude a party whose link is gone."""
        return self.lost_all((peer,))

    def lost_all(self, peers: Iterable[str]) -> Sequence[Envelope]:
        """Exclude several parties at once, so that an error names them all."""
        if self._over:
            return ()
        for peer in peers:
            party = self._number.get(peer)
            if party is not None and party in self._alive:
                self._received.pop(party, None)
                self._drop(party, TimeoutFault({peer}, self.step, "connection lost", code=Code.LOST))
        return self._advance()

    def expire(self) -> Sequence[Envelope]:
        """Exclude everyone who is late in this step."""
        if self._over:
            return ()
        for party in sorted(self._alive - self._received.keys()):
            late = TimeoutFault({self._name_of(party)}, self.step, "deadline passed", code=Code.LATE)
            self._drop(party, late)
        return self._advance()

    def farewell(self, error: SmpcError) -> Sequence[Envelope]:
        """Tell everyone who has not been told yet that the run has stopped, and why."""
        self._over = True
        return self._with_untold(self._broadcast(ABORT, abort_of(error)))

    def _needed(self) -> int:
        """Return how many parties this step needs, in a protocol's own way."""
        raise NotImplementedError

    def _kept(self, envelope: Envelope) -> Envelope:
        """Return what is kept of an accepted message until its step is over."""
        return envelope

    def _write(self, step: str, names: Sequence[str], message: msgspec.Struct) -> list[Envelope]:
        run_id = self._run_id or self._context.session_digest
        return self._context.write(self._identity, run_id, step, names, message)

    def _broadcast(self, step: str, message: msgspec.Struct) -> list[Envelope]:
        return self._write(step, [self._name_of(party) for party in sorted(self._alive)], message)

    def _to_each(self, step: str, message: Callable[[int], msgspec.Struct]) -> list[Envelope]:
        """Return to everyone who is there what `message` gives for that party."""
        return [
            envelope
            for party in sorted(self._alive)
            for envelope in self._write(step, (self._name_of(party),), message(party))
        ]

    def _is_new(self, party: int, envelope: Envelope) -> bool:
        """Check signature, run and order; return False for a repetition."""
        if envelope.receiver != self.name:
            raise PeerFault(envelope.sender, f"sent a message for {envelope.receiver!r}")
        body_hash = self._context.check(envelope)
        first = envelope.step == next(iter(self._steps))
        due = self._context.session_digest if first else self._run_id
        if (party, envelope.step) in self._seen:
            earlier, signature = self._seen[party, envelope.step]
            if earlier == body_hash:
                return False
            raise equivocation(envelope, self._context, due, earlier, signature)
        if envelope.step not in (LEAVE, self.step):
            raise PeerFault(envelope.sender, f"sent '{envelope.step}' where '{self.step}' is due")
        if envelope.run_id != due and envelope.step != LEAVE:
            raise PeerFault(envelope.sender, f"sent '{envelope.step}' of another run")
        self._seen[party, envelope.step] = (body_hash, envelope.signature)
        return True

    def _leave(self, party: int, envelope: Envelope) -> Sequence[Envelope]:
        abort = decode(envelope.body, Abort, envelope.sender)
        if envelope.run_id not in (self._run_id, self._context.session_digest, *self._past):
            raise PeerFault(envelope.sender, "left another run")
        return self._exclude(party, leave_of(abort, envelope.sender, self.step, self._context))

    def _drop(self, party: int, error: SmpcError) -> None:
        """Exclude a party; it is told with whatever is sent next, if only with the farewell."""
        self._alive.discard(party)
        self._excluded[party] = error
        self._faults.append(str(error))
        self._untold += self._abort(party, error)

    def _with_untold(self, sent: Sequence[Envelope]) -> list[Envelope]:
        untold, self._untold = self._untold, []
        return [*untold, *sent]

    def _tell_late(self, party: int, envelope: Envelope) -> Sequence[Envelope]:
        """Tell a process that says hello to a run that it is out of, once, instead of letting it wait."""
        if envelope.step != next(iter(self._steps)) or party in self._told_late:
            return ()
        try:
            self._context.check(envelope)
        except PeerFault:
            return ()
        self._told_late.add(party)
        # It does not know this run: like its hello, the answer goes under the session's digest.
        digest, message = self._context.session_digest, abort_of(self._excluded[party])
        return self._context.write(self._identity, digest, ABORT, (envelope.sender,), message)

    def _abort(self, party: int, error: SmpcError) -> list[Envelope]:
        return self._write(ABORT, [self._name_of(party)], abort_of(error))

    def _exclude(self, party: int, error: SmpcError) -> Sequence[Envelope]:
        self._received.pop(party, None)
        self._drop(party, error)
        return self._advance()

    def _advance(self) -> list[Envelope]:
        """Finish the step when everyone who is still there has spoken; stop when too few are left."""
        try:
            needed = self._needed()
            if len(self._alive) < needed:
                raise self._too_few(needed)
            if len(self._received) < len(self._alive):
                return self._with_untold(())
            _, finish = self._steps[self.step]
            sent = finish()
        except SmpcError:
            self._over = True
            raise
        self._received = {}
        self._position += 1
        self._over = self._position == len(self._steps)
        return self._with_untold(sent)

    def _too_few(self, needed: int) -> SmpcError:
        excluded = {self._name_of(party): error for party, error in self._excluded.items()}
        why = {name: code_of(error, name) for name, error in excluded.items()}
        detail = f"{len(self._alive)} of {self._parties} parties are left, {needed} are needed"
        reasons = "; ".join(str(error) for error in list(excluded.values())[:5])
        return TimeoutFault(why, self.step, f"{detail}: {reasons}", code=Code.FEW, why=why, number=needed)
