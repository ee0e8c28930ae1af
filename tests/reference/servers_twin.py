"""Computations on shares from their specification alone: slow, plain integers, nothing of the library.

`execute` computes every message of a published run, and what is opened, from its inputs. `at_fault` tells, of
a run and one message in the place of another, whom its receiver must name or leave out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify.encodings import party_set, tuple_hash, uint
from tests.reference.secagg_twin import Fields, pack, sign

Key = tuple[str, str, str]
BOUND = (b"mpyc", uint(1))
# Signed before there is a run: under the session's digest.
EARLY = ("shared-hello", "present")
# The code of a party whose shares do not come in time.
LATE = "late"


class Message(NamedTuple):
    """What is published of one envelope."""

    run_id: str
    body: str
    signature: str


class Run:
    """What a vector gives, and what follows from it: identifiers and statements.

    `held` has for each server the parties whose shares reached it, by number; `included` those of all
    servers.
    """

    def __init__(self, vector: dict[str, Any]) -> None:
        session = vector["session"]
        self.parties, self.servers = session["users"], session["servers"]
        self.request, self.operation = session["request"], session["question"]
        self.session_digest = bytes.fromhex(session["session_digest"])
        self.seeds = {who: bytes.fromhex(keys["signing_seed"]) for who, keys in vector["members"].items()}
        self.keys = {who: bytes.fromhex(keys["public_key"]) for who, keys in vector["members"].items()}
        self.draws, self.records = vector["draws"], vector["records"]
        self.terms = vector["terms"].encode()
        stated = json.loads(self.terms)
        self.length, self.prime = stated["length"], int(stated["modulus"], 16)
        self.width = (self.prime.bit_length() + 7) // 8
        lost = [tuple(key) for key in vector["lost"]]
        numbers = range(1, len(self.parties) + 1)
        self.held = {
            server: [n for n in numbers if ("shares", self.parties[n - 1], server) not in lost]
            for server in self.servers
        }
        self.included = [n for n in numbers if all(n in held for held in self.held.values())]
        self.set = party_set(self.included, len(self.parties))
        self.present = party_set(numbers, len(self.parties))
        self.hellos = {who: self._hello(who) for who in self.parties}
        self.start: Fields = (
            self.present,
            tuple_hash("shared-hellos", *(self._hash(who) for who in self.parties)),
            bytes(len(self.parties)),
            tuple_hash("program-terms", self.terms),
        )
        self.run_id = self.run_of(self.start)
        self.set_statement = tuple_hash("shared-set", self.run_id, self.set)
        self.seals = [sign(self.seeds[server], self.set_statement) for server in self.servers]

    def _hello(self, who: str) -> bytes:
        nonce = bytes.fromhex(self.draws[who]["nonce"])
        return pack((self.session_digest, self.request, self.operation, -1, nonce))

    def _hash(self, who: str) -> bytes:
        return hashlib.sha256(self.hellos[who]).digest()

    def run_of(self, start: Fields) -> bytes:
        """The run that a start begins."""
        parts = [part for part in start if isinstance(part, bytes)]
        return tuple_hash("shared-run-id", *BOUND, self.session_digest, uint(self.request), *parts)

    def output_statement(self, included: bytes, values: list[str], faults: list[list[int | str]]) -> bytes:
        """What servers sign of what they opened."""
        texts = [text.encode() for text in values]
        for fault in faults:
            texts += [uint(part) if isinstance(part, int) else part.encode() for part in fault]
        return tuple_hash("shared-output", self.run_id, included, uint(len(values)), *texts)

    def shares(self, who: str, index: int) -> list[int]:
        """The values of a party's lines at x = `index`."""
        slopes = [int(slope, 16) for slope in self.draws[who]["slopes"]]
        return [(a + b * index) % self.prime for a, b in zip(self.records[who], slopes, strict=True)]

    def faults(self) -> list[list[int | str]]:
        """Who was left out by whom: by server, then by party."""
        return [
            [n, index, LATE]
            for index, server in enumerate(self.servers, 1)
            for n in range(1, len(self.parties) + 1)
            if n not in self.held[server]
        ]

    def opened(self) -> list[str]:
        """The sums of shares, on a line through those of any two servers, at x = 0."""
        sums = [
            [
                sum(column)
                for column in zip(*(self.shares(self.parties[n - 1], x) for n in self.included), strict=True)
            ]
            for x in range(1, len(self.servers) + 1)
        ]
        result = set()
        for x, one in enumerate(sums, 1):
            for y, other in enumerate(sums, 1):
                if x != y:
                    inverse = pow(y - x, -1, self.prime)
                    pairs = zip(one, other, strict=True)
                    result.add(tuple((y * a - x * b) * inverse % self.prime for a, b in pairs))
        [values] = result
        return [str(value) for value in values]

    def statement(self, run_id: bytes, key: Key, body: bytes) -> bytes:
        """What the sender of an envelope signs."""
        texts = [text.encode() for text in key]
        return tuple_hash("envelope", *BOUND, run_id, *texts, hashlib.sha256(body).digest())


def execute(run: Run) -> dict[Key, Message]:
    """Every message of a run but those of who leaves or is left out."""
    reported: dict[Key, Message] = {}

    def say(step: str, sender: str, receivers: list[str], body: bytes) -> None:
        bound = run.session_digest if step in EARLY else run.run_id
        for receiver in receivers:
            key = (step, sender, receiver)
            signature = sign(run.seeds[sender], run.statement(bound, key, body))
            reported[key] = Message(bound.hex(), body.hex(), signature.hex())

    for who in run.parties:
        say("shared-hello", who, run.servers, run.hellos[who])
        for index, server in enumerate(run.servers, 1):
            shares = b"".join(share.to_bytes(run.width, "big") for share in run.shares(who, index))
            say("shares", who, [server], pack((shares,)))
    values, faults = run.opened(), run.faults()
    result = run.output_statement(run.set, values, faults)
    digests = b"".join(hashlib.sha256(run.hellos[who]).digest() for who in run.parties)
    for server, seal in zip(run.servers, run.seals, strict=True):
        others = [other for other in run.servers if other != server]
        say("present", server, others, pack((run.present, digests)))
        say("shared-start", server, run.parties, pack(run.start))
        held = run.held[server]
        refused = [(n, LATE) for n in range(1, len(run.parties) + 1) if n not in held]
        say("held", server, others, pack((party_set(held, len(run.parties)), refused)))
        say("seal", server, others, pack((run.set, seal)))
        output = (values, run.set, faults, run.seals, sign(run.seeds[server], result))
        say("output", server, [*(run.parties[n - 1] for n in run.included), *others], pack(output))
    return reported


def holds(key: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature holds."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except InvalidSignature:
        return False
    return True


def at_fault(run: Run, key: Key, message: Message) -> str:
    """Whom the receiver of `message` names, or leaves out; "" if nothing is wrong with it.

    All other messages are those of the run.
    """
    step, sender, _ = key
    body = bytes.fromhex(message.body)
    if not holds(
        run.keys[sender],
        run.statement(bytes.fromhex(message.run_id), key, body),
        bytes.fromhex(message.signature),
    ):
        return sender
    fields = msgspec.msgpack.decode(body)
    expected = (
        run.session_digest if step in EARLY else run.run_of(fields) if step == "shared-start" else run.run_id
    )
    if bytes.fromhex(message.run_id) != expected:
        return sender
    right: dict[str, Callable[[], bool]] = {
        "shared-hello": lambda: fields[:2] == [run.session_digest, run.request],
        "shares": lambda: _shares_fit(run, fields[0]),
        "present": lambda: fields[0] == run.present and len(fields[1]) == 32 * len(run.parties),
        "shared-start": lambda: tuple(fields) == tuple(run.start),
        "held": lambda: _all_accounted_for(run, *fields),
        "seal": lambda: fields[0] == run.set and holds(run.keys[sender], run.set_statement, fields[1]),
    }
    if step != "output":
        return "" if right[step]() else sender
    values, included, faults, seals, signature = fields
    # Two other servers say what was opened.
    if (values, included, faults) != (run.opened(), run.set, run.faults()) or len(seals) != len(run.servers):
        return sender
    if not holds(run.keys[sender], run.output_statement(included, values, faults), signature):
        return sender
    # It computed on a set that all had signed: a seal that does not hold is its own doing.
    sealed = zip(run.servers, seals, strict=True)
    return "" if all(holds(run.keys[who], run.set_statement, seal) for who, seal in sealed) else sender


def _shares_fit(run: Run, packed: bytes) -> bool:
    indices = range(0, len(packed), run.width)
    elements = [int.from_bytes(packed[index : index + run.width], "big") for index in indices]
    return len(packed) == run.width * run.length and max(elements) < run.prime


def _all_accounted_for(run: Run, held: bytes, refused: list[list[Any]]) -> bool:
    """Whether a server says of every party that is present that it has shares, or why not, and not both."""
    numbers = list(range(1, len(run.parties) + 1))
    without = {number for number, _ in refused}
    return held == party_set([n for n in numbers if n not in without], len(numbers)) and without <= {*numbers}
