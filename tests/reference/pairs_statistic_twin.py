"""A pairwise statistic from its specification alone (protocols/pairwise/README.md), slow and plain.

`Statistic.execute` makes every message of a published run out of its records and random bytes: those between
the parties and the aggregator, those of each pair (by `pairs_twin`), relayed frames, and the lines of the
log.
What is a matter of schedule it takes from the vector and checks: the order, and when a party says how many
frames it has taken.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64decode, b64encode
from collections import deque
from itertools import pairwise
from typing import Any

import msgspec
from Crypto.Cipher import AES

from smpc_dp_verify.encodings import party_set, tuple_hash, uint
from tests.reference import pairs_twin
from tests.reference.secagg_twin import agree, pack, public_key, seal, sign

FRAME, ATTEMPTS, WINDOW, REPORTED = 32_768, 3, 8, 4
# Nonce and tag of a sealed frame, and the byte that says whether its message ends.
CHUNK = FRAME - 24 - 16 - 1

Body = bytes
Connection = tuple[str, str, str]


class Statistic:
    """Plays a published run. `expected` has the bodies of each (step, sender, receiver), in order."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.vector = vector
        terms = vector["session"]
        self.names: list[str] = terms["parties"]
        self.aggregator: str = terms["aggregator"]
        self.bound = (terms["protocol"].encode(), uint(terms["version"]))
        self.session = bytes.fromhex(terms["session_digest"])
        self.request = uint(terms["request"])
        self.seeds = {
            name: bytes.fromhex(entry["signing_seed"]) for name, entry in vector["identities"].items()
        }
        self.circuit = pairs_twin.Circuit.parse(vector["circuit"])
        self.plan = tuple_hash("statistic-terms", vector["terms"].encode(), self.circuit.digest())
        self.terms = json.loads(vector["terms"])
        self.coins = {
            name: [bytes.fromhex(draw) for draw in vector["randomness"][name]] for name in self.names
        }
        self.aggregator_draws = deque(vector["randomness"][self.aggregator])
        self.labels = dict(zip(self.names, vector["labels"] or [-1] * len(self.names), strict=True))
        self.present = list(self.names)
        self.attempt = 1
        self.expected: dict[Connection, deque[tuple[bytes, Body]]] = {}
        self.log: list[tuple[str, str, Body, bytes]] = []
        self.pairs: list[list[tuple[str, str]]] = []
        self.outputs: dict[tuple[int, tuple[str, str]], int] = {}
        self.frames: dict[tuple[str, str], deque[bytes]] = {}
        self.evaluations: list[pairs_twin.Evaluation] = []

    # What everything else is made of.

    def commitments(self, name: str) -> bytes:
        """Of a party to its coins."""
        runs = [self.session + self.request + self.plan + uint(k) for k in range(1, ATTEMPTS + 1)]
        coins = self.coins[name]
        parts = (
            tuple_hash("statistic-coin", run, name.encode(), coin)
            for run, coin in zip(runs, coins, strict=True)
        )
        return b"".join(parts)

    def say(self, run: bytes, step: str, sender: str, receivers: list[str], *fields: Any) -> None:
        """Send the same body to each receiver."""
        body = msgspec.msgpack.encode(fields)
        for receiver in receivers:
            self.expected.setdefault((step, sender, receiver), deque()).append((run, body))

    def envelope(self, run: bytes, step: str, sender: str, receiver: str, body: Body) -> bytes:
        """The bytes that travel."""
        return pack(
            (run, step, sender, receiver, body, self.signature(self.bound, run, step, sender, receiver, body))
        )

    def signature(
        self, bound: tuple[bytes, bytes], run: bytes, step: str, sender: str, receiver: str, body: Body
    ) -> bytes:
        """Of a message."""
        ends = (step.encode(), sender.encode(), receiver.encode())
        statement = tuple_hash("envelope", *bound, run, *ends, hashlib.sha256(body).digest())
        return sign(self.seeds[sender], statement)

    def write(self, step: str, party: str, run: bytes, *fields: Any) -> None:
        """Log a message to the aggregator."""
        body = msgspec.msgpack.encode(fields)
        self.log.append(
            (party, step, body, self.signature(self.bound, run, step, party, self.aggregator, body))
        )

    # The run.

    def execute(self) -> None:
        """Go through the whole run."""
        self._begin()
        self._draw_coins()
        self._match()
        for matching, pairs in enumerate(self.pairs):
            for pair in pairs:
                self._evaluate(matching, pair)
        for name in self.present:
            self.say(self.run, "pairs-done", name, [self.aggregator], [])
            self.write("pairs-done", name, self.run, [])
        self._estimate()

    def _begin(self) -> None:
        for name in self.names:
            # Nobody knows a line of the session log.
            fields = (
                self.session,
                self.vector["session"]["request"],
                self.commitments(name),
                self.plan,
                self.vector["question"],
                self.labels[name],
                0,
            )
            self.say(self.session, "statistic-hello", name, [self.aggregator], *fields)
        commitments = b"".join(map(self.commitments, self.names))
        labels = bytes(self.labels[name] + 1 for name in self.names)
        self.present_set = self.set_of(self.names)
        self.root = tuple_hash("statistic-root", commitments, labels)
        self.run = tuple_hash(
            "run-id", *self.bound, self.session, self.request, self.plan, self.present_set, self.root
        )
        self.first_run = self.run
        self.say(
            self.run, "statistic-start", self.aggregator, self.names, self.present_set, commitments, labels
        )
        self._begin_session_log()
        self.write(
            "statistic-terms", self.aggregator, self.run, self.vector["terms"].encode(), self.circuit.digest()
        )
        for name in self.names:
            [(_, body)] = self.expected["statistic-hello", name, self.aggregator]
            self.write("statistic-hello", name, self.session, *msgspec.msgpack.decode(body))

    def _begin_session_log(self) -> None:
        """The run is the first of its session: everybody signs the head after its line."""
        before = bytes(32)
        self.start_of_runs = tuple_hash("session-log", self.session)
        head = tuple_hash("session-log-line", self.start_of_runs, uint(1), self.request, self.run, before)
        self.say(
            self.run, "begin", self.aggregator, self.names, 0, self.start_of_runs, [[1, self.run, before]]
        )
        parts = (self.run, b"attest-begin", head, self.present_set)
        attested = tuple_hash("board-attestation", *self.bound, *parts)
        signatures = b""
        quorum = self.names[: len(self.names) // 2 + 1]
        for name in self.names:
            self.say(self.run, "attest-begin", name, [self.aggregator], attested)
            if name in quorum:
                body = msgspec.msgpack.encode([attested])
                signatures += self.signature(
                    self.bound, self.run, "attest-begin", name, self.aggregator, body
                )
        self.write(
            "certify-begin", self.aggregator, self.run, self.present_set, self.set_of(quorum), signatures
        )
        [(_, _, body, signature)] = self.log
        first = tuple_hash("board-header", self._header().encode())
        self.say(self.run, "begun", self.aggregator, self.names, first, body, signature)

    def set_of(self, names: list[str]) -> bytes:
        """A packed set of parties."""
        return party_set([self.names.index(name) + 1 for name in names], len(self.names))

    def _draw_coins(self) -> None:
        silent = self.vector["session"]["silent"]
        while True:
            step = "coin" if self.attempt == 1 else f"coin-{self.attempt}"
            opening = [name for name in self.present if silent.get(name) != self.attempt]
            for name in opening:
                coin = self.coins[name][self.attempt - 1]
                self.say(self.run, step, name, [self.aggregator], coin)
                self.write(step, name, self.run, coin)
            if opening == self.present:
                return
            self.present, self.attempt = opening, self.attempt + 1
            members = self.set_of(opening)
            self.run = tuple_hash("statistic-again", *self.bound, self.run, uint(self.attempt), members)
            self.say(self.run, f"again-{self.attempt}", self.aggregator, opening, members)
            self.write(f"again-{self.attempt}", self.aggregator, self.run, members)

    def _match(self) -> None:
        coins = [self.coins[name][self.attempt - 1] for name in self.present]
        self.say(self.run, "matched", self.aggregator, self.present, b"".join(coins))
        named = [
            part for name, coin in zip(self.present, coins, strict=True) for part in (name.encode(), coin)
        ]
        self.beacon = tuple_hash("statistic-beacon", self.run, *named)
        for matching in range(self.vector["session"]["partners"]):
            if self.vector["labels"] is None:
                order = self.sorted(matching, self.present)
                first, second = order[0::2], order[1::2]
            else:
                first, second = (
                    self.sorted(2 * matching + side, [n for n in self.present if self.labels[n] == label])
                    for side, label in ((0, 1), (1, 0))
                )
            # Of an odd number, and of the longer list, who is left has no partner.
            self.pairs.append(list(zip(first, second, strict=False)))

    def sorted(self, number: int, names: list[str]) -> list[str]:
        """Names by keys of 128 bits, two little-endian words each, of which the second counts first."""
        seed = tuple_hash("statistic-matching", self.beacon, uint(number))
        stream = AES.new(seed, AES.MODE_CTR, nonce=b"", initial_value=bytes(16)).encrypt(
            bytes(16 * len(names))
        )
        keys = [struct.unpack_from("<QQ", stream, 16 * index)[::-1] for index in range(len(names))]
        return [names[index] for index in sorted(range(len(names)), key=keys.__getitem__)]

    # A pair.

    def _evaluate(self, matching: int, pair: tuple[str, str]) -> None:
        session = tuple_hash("statistic-pair", self.run, uint(matching), *(name.encode() for name in pair))
        [published] = [
            each
            for each in self.vector["evaluations"]
            if (each["matching"], each["garbler"], each["evaluator"]) == (matching, *pair)
        ]
        assert published["session_digest"] == session.hex()
        half = len(self.circuit.inputs) // 2
        randomness, inputs = {}, {}
        for name in pair:
            bits, *rest = published["randomness"][name]
            own = int.from_bytes(bytes.fromhex(bits), "little") & (1 << self.circuit.inputs[half - 1]) - 1
            randomness[name] = rest
            inputs[name] = [[self.vector["records"][name]], [own]]
        randomness[self.aggregator] = list(self.aggregator_draws)
        ran = pairs_twin.Evaluation(
            {
                "session": {
                    "protocol": "pairwise",
                    "version": 1,
                    "session_digest": session.hex(),
                    "request": 1,
                    "garbler": pair[0],
                    "evaluator": pair[1],
                    "aggregator": self.aggregator,
                    "evaluator_inputs": list(range(half, 2 * half)),
                    "instances": 1,
                    "output": "aggregator",
                    "mode": "tile",
                },
                "circuit": self.vector["circuit"],
                "identities": self.vector["identities"],
                "inputs": inputs,
                "randomness": randomness,
                "forgot": "",
            },
            pairs_twin.Limits(),
        )
        ran.execute()
        garbler, evaluator, aggregator = ran.everyone
        assert garbler.has_drawn_all()
        assert evaluator.has_drawn_all()
        while len(self.aggregator_draws) > aggregator.left():
            self.aggregator_draws.popleft()
        self.evaluations.append(ran)
        self.outputs[matching, pair] = ran.values()[0][0]
        self._tunnel(matching, ran)
        if self.vector["session"]["relayed"]:
            self._relay(pair, session, published, ran)

    def _tunnel(self, matching: int, ran: pairs_twin.Evaluation) -> None:
        """What goes between the aggregator and each of the two."""
        for name in (ran.garbler.name, ran.evaluator.name):
            for sender, receiver in ((name, self.aggregator), (self.aggregator, name)):
                for number, content in enumerate(ran.sent.get((sender, receiver), [])):
                    self.say(self.run, "pair", sender, [receiver], matching, number, content)

    def _relay(
        self,
        pair: tuple[str, str],
        session: bytes,
        published: dict[str, Any],
        ran: pairs_twin.Evaluation,
    ) -> None:
        """The frames of both directions."""
        bound = (b"pairwise", uint(1))
        draws = {name: deque(map(bytes.fromhex, published["relay_randomness"][name])) for name in pair}
        secrets = {name: draws[name].popleft() for name in pair}
        keys = tuple(public_key(secrets[name]) for name in pair)
        for sender, receiver in (pair, pair[::-1]):
            ends = (sender.encode(), receiver.encode())
            info = tuple_hash("relay-key", *bound, session, *keys, *ends)
            key = agree(secrets[sender], public_key(secrets[receiver]), session, info)
            body = msgspec.msgpack.encode((public_key(secrets[sender]),))
            signature = self.signature(bound, session, "relay-key", sender, receiver, body)
            frames = deque([pack((session, "relay-key", sender, receiver, body, signature))])
            for message in ran.sent[sender, receiver]:
                chunks = [message[index : index + CHUNK] for index in range(0, max(len(message), 1), CHUNK)]
                for index, chunk in enumerate(chunks):
                    context = tuple_hash("relay-frame", *bound, session, *ends, uint(len(frames)))
                    last = bytes([index == len(chunks) - 1])
                    frames.append(seal(key, draws[sender].popleft(), last + chunk, context))
            assert not draws[sender]
            self.frames[sender, receiver] = frames

    def ends(self) -> list[tuple[int, str, str]]:
        """Matching, name and partner of everybody in every pair."""
        return [
            (matching, name, peer)
            for matching, pairs in enumerate(self.pairs)
            for pair in pairs
            for name, peer in (pair, pair[::-1])
        ]

    def partner(self, sender: str, body: Body) -> str:
        """Whom a frame is for."""
        matching = msgspec.msgpack.decode(body)[0]
        [peer] = [peer for number, name, peer in self.ends() if (number, name) == (matching, sender)]
        return peer

    def relayed(self, sender: str, body: Body, seen: dict[Any, list[int]]) -> None:
        """Check a frame of a schedule: `seen` counts for each (matching, sender) frames sent and taken."""
        matching, number, taken, content = msgspec.msgpack.decode(body)
        peer = self.partner(sender, body)
        own, other = seen.setdefault((matching, sender), [0, 0]), seen.setdefault((matching, peer), [0, 0])
        assert number == own[0]
        assert own[1] <= taken <= other[0]
        if content:
            assert own[0] - other[1] < WINDOW
            assert content == self.frames[sender, peer][number]
            own[0] += 1
        else:
            assert taken - own[1] >= REPORTED
        own[1] = taken

    # The end.

    def _estimate(self) -> None:
        """The value; errors and interval are as the aggregator says: how they round is not specified."""
        threshold, bits_of_coin = self.terms["exchange"]
        exchange = threshold / 2**bits_of_coin
        bits = self.circuit.inputs[len(self.circuit.inputs) // 2 - 1] - bits_of_coin
        edges = [0, *self.terms["cuts"], 1 << bits]
        mean = sum(j * (high - low) for j, (low, high) in enumerate(pairwise(edges))) / 2**bits
        read = [(value - exchange * mean) / (1 - exchange) for value in self.outputs.values()]
        self.value = float(self.terms["low"]) + float(self.terms["unit"]) * sum(read) / len(read)
        claimed = msgspec.msgpack.decode(b64decode(json.loads(self.vector["log"][-1])["payload"]))
        assert abs(claimed[0] - self.value) < 1e-12
        *figures, pairs, failed, _ = claimed
        assert [pairs, failed] == [len(read), []]
        self._lines()
        self.write("outcome", self.aggregator, self.run, *figures, pairs, failed, self.head)
        self.lines = self._lines()
        self.say(self.run, "estimate", self.aggregator, self.present, *figures, len(read), 0, self.head)

    def _header(self) -> str:
        """The first line of the log."""
        header = {
            "format": "smpc-dp board",
            "version": 2,
            "session": "",
            "request": self.vector["session"]["request"],
            "question": f"pairwise-statistic {self.plan.hex()}",
            "number": 1,
            "runs": self.start_of_runs.hex(),
            "before": bytes(32).hex(),
            "present": b64encode(self.present_set).decode(),
            "root": b64encode(self.root).decode(),
            "run_id": self.first_run.hex(),
        }
        return json.dumps(header, separators=(",", ":"))

    def _lines(self) -> list[str]:
        """The lines of the log; the last head is in `head`."""
        lines = [self._header()]
        self.head = tuple_hash("board-header", lines[0].encode())
        for number, (party, kind, body, signature) in enumerate(self.log, 1):
            line = {
                "sequence": number,
                "previous": self.head.hex(),
                "party": party,
                "kind": kind,
                "payload": b64encode(body).decode(),
                "signature": signature.hex(),
            }
            lines.append(json.dumps(line, separators=(",", ":")))
            ends, payload = (party.encode(), kind.encode()), hashlib.sha256(body).digest()
            entry = tuple_hash("board-entry", uint(number), *ends, payload, signature)
            self.head = tuple_hash("board-head", self.head, entry)
        return lines
