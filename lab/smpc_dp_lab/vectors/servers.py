"""Vectors of computations on shares: what users and servers agree on, and messages with one fault each.

mpyc's own messages are none of ours: here the shares are added up, and recombined, in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from nacl.signing import SigningKey

from smpc_dp.errors import Code, PeerFault, SmpcError
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.engine.events import Cancellation, Deadline, Message, Start
from smpc_dp.protocols.envelope import Context, decode
from smpc_dp.protocols.gopa.direct_messages import EVERYONE
from smpc_dp.protocols.mpyc import messages as m
from smpc_dp.protocols.mpyc.agreement import output_statement, set_statement
from smpc_dp.protocols.mpyc.server import ServerMachine
from smpc_dp.protocols.mpyc.sharing import field_bytes
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.protocols.mpyc.user import UserMachine
from smpc_dp.protocols.names import MPYC, VERSION
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation
from smpc_dp.simulate.stage import Signer
from smpc_dp.statistics.shared.plan import sum_program
from smpc_dp_lab.vectors.fault import envelope_json

SCHEMA = 1
USERS = ("alice", "bob", "carol", "dave")
SERVERS = ("server1", "server2", "server3")
RECORDS = {"alice": (1, 9), "bob": (2, 0), "carol": (3, 5), "dave": (4, 4)}
BOUNDS = [(0, 9), (0, 9)]
FEWEST = 3

Change = Callable[[Envelope], Envelope | None]


def _source(purpose: str) -> SeededRandomnessForSimulation:
    return SeededRandomnessForSimulation(1, f"{MPYC} vectors {purpose}")


def _terms(_question: str, users: int, _marks: tuple[int, ...], _seed: bytes) -> ProgramTerms:
    return sum_program("sum", users, BOUNDS, None).terms


class SeededUser(UserMachine):
    """A user whose polynomials of degree 1 come from its seeded randomness: `slopes` are what it drew."""

    slopes: tuple[int, ...] = ()

    def _split(self, terms: ProgramTerms) -> list[bytes]:
        width = field_bytes(terms.prime)
        slopes = [int.from_bytes(self._random.bytes(2 * width), "big") % terms.prime for _ in self._record]
        self.slopes = tuple(slopes)
        return [
            b"".join(
                ((value + slope * place) % terms.prime).to_bytes(width, "big")
                for value, slope in zip(self._record, slopes, strict=True)
            )
            for place in range(1, len(SERVERS) + 1)
        ]


class Stage:
    """All machines of one run; `change` may alter or drop (None) what travels."""

    def __init__(self, change: Change = lambda envelope: envelope) -> None:
        self.change = change
        self.signers = {
            name: Signer(name, SigningKey(_source(f"signing {name}").bytes(32)))
            for name in (*USERS, *SERVERS)
        }
        self.context = Context(
            protocol=MPYC,
            version=VERSION,
            session_digest=_source("session").bytes(32),
            request=1,
            names=USERS,
            aggregator=EVERYONE,
            keys={name: bytes(signer.key.verify_key) for name, signer in self.signers.items()},
            question="sum",
        )
        self.users = {
            name: SeededUser(
                self.context,
                SERVERS,
                self.signers[name],
                _terms,
                RECORDS[name],
                threshold=1,
                fewest=FEWEST,
                randomness=_source(f"run {name}"),
            )
            for name in USERS
        }
        self.servers = {
            name: ServerMachine(self.context, SERVERS, self.signers[name], _terms, fewest=FEWEST)
            for name in SERVERS
        }
        self.machines: dict[str, UserMachine | ServerMachine] = {**self.users, **self.servers}
        self.errors: dict[str, SmpcError] = {}
        self.sent: list[Envelope] = []
        self._queue: list[Envelope] = []

    def play(self) -> Stage:
        """Deliver everything in order; deadlines pass where nothing moves."""
        for name, machine in self.machines.items():
            self._act(name, partial(machine.handle, Start()))
        while any(not machine.finished for machine in self.machines.values()):
            self._deliver()
            self._compute()
            if self._queue:
                continue
            waiting = [name for name, machine in self.machines.items() if not machine.finished]
            # Steps in which users are awaited have the first deadlines, then servers, then users.
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
            self._act(name, partial(self.servers[name].computed, values))


@dataclass(frozen=True, slots=True)
class Fault:
    """`message` in the place of that of its sender, receiver and step.

    With `left_out` the receiver, a server, leaves that user out; else it ends with PeerFault that names
    `culprit`.
    """

    name: str
    about: str
    message: Envelope
    culprit: str = ""
    left_out: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the vector."""
        return {
            "schema": SCHEMA,
            "kind": "negative",
            "name": self.name,
            "about": self.about,
            "base": "run-all.json",
            "message": envelope_json(self.message),
            "expect": {"error": "PeerFault", "culprit": self.culprit, "left_out": self.left_out},
        }


def replay(message: Envelope) -> Stage:
    """Return the run in which `message` comes in the place of that of its sender, receiver and step."""
    due = (message.sender, message.receiver, message.step)

    def change(envelope: Envelope) -> Envelope:
        return message if (envelope.sender, envelope.receiver, envelope.step) == due else envelope

    return Stage(change).play()


# What is lost on its way, by step, sender and receiver.
SCENARIOS: dict[str, tuple[str, str, str] | None] = {
    "all": None,
    "shares-with-two": (m.SHARES, "dave", SERVERS[-1]),
}


def run_json(name: str) -> dict[str, object]:
    """Return the vector of one run: inputs and draws, every message, what got lost, and what is signed."""
    lost = SCENARIOS[name]

    def change(envelope: Envelope) -> Envelope | None:
        return None if (envelope.step, envelope.sender, envelope.receiver) == lost else envelope

    stage = Stage(change).play()
    nonces = {
        envelope.sender: decode(envelope.body, m.Hello, envelope.sender).nonce
        for envelope in stage.sent
        if envelope.step == m.HELLO
    }
    opened = stage.servers[SERVERS[0]].result
    included = pack_set((USERS.index(user) + 1 for user in opened.included), len(USERS))
    values = [str(value) for value in opened.values]
    told = next(e for e in stage.sent if (e.step, e.sender) == (m.OUTPUT, SERVERS[0]))
    output = decode(told.body, m.Output, SERVERS[0])
    return {
        "schema": SCHEMA,
        "kind": "run",
        "name": name,
        "session": {
            "session_digest": stage.context.session_digest.hex(),
            "request": stage.context.request,
            "question": stage.context.question,
            "users": list(USERS),
            "servers": list(SERVERS),
            "fewest": FEWEST,
        },
        "members": {
            who: {"signing_seed": bytes(signer.key).hex(), "public_key": stage.context.keys[who].hex()}
            for who, signer in stage.signers.items()
        },
        "records": {who: list(record) for who, record in RECORDS.items()},
        "draws": {
            who: {"nonce": nonces[who].hex(), "slopes": [f"{slope:x}" for slope in user.slopes]}
            for who, user in stage.users.items()
        },
        "lost": [] if lost is None else [list(lost)],
        "terms": _terms("sum", len(opened.present), (), b"").canonical().decode("ascii"),
        "messages": [envelope_json(envelope) for envelope in stage.sent],
        "run_id": opened.run_id.hex(),
        "set_statement": set_statement(opened.run_id, included).hex(),
        "output_statement": output_statement(opened.run_id, included, values, output.faults).hex(),
        "result": {
            "opened": values,
            "included": list(opened.included),
            "faults": [[fault.user, fault.server, str(fault.code)] for fault in output.faults],
        },
    }


def all_faults() -> list[Fault]:
    """Return every negative vector: one message, changed in one place."""
    stage = Stage().play()

    def find(step: str, sender: str, receiver: str) -> Envelope:
        due = (step, sender, receiver)
        return next(e for e in stage.sent if (e.step, e.sender, e.receiver) == due)

    def sign(envelope: Envelope, body: msgspec.Struct, run_id: bytes | None = None) -> Envelope:
        signer = stage.signers[envelope.sender]
        due = envelope.run_id if run_id is None else run_id
        return stage.context.write(signer, due, envelope.step, (envelope.receiver,), body)[0]

    def flipped(content: bytes) -> bytes:
        return bytes((content[0] ^ 1, *content[1:]))

    hello, shares = find(m.HELLO, "bob", "server1"), find(m.SHARES, "bob", "server1")
    present, held = find(m.PRESENT, "server2", "server1"), find(m.HELD, "server2", "server1")
    start, seal = find(m.START, "server2", "alice"), find(m.SEAL, "server2", "server1")
    output, first = find(m.OUTPUT, "server2", "alice"), find(m.OUTPUT, "server1", "alice")
    replace = msgspec.structs.replace
    said, given = decode(hello.body, m.Hello, "bob"), decode(shares.body, m.Shares, "bob")
    there, kept = decode(present.body, m.Present, "server2"), decode(held.body, m.Held, "server2")
    begun, sealed = decode(start.body, m.Start, "server2"), decode(seal.body, m.Seal, "server2")
    told, shown = decode(output.body, m.Output, "server2"), decode(first.body, m.Output, "server1")
    fewer = pack_set((1, 2, 3), len(USERS))
    other = stage.context.session_digest
    prime = _terms("sum", len(USERS), (), b"").prime
    too_large = prime.to_bytes(field_bytes(prime), "big") + given.values[field_bytes(prime) :]
    named = partial(Fault, culprit="server2")
    users = partial(Fault, left_out="bob")
    return [
        users("hello-of-another-request", "its request is 2", sign(hello, replace(said, request=2))),
        users(
            "hello-by-another-key",
            "its signature is flipped",
            replace(hello, signature=flipped(hello.signature)),
        ),
        users("shares-too-short", "one element is missing", sign(shares, m.Shares(given.values[16:]))),
        users("shares-outside-the-field", "an element is the prime", sign(shares, m.Shares(too_large))),
        users("shares-of-another-run", "signed under the session's digest", sign(shares, given, other)),
        named(
            "present-without-a-digest",
            "one digest is missing",
            sign(present, replace(there, hellos=there.hellos[32:])),
        ),
        named(
            "start-with-other-terms",
            "the digest of the terms is another",
            sign(start, replace(begun, terms=flipped(begun.terms))),
        ),
        named("start-with-other-users", "dave is not there", sign(start, replace(begun, present=fewer))),
        named(
            "start-by-another-key",
            "its signature is flipped",
            replace(start, signature=flipped(start.signature)),
        ),
        named(
            "held-without-a-reason",
            "dave is neither held nor refused",
            sign(held, replace(kept, users=fewer)),
        ),
        named(
            "held-and-refused",
            "alice is both",
            sign(held, replace(kept, refused=[m.Refused(1, Code.MISSING)])),
        ),
        named("seal-of-another-set", "dave is not in it", sign(seal, replace(sealed, included=fewer))),
        named(
            "seal-with-a-bad-signature",
            "flipped",
            sign(seal, replace(sealed, signature=flipped(sealed.signature))),
        ),
        named(
            "output-of-another-value",
            "the first is one more",
            sign(output, replace(told, values=["11", *told.values[1:]])),
        ),
        named("output-over-other-users", "dave is not in it", sign(output, replace(told, included=fewer))),
        named(
            "output-with-a-fault-of-its-own",
            "it names dave",
            sign(output, replace(told, faults=[m.LeftOut(4, 1, Code.LATE)])),
        ),
        named(
            "output-with-a-bad-signature",
            "flipped",
            sign(output, replace(told, signature=flipped(told.signature))),
        ),
        named("output-of-another-run", "signed under the session's digest", sign(output, told, other)),
        Fault(
            "output-without-a-seal",
            "one is missing",
            sign(first, replace(shown, seals=shown.seals[1:])),
            "server1",
        ),
        named(
            "output-with-a-bad-seal",
            "server2's is flipped",
            sign(first, replace(shown, seals=[shown.seals[0], flipped(shown.seals[1]), shown.seals[2]])),
        ),
    ]


def end_of(message: Envelope) -> tuple[str, tuple[str, ...], str]:
    """Return whom the receiver names when it gets `message`, whom the servers leave out in the end, and why.

    The reason is what the receiver says at its own place.
    """
    stage = replay(message)
    error = stage.errors.get(message.receiver)
    if error is None and (server := stage.servers.get(message.receiver)) is not None:
        error = next(iter(server._failures.values()), None)
    culprit = error.culprit if isinstance(error, PeerFault) and message.receiver in stage.errors else ""
    failed = stage.errors.keys() & set(SERVERS)
    included = USERS if failed else stage.servers[SERVERS[0]].result.included
    return culprit, tuple(name for name in USERS if name not in included), str(error)


def all_to_json() -> dict[str, dict[str, object]]:
    """Return every vector by its name."""
    files = {f"run-{name}": run_json(name) for name in SCENARIOS}
    return files | {f"negative-{fault.name}": fault.to_json() for fault in all_faults()}
