"""How a user of a run without a relay goes from phase to phase: what it takes from whom, and who is gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from smpc_dp.errors import Code, LocalError, PeerFault, SmpcError, TimeoutFault
from smpc_dp.protocols.abort import ABORT, LEAVE, Abort, abort_of, equivocation, error_of, leave_of
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine import events
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp.protocols.gopa import direct_messages as d
from smpc_dp.protocols.gopa.direct_evidence import Correspondence, letter_of
from smpc_dp.protocols.result import Outcome
from smpc_dp.protocols.secagg import messages as m
from smpc_dp.protocols.star import handle


@dataclass(frozen=True, slots=True)
class Phase:
    """What a machine waits for: `missing` is empty when it may `act`; `expire` is told of the deadline.

    `patient`: it waits for the coordinator, which itself waits for others first.
    """

    step: str
    missing: Callable[[], Collection[int]]
    act: Callable[[], list[Envelope]]
    expire: Callable[[], None]
    patient: bool = False


class DirectRole(Correspondence):
    """One user in one run: it takes letters in any order and goes from phase to phase when it can."""

    _phases: Sequence[Phase]

    def __init__(self, context: Context, identity: Signer) -> None:
        super().__init__(context, identity)
        self._position = 0
        self._over = False
        self._outcome: Outcome | None = None
        self._forwarded: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, waits in {self.step!r})"

    @property
    def run_id(self) -> bytes:
        """The run id, empty until the coordinator has begun the run."""
        return self._run_id

    @property
    def step(self) -> str:
        """What is waited for, or "done"."""
        return "done" if self._over else self._phases[self._position].step

    @property
    def place(self) -> int:
        """How many phases are behind this machine."""
        return self._position

    @property
    def patient(self) -> bool:
        """True while the machine waits for the coordinator, which itself waits for others first."""
        return not self._over and self._phases[self._position].patient

    @property
    def patience(self) -> tuple[bool, ...]:
        """Of each phase whether it is `patient`."""
        return tuple(phase.patient for phase in self._phases)

    @property
    def finished(self) -> bool:
        """True when the result is there, or the run is over for this machine."""
        return self._over

    @property
    def result(self) -> Outcome:
        """What the run ended with; raise LocalError while there is nothing."""
        if self._outcome is None:
            raise LocalError(f"{self.name}: the run has no result")
        return self._outcome

    @property
    def waiting_for(self) -> frozenset[str]:
        """Whose message has not come in this phase."""
        if self._over:
            return frozenset()
        return frozenset(map(self._name_of, self._phases[self._position].missing()))

    @property
    def has_enough(self) -> bool:
        """True when as many have spoken as the phase needs, though others may still."""
        return False

    def handle(self, event: events.Event) -> Sequence[Envelope]:
        """Take one event, and return what is to be sent."""
        return handle(self, event)

    def receive(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take one message of another user."""
        party = self._number.get(envelope.sender)
        if self._over or party is None or party == self._me:
            return ()
        return self._guarded(lambda: self._receive(party, envelope))

    def lost(self, peer: str) -> Sequence[Envelope]:
        """Wait no longer for a user whose link is gone; the coordinator's ends the run while it is needed."""
        return self.lost_all((peer,))

    def lost_all(self, peers: Iterable[str]) -> Sequence[Envelope]:
        """Lose several links at once, so that an error names all."""
        if self._over:
            return ()
        return self._guarded(lambda: self._lose(peers))

    def expire(self) -> Sequence[Envelope]:
        """Go on without those who are late, or end with TimeoutFault where that cannot be."""
        if self._over:
            return ()

        def late() -> list[Envelope]:
            self._phases[self._position].expire()
            return self._advance()

        return self._guarded(late)

    def farewell(self, error: SmpcError) -> Sequence[Envelope]:
        """Tell everyone that this user leaves, and why."""
        self._end()
        if LEAVE in self._sent or self._outcome is not None:
            return ()
        return self._broadcast(LEAVE, abort_of(error), range(1, self._parties + 1))

    # For protocols

    def _end(self) -> None:
        """Be over; a protocol forgets its secrets here."""
        self._over = True
        self._mail.clear()
        self._forwarded.clear()

    def _needs_coordinator(self) -> bool:
        """Tell whether the run cannot end well without another message of the coordinator."""
        return self._me != self._coordinator and (self._coordinator, d.PUBLISHED) not in self._mail

    def _most_bytes(self, step: str) -> int:
        """Return what a message of a step may have, so that liars cannot fill the memory."""
        raise NotImplementedError

    # Messages

    def _guarded(self, action: Callable[[], list[Envelope]]) -> list[Envelope]:
        try:
            return action()
        except SmpcError:
            self._end()
            raise

    def _receive(self, party: int, envelope: Envelope) -> list[Envelope]:
        try:
            sent = self._take(party, envelope)
        except PeerFault as fault:
            # A liar among the others costs the run nothing: what counts of it comes through the coordinator.
            if fault.culprit != envelope.sender or party == self._coordinator:
                raise
            self._note(fault)
            sent = []
        return sent + self._advance()

    def _advance(self) -> list[Envelope]:
        sent: list[Envelope] = []
        while not self._over:
            phase = self._phases[self._position]
            if phase.missing():
                break
            self._position += 1
            sent += phase.act()
        return sent

    def _take(self, party: int, envelope: Envelope) -> list[Envelope]:
        step = envelope.step
        if envelope.receiver != self.name:
            raise PeerFault(envelope.sender, f"sent a message for {envelope.receiver!r}")
        signed = envelope if step in d.TO_ONE else replace(envelope, receiver=d.EVERYONE)
        if len(envelope.body) > self._most_bytes(step):
            raise PeerFault(envelope.sender, f"sent {len(envelope.body)} bytes in step '{step[:40]}'")
        body_hash = self._context.check(signed)
        if step in (LEAVE, ABORT):
            self._take_leave(party, envelope)
        elif step == d.WITNESS:
            self._take_witness(party, decode(envelope.body, d.Witness, envelope.sender))
        elif step == d.FORWARD and party == self._coordinator:
            forward = decode(envelope.body, d.Forward, envelope.sender)
            if envelope.run_id != self._run_id:
                raise self._refuse("forwards a publication of another run")
            if 1 <= forward.party <= self._parties:
                self._forwarded.setdefault(forward.party, forward.body)
        elif step == d.HELD and self._me != self._coordinator:
            raise PeerFault(envelope.sender, f"sent '{step}' to somebody who does not coordinate")
        elif step in d.USER_STEPS or (step in d.PROPOSALS and party == self._coordinator):
            return self._keep(party, envelope, body_hash)
        else:
            raise PeerFault(envelope.sender, f"sent '{step[:40]}', which is not its to send")
        return []

    def _keep(self, party: int, envelope: Envelope, body_hash: bytes) -> list[Envelope]:
        step, known = envelope.step, self._mail.get((party, envelope.step))
        letter = letter_of(envelope, body_hash)
        if step == m.HELLO and not self._run_id:
            # A process that has called again, or has started again: the last hello is the one to answer.
            self._mail[party, step] = letter
            self._spoken[step].add(party)
            self._gone.discard(party)
            return []
        if known is None:
            self._mail[party, step] = letter
            if step in self._spoken:
                self._spoken[step].add(party)
            if party == self._coordinator and step in d.PROPOSALS:
                for witness in self._witnesses.pop(step, {}).values():
                    self._weigh(witness, letter)
            return self._suspect(step, letter)
        if known.body_hash == body_hash and known.run_id == letter.run_id:
            return []
        if step == m.HELLO:
            self._note(f"{envelope.sender}: started again after the run had begun")
            return self._lose([envelope.sender])
        if known.run_id == letter.run_id and step in d.USER_STEPS and step != d.HELD:
            self._convict(step, party, known, body_hash, letter.signature)
        raise equivocation(envelope, self._context, known.run_id, known.body_hash, known.signature)

    # Who is gone

    def _take_leave(self, party: int, envelope: Envelope) -> None:
        abort = decode(envelope.body, Abort, envelope.sender)
        if envelope.run_id != self._context.session_digest:
            raise PeerFault(envelope.sender, "left another session")
        teller = dataclasses.replace(self._context, aggregator=self.coordinator)
        if party == self._coordinator and (envelope.step == ABORT or self._needs_coordinator()):
            raise error_of(abort, teller)
        if envelope.step == ABORT:
            raise PeerFault(envelope.sender, "sent an abort, which is the coordinator's to send")
        self._note(leave_of(abort, envelope.sender, self.step, teller))
        self._gone.add(party)

    def _lose(self, peers: Iterable[str]) -> list[Envelope]:
        parties = {self._number[peer] for peer in peers if peer in self._number}
        if self._coordinator in parties and self._needs_coordinator():
            raise TimeoutFault({self.coordinator}, self.step, "connection lost", code=Code.LOST)
        self._gone |= parties
        return self._advance()
