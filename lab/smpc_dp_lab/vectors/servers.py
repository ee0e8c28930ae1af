"""Vectors of secret sharing: the agreement of parties and servers, and messages with one fault each.

mpyc's own messages are no part of them: here the shares are added up, and recombined, in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from smpc_dp.capabilities.servers.secret_sharing import messages as m
from smpc_dp.capabilities.servers.secret_sharing.agreement import output_statement, shared_set_statement
from smpc_dp.capabilities.servers.secret_sharing.params import MPYC
from smpc_dp.capabilities.servers.secret_sharing.party import PartyRun
from smpc_dp.capabilities.servers.secret_sharing.server import ServerRun
from smpc_dp.capabilities.servers.secret_sharing.sharing import field_bytes
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.plan import sum_program
from smpc_dp.engine.events import Cancellation, Deadline, Message, Report, Start
from smpc_dp.errors import Code, PeerFault, SmpcError
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import draw_signers, public_keys
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, decode
from smpc_dp_lab.vectors.fault import Fields, Kinds, RecordedRun, altered, envelope_json, flip
from smpc_dp_lab.vectors.runs import SCHEMA, header, identities_json

PARTIES = ("alice", "bob", "carol", "dave")
SERVERS = ("server1", "server2", "server3")
RECORDS = {"alice": (1, 9), "bob": (2, 0), "carol": (3, 5), "dave": (4, 4)}
BOUNDS = [(0, 9), (0, 9)]
FEWEST = 3

KINDS: Kinds = {
    m.HELLO: m.Hello,
    m.SHARES: m.Shares,
    m.PRESENT: m.Present,
    m.START: m.Start,
    m.HELD: m.Held,
    m.SEAL: m.Seal,
    m.OUTPUT: m.Output,
}

Change = Callable[[Envelope], Envelope | None]


def _source(purpose: str) -> SeededRandomnessForSimulation:
    """Return seeded randomness for one purpose."""
    return SeededRandomnessForSimulation(1, f"{MPYC} vectors {purpose}")


def _terms(_operation: str, parties: int, _public_labels: tuple[int, ...], _seed: bytes) -> ProgramTerms:
    return sum_program("sum", parties, BOUNDS, None).terms


class SeededParty(PartyRun):
    """A party whose polynomials of degree 1 come from its seeded randomness; `slopes` are the ones drawn."""

    slopes: tuple[int, ...] = ()

    def _split(self, terms: ProgramTerms) -> list[bytes]:
        width = field_bytes(terms.prime)
        slopes = [int.from_bytes(self._random.bytes(2 * width), "big") % terms.prime for _ in self._record]
        self.slopes = tuple(slopes)
        return [
            b"".join(
                ((value + slope * index) % terms.prime).to_bytes(width, "big")
                for value, slope in zip(self._record, slopes, strict=True)
            )
            for index in range(1, len(SERVERS) + 1)
        ]


class Setup:
    """All roles of one simulated run; `change` may alter a message, or drop it by returning None."""

    def __init__(self, change: Change = lambda envelope: envelope) -> None:
        self.change = change
        self.signers = draw_signers({name: _source(f"signing {name}") for name in (*PARTIES, *SERVERS)})
        self.context = Context(
            protocol=MPYC,
            version=1,
            session_digest=_source("session").bytes(32),
            request=1,
            names=PARTIES,
            aggregator=EVERYONE,
            keys=public_keys(self.signers),
            operation="sum",
        )
        self.parties = {
            name: SeededParty(
                self.context,
                SERVERS,
                self.signers[name],
                _terms,
                RECORDS[name],
                threshold=1,
                fewest=FEWEST,
                randomness=_source(f"run {name}"),
            )
            for name in PARTIES
        }
        self.servers = {
            name: ServerRun(self.context, SERVERS, self.signers[name], _terms, fewest=FEWEST)
            for name in SERVERS
        }
        self.machines: dict[str, PartyRun | ServerRun] = {**self.parties, **self.servers}
        self.errors: dict[str, SmpcError] = {}
        self.sent: list[Envelope] = []
        self._queue: list[Envelope] = []

    def execute(self) -> Setup:
        """Deliver all messages in order; deadlines pass where no message is under way."""
        for name, machine in self.machines.items():
            self._act(name, partial(machine.handle, Start()))
        while any(not machine.finished for machine in self.machines.values()):
            self._deliver()
            self._compute()
            if self._queue:
                continue
            waiting = [name for name, machine in self.machines.items() if not machine.finished]
            # Steps in which parties are awaited have the first deadlines, then servers, then parties.
            first = [name for name in waiting if self.machines[name].step in (m.HELLO, m.SHARES)]
            for name in first or [name for name in waiting if name in SERVERS] or waiting:
                self._act(name, partial(self.machines[name].handle, Deadline()))
        self._deliver()
        return self

    def _act(self, name: str, act: Callable[[], Sequence[Envelope]]) -> None:
        try:
            sent = act()
        except SmpcError as error:
            self.errors[name] = error
            sent = self.machines[name].handle(Cancellation(error))
        self._queue += sent
        self.sent += sent

    def _deliver(self) -> None:
        while self._queue:
            changed = self.change(self._queue.pop(0))
            if changed is not None and not self.machines[changed.receiver].finished:
                self._act(changed.receiver, partial(self.machines[changed.receiver].handle, Message(changed)))

    def _compute(self) -> None:
        jobs = [job for name in SERVERS if (job := self.servers[name].job) is not None]
        if len(jobs) < len(SERVERS):
            return
        prime = jobs[0].terms.prime
        first, second = ([sum(column) for column in zip(*job.shares, strict=True)] for job in jobs[:2])
        values = [(2 * one - two) % prime for one, two in zip(first, second, strict=True)]
        for name in SERVERS:
            self._act(name, partial(self.servers[name].handle, Report(values)))


@dataclass(frozen=True, slots=True)
class Fault:
    """Test vector of a fault: `message` replaces that of its sender, receiver and step in a run.

    With `left_out` the receiver, a server, leaves that party out; else it ends with PeerFault that names
    `culprit`.
    """

    name: str
    about: str
    message: Envelope
    culprit: str = ""
    left_out: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the test vector as JSON data: changed message, expected culprit, and those left out."""
        return {
            **header("negative", self.name, self.about),
            "base": "run-all.json",
            "message": envelope_json(self.message),
            "expect": {"error": "PeerFault", "culprit": self.culprit, "left_out": self.left_out},
        }


def replay(message: Envelope) -> Setup:
    """Return the run in which `message` replaces that of its sender, receiver and step."""
    expected = (message.sender, message.receiver, message.step)

    def change(envelope: Envelope) -> Envelope:
        return message if (envelope.sender, envelope.receiver, envelope.step) == expected else envelope

    return Setup(change).execute()


# What is lost on its way, by step, sender and receiver.
SCENARIOS: dict[str, tuple[str, str, str] | None] = {
    "all": None,
    "shares-with-two": (m.SHARES, "dave", SERVERS[-1]),
}


def run_json(name: str) -> dict[str, object]:
    """Return the test vector of one run: inputs, draws, all messages, lost members and signed data."""
    lost = SCENARIOS[name]

    def change(envelope: Envelope) -> Envelope | None:
        return None if (envelope.step, envelope.sender, envelope.receiver) == lost else envelope

    setup = Setup(change).execute()
    nonces = {
        envelope.sender: decode(envelope.body, m.Hello, envelope.sender).nonce
        for envelope in setup.sent
        if envelope.step == m.HELLO
    }
    opened = setup.servers[SERVERS[0]].result
    included = pack_set((PARTIES.index(party) + 1 for party in opened.included), len(PARTIES))
    values = [str(value) for value in opened.values]
    reported = next(e for e in setup.sent if (e.step, e.sender) == (m.OUTPUT, SERVERS[0]))
    output = decode(reported.body, m.Output, SERVERS[0])
    return {
        "schema": SCHEMA,
        "kind": "run",
        "name": name,
        "session": {
            "session_digest": setup.context.session_digest.hex(),
            "request": setup.context.request,
            "question": setup.context.operation,
            "users": list(PARTIES),
            "servers": list(SERVERS),
            "fewest": FEWEST,
        },
        "members": identities_json(setup.context, setup.signers),
        "records": {who: list(record) for who, record in RECORDS.items()},
        "draws": {
            who: {"nonce": nonces[who].hex(), "slopes": [f"{slope:x}" for slope in party.slopes]}
            for who, party in setup.parties.items()
        },
        "lost": [] if lost is None else [list(lost)],
        "terms": _terms("sum", len(opened.present), (), b"").canonical().decode("ascii"),
        "messages": [envelope_json(envelope) for envelope in setup.sent],
        "run_id": opened.run_id.hex(),
        "set_statement": shared_set_statement(opened.run_id, included).hex(),
        "output_statement": output_statement(opened.run_id, included, values, output.faults).hex(),
        "result": {
            "opened": values,
            "included": list(opened.included),
            "faults": [[fault.party, fault.server, str(fault.code)] for fault in output.faults],
        },
    }


def all_faults() -> Iterator[Fault]:
    """Yield all negative test vectors: one message, changed in one part."""
    setup = Setup().execute()
    ran = RecordedRun("all", setup, KINDS)

    def expected(step: str, sender: str) -> Envelope:
        return ran.find(step, sender, "alice" if step in (m.START, m.OUTPUT) else SERVERS[0])[1]

    def left_out(name: str, about: str, step: str, fields: Fields) -> Fault:
        return Fault(name, about, ran.with_message(expected(step, "bob"), fields), left_out="bob")

    def named(name: str, about: str, step: str, fields: Fields, sender: str = "server2") -> Fault:
        return Fault(name, about, ran.with_message(expected(step, sender), fields), sender)

    flipped, other = {"signature": flip}, setup.context.session_digest
    fewer = pack_set((1, 2, 3), len(PARTIES))
    prime = _terms("sum", len(PARTIES), (), b"").prime
    width = field_bytes(prime)
    too_large: Fields = {"values": lambda values: prime.to_bytes(width, "big") + values[width:]}
    shorter: Fields = {"values": lambda values: values[16:]}
    yield left_out("hello-of-another-request", "its request is 2", m.HELLO, {"request": 2})
    yield left_out("shares-too-short", "one element is missing", m.SHARES, shorter)
    yield left_out("shares-outside-the-field", "an element is the prime", m.SHARES, too_large)
    about = "signed under the session's digest"
    shares = ran.sign(expected(m.SHARES, "bob"), run_id=other)
    yield Fault("shares-of-another-run", about, shares, left_out="bob")
    output = ran.sign(expected(m.OUTPUT, "server2"), run_id=other)
    yield Fault("output-of-another-run", about, output, "server2")
    about = "its signature is flipped"
    yield Fault("hello-by-another-key", about, altered(expected(m.HELLO, "bob"), flipped), left_out="bob")
    yield Fault("start-by-another-key", about, altered(expected(m.START, "server2"), flipped), "server2")
    less: Fields = {"hellos": lambda digests: digests[32:]}
    yield named("present-without-a-digest", "one digest is missing", m.PRESENT, less)
    about = "the digest of the terms is another"
    yield named("start-with-other-terms", about, m.START, {"terms": flip})
    yield named("start-with-other-users", "dave is not there", m.START, {"present": fewer})
    yield named("held-without-a-reason", "dave is neither held nor refused", m.HELD, {"parties": fewer})
    both = {"refused": [m.Refused(1, Code.MISSING)]}
    yield named("held-and-refused", "alice is both", m.HELD, both)
    yield named("seal-of-another-set", "dave is not in it", m.SEAL, {"included": fewer})
    yield named("seal-with-a-bad-signature", "flipped", m.SEAL, flipped)
    more: Fields = {"values": lambda values: ["11", *values[1:]]}
    yield named("output-of-another-value", "the first is one more", m.OUTPUT, more)
    yield named("output-over-other-users", "dave is not in it", m.OUTPUT, {"included": fewer})
    late = {"faults": [m.LeftOut(4, 1, Code.LATE)]}
    yield named("output-with-a-fault-of-its-own", "it names dave", m.OUTPUT, late)
    yield named("output-with-a-bad-signature", "flipped", m.OUTPUT, flipped)
    fewer_seals: Fields = {"seals": lambda seals: seals[1:]}
    yield named("output-without-a-seal", "one is missing", m.OUTPUT, fewer_seals, "server1")
    bad_seal: Fields = {"seals": lambda seals: [seals[0], flip(seals[1]), seals[2]]}
    bad = ran.with_message(expected(m.OUTPUT, "server1"), bad_seal)
    yield Fault("output-with-a-bad-seal", "server2's is flipped", bad, "server1")


def end_of(message: Envelope) -> tuple[str, tuple[str, ...], SmpcError | None]:
    """Return (whom the receiver blames, parties that the servers leave out, the receiver's error or None).

    That is the error of the receiver at its own place.
    """
    setup = replay(message)
    error = setup.errors.get(message.receiver)
    if error is None and (server := setup.servers.get(message.receiver)) is not None:
        error = next(iter(server._failures.values()), None)
    culprit = error.culprit if isinstance(error, PeerFault) and message.receiver in setup.errors else ""
    failed = setup.errors.keys() & set(SERVERS)
    included = PARTIES if failed else setup.servers[SERVERS[0]].result.included
    return culprit, tuple(name for name in PARTIES if name not in included), error


def all_to_json() -> dict[str, dict[str, object]]:
    """Return all test vectors of secret sharing, by name."""
    files = {f"run-{name}": run_json(name) for name in SCENARIOS}
    return files | {f"negative-{fault.name}": fault.to_json() for fault in all_faults()}
