"""A server of a computation on shares.

The servers agree on the participants before any party shares, and on the parties whose shares all of them
hold before they compute: a party that shares with only some of them is left out by all, and named.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from smpc_dp.capabilities.servers.secret_sharing import messages as m
from smpc_dp.capabilities.servers.secret_sharing.agreement import (
    NO_SURVIVAL,
    MakeTerms,
    Member,
    common,
    hellos_digest,
    output_statement,
    run_identifier,
    shared_set_statement,
    terms_of,
)
from smpc_dp.capabilities.servers.secret_sharing.sharing import unpack
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault, check_of
from smpc_dp.wire.abort import ABORT, LEAVE, NOT_CONNECTED, Abort, abort_of, code_of, leave_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context, Signer, decode

M = TypeVar("M", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Job:
    """One computation for this server's mpyc process: the program's terms, and its shares of the records."""

    terms: ProgramTerms
    shares: list[list[int]] = field(repr=False)


class ServerRun(Member):
    """A server's role in one run on shares: it collects shares, computes with other servers, and reports.

    In the step COMPUTE it waits for its driver, which passes `job` to mpyc and reports the opened values.
    `fewest`: the number of parties with which it goes on.
    """

    def __init__(
        self, context: Context, servers: Sequence[str], identity: Signer, make: MakeTerms, *, fewest: int
    ) -> None:
        super().__init__(context, servers, identity)
        self._position = 0
        self._make = make
        self._fewest = fewest
        self._others = tuple(name for name in servers if name != identity.name)
        self._parties = len(context.names)
        self._number = {name: index for index, name in enumerate(context.names, 1)}
        self._alive = set(self._number.values())
        self._failures: dict[int, SmpcError] = {}
        self._hellos: dict[int, tuple[bytes, m.Hello]] = {}
        self._operations: dict[str, str] = {}
        self._present: dict[str, m.Present] = {}
        self._start: m.Start | None = None
        self._terms: ProgramTerms | None = None
        self._members: tuple[int, ...] = ()
        self._shares: dict[int, list[int]] = {}
        self._held: dict[str, m.Held] = {}
        self._included = b""
        self._faults: tuple[m.LeftOut, ...] = ()
        self._seals: dict[str, m.Seal] = {}
        self._outputs: dict[str, m.Output] = {}
        self._finish: dict[str, Callable[[], list[Envelope]]] = {
            m.HELLO: self._notify_present,
            m.PRESENT: self._agree,
            m.SHARES: self._notify_held,
            m.HELD: self._seal,
            m.SEAL: self._unlock,
            m.OUTPUT: self._compare,
        }
        self._stopping = False
        # Whether this server's own report is sent, and whether its error is what another server said.
        self._reported_own = self._hearsay = False
        self._untold: list[Envelope] = []
        self._early: list[Envelope] = []
        # Parties left out that said hello again, with a new process, and were answered.
        self._answered: set[int] = set()

    def __repr__(self) -> str:
        return f"ServerRun({self.name!r}, waits for {len(self.waiting_for)} in {self.step!r})"

    @property
    def step(self) -> str:
        """Name of the server's current step: the message awaited, computing, stopping, or "done"."""
        return "done" if self._over else m.STOPPING if self._stopping else m.SERVER_STEPS[self._position]

    @property
    def looks_back(self) -> bool:
        """Whether the driver must now stop the computation, and report which servers were silent."""
        return self.step == m.STOPPING and self.name not in self._reports

    @property
    def job(self) -> Job | None:
        """The computation that the driver must run now; None except in the computing step."""
        if self.step != m.COMPUTE or self._terms is None:
            return None
        included = PartySet.unpack(self._included, self._parties, self.name)
        present = PartySet.unpack(pack_set(self._members, self._parties), self._parties, self.name)
        terms = terms_of(self._terms, present, included)
        return Job(terms, [self._shares[party] for party in included])

    @property
    def waiting_for(self) -> frozenset[str]:
        """The names of members whose messages of this step are missing."""
        step = self.step
        if step in (m.HELLO, m.SHARES):
            expected = self._alive if step == m.HELLO else self._alive.intersection(self._members)
            there = self._hellos.keys() if step == m.HELLO else self._shares.keys()
            return frozenset(map(self._name_of, expected - there))
        collected: Mapping[str, Mapping[str, object]] = {
            m.PRESENT: self._present,
            m.HELD: self._held,
            m.SEAL: self._seals,
            m.OUTPUT: self._outputs,
            # One that has opened may have finished.
            m.STOPPING: {**self._reports, **self._outputs, **dict.fromkeys(self._gone)},
        }
        return frozenset(self._others) - collected[step].keys() if step in collected else frozenset()

    @property
    def has_enough(self) -> bool:
        """Whether the server still collects hellos, and as many parties as the run needs have sent one."""
        return self.step == m.HELLO and len(self._hellos) >= self._fewest

    def expects(self, peer: str) -> bool:
        """Return whether a message of a peer is still needed; parties may leave once they have shared."""
        if self._over:
            return False
        party = self._number.get(peer)
        if party is None:
            return peer not in self._outputs
        return not self._stopping and party in self._alive and party not in self._shares

    def _on_start(self) -> Sequence[Envelope]:
        """Return no messages: a run begins with the parties' hellos."""
        return ()

    def _on_message(self, envelope: Envelope) -> Sequence[Envelope]:
        """Take a message and return answers; a party's fault excludes the party, a server's ends the run."""
        if self._over:
            return ()
        sender = envelope.sender
        if sender in self._others:
            return self._guard(lambda: self._from_server(envelope))
        party = self._number.get(sender)
        if party is None or self._stopping:
            return ()
        if party not in self._alive:
            return self._answer_left_out(party, envelope)
        try:
            self._from_party(party, envelope)
        except (PeerFault, TimeoutFault) as fault:
            self._drop(party, fault)
        return self._guard(self._advance)

    def _on_lost(self, peers: Sequence[str]) -> Sequence[Envelope]:
        """Exclude lost parties that have not sent shares; stop the run if a needed server is lost."""
        if self._over:
            return ()
        rest = frozenset(self._others) - self._outputs.keys() - self._reports.keys()
        gone = [name for name in peers if name in rest]
        if gone:
            self._gone.update(gone)
            lost = TimeoutFault(gone, self.step, f"{NOT_CONNECTED}; {NO_SURVIVAL}", code=Code.LOST)
            return self._guard(lambda: self._stop(lost))
        for name in peers:
            party = self._number.get(name)
            if party is None:
                continue
            if self.expects(name):
                self._drop(party, self._lost(name))
            # One that has shared counts; its next process has no part in this run.
            self._alive.discard(party)
            self._answered.discard(party)
        return self._guard(self._advance)

    def _lost(self, name: str) -> TimeoutFault:
        """Return the TimeoutFault for a party whose connection was lost."""
        return TimeoutFault({name}, self.step, NOT_CONNECTED, code=Code.LOST)

    def _answer_left_out(self, party: int, envelope: Envelope) -> Sequence[Envelope]:
        """Return the message, once, that a left-out party that says hello again is out; else no message."""
        if envelope.step != m.HELLO or party in self._answered:
            return ()
        try:
            self._context.check(envelope)
        except PeerFault:
            return ()
        self._answered.add(party)
        error = self._failures.get(party, self._lost(envelope.sender))
        return self._write(ABORT, (envelope.sender,), abort_of(error))

    def _on_deadline(self) -> Sequence[Envelope]:
        """Exclude parties that are late and go on; stop the run if a server is late."""
        if self._over:
            return ()
        step, missing = self.step, self.waiting_for
        if step == m.STOPPING:
            self._gone |= missing
            return self._guard(self._advance)
        if step not in (m.HELLO, m.SHARES):
            return self._guard(lambda: self._stop(TimeoutFault(missing, step, NO_SURVIVAL)))
        for name in sorted(missing):
            late = TimeoutFault({name}, step, "deadline passed", code=Code.LATE)
            self._drop(self._number[name], late)
        return self._guard(self._advance)

    def _on_report(self, result: Sequence[int] | TimeoutFault | None) -> Sequence[Envelope]:
        """Take what the computation opened, or why it has not; return messages to members.

        `result`: the values; TimeoutFault: what has not come; None: all others were heard, see `looks_back`.
        """
        if isinstance(result, TimeoutFault):
            return self._guard(lambda: self._stop(result))
        if self._stopping or result is None:
            return self._guard(lambda: self._stop(None))
        return self._guard(lambda: self._computed(result))

    def _on_cancelled(self, error: SmpcError) -> Sequence[Envelope]:
        """Return messages that tell all members that the run has stopped, and why."""
        self._end()
        if self._reported_own:
            return self._take_untold()
        # The others must not take for an observation of this server what it was told.
        abort = Abort(Code.STOPPED) if self._hearsay else abort_of(error)
        return self._report(self._reports.get(self.name, abort))

    def _report(self, abort: Abort) -> list[Envelope]:
        """Return the messages that tell all members why this server stops."""
        self._reported_own = True
        names = [*self._others, *(self._name_of(party) for party in sorted(self._alive))]
        return [*self._take_untold(), *self._write(ABORT, names, abort)]

    def _stop(self, own: TimeoutFault | None) -> list[Envelope]:
        """Report to members, once, why this server stops; then wait for the other servers' reports.

        `own`: what this server misses; None: nothing, another server has stopped.
        """
        if self.name not in self._reports:
            self._reports[self.name] = Abort(Code.STOPPED) if own is None else abort_of(own)
        self._stopping = True
        return (
            self._advance()
            if self._reported_own or not self.waiting_for
            else self._report(self._reports[self.name])
        )

    def _end(self) -> None:
        """Mark the run as ended, and delete all shares from it."""
        self._over = True
        self._shares = {}

    def _guard(self, act: Callable[[], list[Envelope]]) -> list[Envelope]:
        """Call a step and return its messages; if it raises an SmpcError, end the run first."""
        try:
            return act()
        except SmpcError:
            self._end()
            raise

    def _take_untold(self) -> list[Envelope]:
        """Return messages to excluded parties that were not sent yet, and forget them."""
        untold, self._untold = self._untold, []
        return untold

    def _drop(self, party: int, error: SmpcError) -> None:
        """Exclude a party from the run; the message that tells the party goes with the next ones."""
        name = self._name_of(party)
        self._alive.discard(party)
        if self.step == m.HELLO:
            self._hellos.pop(party, None)
        if self.step == m.SHARES:
            self._shares.pop(party, None)
        self._failures[party] = error
        self._untold += self._write(ABORT, (name,), abort_of(error))

    # Messages

    def _from_party(self, party: int, envelope: Envelope) -> None:
        """Check and store a party's hello or shares; raise a fault if invalid, or if the party leaves."""
        sender = envelope.sender
        if not self._is_new(envelope):
            return
        if envelope.step == LEAVE:
            abort = decode(envelope.body, Abort, sender)
            raise leave_of(abort, sender, self.step, self._everybody)
        if envelope.step != self.step or envelope.step not in (m.HELLO, m.SHARES):
            raise PeerFault(
                sender, f"sent '{envelope.step}' where '{self.step}' is due", Check.UNEXPECTED_STEP
            )
        self._check_run(envelope, early=envelope.step == m.HELLO)
        if envelope.step == m.HELLO:
            hello = decode(envelope.body, m.Hello, sender)
            context = self._context
            if (hello.session_digest, hello.request) != (context.session_digest, context.request):
                raise PeerFault(sender, "its hello is for another session or request", Check.OTHER_REQUEST)
            # An operation may be long, and many parties send the same: it is stored once.
            operation = self._operations.setdefault(hello.operation, hello.operation)
            hello = msgspec.structs.replace(hello, operation=operation)
            self._hellos[party] = hashlib.sha256(envelope.body).digest(), hello
        elif self._terms is not None:
            packed = decode(envelope.body, m.Shares, sender).values
            self._shares[party] = unpack(packed, self._terms.length, self._terms.prime, sender)

    def _from_server(self, envelope: Envelope) -> list[Envelope]:
        """Check another server's message, and return what this server sends next."""
        sender = envelope.sender
        if not self._is_new(envelope):
            return []
        if envelope.step == ABORT:
            return self._stopped_by(envelope)
        if self._stopping:
            return []
        if envelope.step == m.PRESENT:
            self._check_run(envelope, early=True)
            self._present[sender] = decode(envelope.body, m.Present, sender)
        elif envelope.step in (m.HELD, m.SEAL, m.OUTPUT) and self._run_id:
            self._check_common_run(envelope)
            self._keep(envelope)
        elif envelope.step in (m.HELD, m.SEAL, m.OUTPUT):
            # It has agreed with the others on the participants, and this server still waits for a list.
            self._early.append(envelope)
        else:
            raise PeerFault(sender, f"sent '{envelope.step}', which no server is sent", Check.WRONG_SENDER)
        return self._advance()

    def _check_common_run(self, envelope: Envelope) -> None:
        """Raise PeerFault, or VerificationError that blames nobody, if a message is of another run.

        A server that tells two others different parties lets these begin different runs.
        """
        if envelope.step != m.HELD or envelope.run_id == self._context.session_digest:
            self._check_run(envelope, early=False)
        elif envelope.run_id != self._run_id:
            common({self.name: self._run_id, envelope.sender: envelope.run_id}, "begins with other parties")

    def _stopped_by(self, envelope: Envelope) -> list[Envelope]:
        """Stop since another server has: raise its error if it tells the fault, else report and wait."""
        step, missing = self.step, self.waiting_for.intersection(self._others) - {envelope.sender}
        try:
            self._take_report(envelope)
        except SmpcError as error:
            self._hearsay = check_of(error, Check.REPORTED) == Check.REPORTED
            raise
        if self._stopping:
            return self._advance()
        if step == m.COMPUTE:
            self._stopping = True
            return []
        return self._stop(TimeoutFault(missing, step) if missing else None)

    def _keep(self, envelope: Envelope) -> None:
        """Store another server's message until the messages of all servers are there."""
        sender = envelope.sender
        match envelope.step:
            case m.HELD:
                self._held[sender] = decode(envelope.body, m.Held, sender)
            case m.SEAL:
                self._seals[sender] = decode(envelope.body, m.Seal, sender)
            case _:
                self._outputs[sender] = decode(envelope.body, m.Output, sender)

    def _advance(self) -> list[Envelope]:
        """Finish each step that has all its messages; return what to send; raise if a stop is complete."""
        sent: list[Envelope] = []
        if self._stopping:
            if not (self.waiting_for or self.looks_back):
                raise self._unexplained(m.COMPUTE, self._outputs.keys())
            return self._take_untold()
        while not self._over and self.step != m.COMPUTE and not self.waiting_for:
            sent += self._finish[self.step]()
            self._position += 1
            if self._position == len(m.SERVER_STEPS):
                self._end()
        return [*self._take_untold(), *sent]

    # Steps

    def _notify_present(self) -> list[Envelope]:
        """Return the messages that tell other servers whose hellos this server has."""
        parties = sorted(self._hellos)
        hellos = b"".join(self._hellos[party][0] for party in parties)
        self._present[self.name] = m.Present(pack_set(parties, self._parties), hellos)
        return self._write(m.PRESENT, self._others, self._present[self.name])

    def _agree(self) -> list[Envelope]:
        """Begin the run with parties of equal hellos that ask for the same; return the start messages."""
        claimed = {name: self._digests(name, self._present[name]) for name in self._servers}
        present = set(self._hellos)
        for party in sorted(present):
            missed = [name for name in self._servers if claimed[name].get(party) != claimed[self.name][party]]
            if missed:
                reason = f"{', '.join(missed)} had no hello of it, or another one"
                self._drop_early(party, reason, Check.PARTIAL, Code.PARTIAL, missed[0])
        for name, digests in claimed.items():
            for party in sorted(set(digests) - present):
                reason = f"{name} had its hello, and not every server"
                fault = PeerFault(
                    self._name_of(party), reason, Check.PARTIAL, accuser=name, code=Code.PARTIAL
                )
                self._failures.setdefault(party, fault)
        # An operation, and whether it comes with a label: one party's choice must not fail that of the
        # others.
        requested = {
            party: (hello.operation, hello.public_label >= 0)
            for party, (_, hello) in sorted(self._hellos.items())
        }
        # The same at every server: of the most frequent operations that of the first party.
        operation, labelled = Counter(requested.values()).most_common(1)[0][0] if requested else ("", False)
        for party, (own, label) in requested.items():
            if own != operation:
                self._drop_early(
                    party, "asks for something else than most parties", Check.OTHER_OPERATION, Code.OPERATION
                )
            elif label != labelled:
                without = "a" if label else "no"
                self._drop_early(
                    party, f"gives {without} label, unlike most parties", Check.LABEL_DIFFERS, Code.OPERATION
                )
        parties = sorted(self._hellos)
        self._check_enough(len(parties))
        public_labels = [self._hellos[party][1].public_label for party in parties]
        hellos = hellos_digest([self._hellos[party][0] for party in parties])
        terms = self._make(operation, len(parties), tuple(public_labels) if labelled else (), hellos)
        self._start = m.Start(
            pack_set(parties, self._parties),
            hellos,
            bytes(public_label + 1 for public_label in public_labels),
            terms.digest,
        )
        self._terms, self._members = terms, tuple(parties)
        untold = self._take_untold()
        self._run_id = run_identifier(self._context, self._start)
        for envelope in self._early:
            self._check_common_run(envelope)
            self._keep(envelope)
        return [*untold, *self._write(m.START, [self._name_of(party) for party in parties], self._start)]

    def _drop_early(self, party: int, reason: str, check: Check, code: Code, accuser: str = "") -> None:
        """Exclude a party before the run begins, with the reason."""
        del self._hellos[party]
        self._drop(party, PeerFault(self._name_of(party), reason, check, accuser=accuser, code=code))

    def _digests(self, name: str, present: m.Present) -> dict[int, bytes]:
        """Return a server's reported hashes of hellos, by party; PeerFault if their number is wrong."""
        parties = PartySet.unpack(present.parties, self._parties, name)
        if len(present.hellos) != 32 * len(parties):
            raise PeerFault(
                name,
                f"sent {len(present.hellos)} bytes of digests for {len(parties)} parties",
                Check.WRONG_LENGTH,
            )
        return {party: present.hellos[32 * index : 32 * index + 32] for index, party in enumerate(parties)}

    def _notify_held(self) -> list[Envelope]:
        """Return the messages that tell other servers whose shares this server holds."""
        missing = [party for party in self._members if party not in self._shares]
        refused = [m.Refused(party, self._why(party)) for party in missing]
        held = m.Held(pack_set(self._shares, self._parties), refused)
        self._held[self.name] = held
        return self._write(m.HELD, self._others, held)

    def _why(self, party: int) -> Code:
        """Return the code that tells other servers why a party's shares are missing."""
        error = self._failures.get(party)
        return Code.MISSING if error is None else code_of(error, self._name_of(party))

    def _seal(self) -> list[Envelope]:
        """Find the parties whose shares all servers hold; return this server's signature on them."""
        included = set(self._members)
        faults: list[m.LeftOut] = []
        for index, name in enumerate(self._servers, 1):
            parties = set(PartySet.unpack(self._held[name].parties, self._parties, name))
            refused = {entry.party: entry.code for entry in self._held[name].refused}
            if parties | set(refused) != set(self._members) or parties & set(refused):
                raise PeerFault(name, "its list of shares is not of those who take part", Check.SET_DIFFERS)
            included &= parties
            faults += [m.LeftOut(party, index, refused[party]) for party in sorted(refused)]
        self._faults = tuple(faults)
        self._check_enough(len(included))
        self._included = pack_set(included, self._parties)
        for party in set(self._members) - included:
            if party in self._alive:
                reason = "its shares did not reach every server"
                partial = TimeoutFault({self._name_of(party)}, m.SHARES, reason)
                self._drop(party, partial)
        signature = self._identity.sign(shared_set_statement(self._run_id, self._included))
        self._seals[self.name] = m.Seal(self._included, signature)
        return self._write(m.SEAL, self._others, self._seals[self.name])

    def _unlock(self) -> list[Envelope]:
        """Check all servers' signatures on the set of parties; return no messages; then jobs may begin."""
        seals = {name: self._seals[name] for name in self._servers}
        for name, seal in seals.items():
            self._check_signature(
                name, name, shared_set_statement(self._run_id, seal.included), seal.signature
            )
        common({name: seal.included for name, seal in seals.items()}, "holds the shares of other parties")
        return []

    def _computed(self, values: Sequence[int]) -> list[Envelope]:
        """Store this server's output, the opened integers; return it, signed, for all members."""
        texts = [str(value) for value in values]
        signature = self._identity.sign(output_statement(self._run_id, self._included, texts, self._faults))
        seals = [self._seals[name].signature for name in self._servers]
        output = m.Output(texts, self._included, list(self._faults), seals, signature)
        self._outputs[self.name] = output
        self._position += 1
        names = [self._name_of(party) for party in sorted(self._alive.intersection(self._members))]
        return [*self._write(m.OUTPUT, [*names, *self._others], output), *self._advance()]

    def _compare(self) -> list[Envelope]:
        """Check that all servers' outputs agree; store the opened integers; return no messages."""
        if self._terms is not None and self._start is not None:
            outputs = {name: self._outputs[name] for name in self._servers}
            self._outcome = self._open(self._terms, self._start, outputs)
        return []

    def _check_enough(self, parties: int) -> None:
        """Raise TimeoutFault if the number of remaining parties is too small to go on."""
        if parties < self._fewest:
            why = {name: self._why(party) for name, party in self._number.items() if party in self._failures}
            reasons = "; ".join(str(error) for error in list(self._failures.values())[:5])
            detail = f"{parties} of {self._parties} parties are left, {self._fewest} are needed: {reasons}"
            raise TimeoutFault(why, self.step, detail, code=Code.FEW, why=why, number=self._fewest)
