"""A covert two-party evaluation and the judge of its certificates, from the specification alone.

Slow and plain; what the protocols share is `pairs_twin`'s, and nothing of the library is used.
`Evaluation.execute` makes every message and result of a published run out of its inputs and random bytes;
`judge` says whom a certificate convicts, or raises Refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify.encodings import PATTERNS, tuple_hash, uint
from smpc_dp_verify.errors import Refused, required
from tests.reference import garble_twin, ot_twin, pairs_twin
from tests.reference.blake3_twin import keyed_hash
from tests.reference.pairs_twin import EVALUATOR, GARBLER, OPS, PIECE, Block, Party, octets, pack_bits
from tests.reference.secagg_twin import mask

K = 4
MESSAGES = (
    *("first", "base response", "trees", "extension", "challenge", "response"),
    *("corrections", "tables", "labels", "decoding"),
)
SENDERS = (EVALUATOR, GARBLER, EVALUATOR, EVALUATOR, GARBLER, EVALUATOR, *[GARBLER] * 4)
CORRECTIONS, TABLES, LABELS, DECODING = range(6, 10)
LIMITS = pairs_twin.Limits()
MOST_LABELS, MOST_GATES, MOST_WORK, MOST_BYTES = 1 << 16, 1 << 22, 1 << 28, 1 << 26
FORMAT = "smpc-dp covert certificate 1"

Place = tuple[int, int]


def stream(seed: bytes, count: int) -> list[int]:
    """The first bits of the AES-256-CTR stream under `seed`."""
    return ot_twin.bits(bytes(mask(seed, -(-count // 8), 1)))[:count]


@lru_cache(32)
def transfer(
    context: bytes, garblers: bytes, evaluators: bytes, choices: tuple[int, ...]
) -> tuple[list[bytes], list[list[int]]]:
    """Play a setup and one chunk from both seeds: messages; first, second and chosen pads."""
    both = ot_twin.Extension(context, K, garblers, evaluators)
    chunk = both.run([*choices])
    others = [ot_twin.xor(row, both.delta) for row in chunk.q]
    pads = [both.pads(chunk.first, rows) for rows in (chunk.q, others, chunk.t)]
    messages = [*both.messages, chunk.corrections, chunk.challenge, chunk.response]
    return messages, [[int.from_bytes(pad, "little") for pad in row] for row in pads]


class Listed(NamedTuple):
    """An entry of the label list: both labels and their hashes, c = 0 first."""

    place: Place
    labels: list[int]
    hashes: list[bytes]


@dataclass(frozen=True)
class Copy:
    """A copy as its two seeds give it.

    `drawn` are the random bits, the evaluator's choices and the garbler's coins; `held` are the labels of
    them that the evaluator has before any input. `contents` and `hashes` are by position in the transcript.
    """

    setting: garble_twin.Setting
    garbled: list[garble_twin.Garbled]
    drawn: dict[Place, int]
    held: dict[Place, int]
    listed: list[Listed]
    opening: bytes
    contents: dict[int, bytes]
    hashes: dict[int, bytes]


class Evaluation(pairs_twin.Evaluation):
    """Plays a published run."""

    def __init__(self, vector: dict[str, Any]) -> None:
        super().__init__(vector, LIMITS)
        self.copies: int = self.terms["copies"]
        self.random: list[int] = self.terms["random_inputs"]
        self.instances = range(self.terms["instances"])
        self.head: dict[str, tuple[bytes | int, ...]] = {}

    # Terms and derivations.

    def blocks(self) -> list[range]:
        """There is one."""
        return [self.instances]

    def plan_digest(self) -> bytes:
        """That of the evaluation, with the copies and the random inputs."""
        places = b"".join(uint(index) for index in self.random)
        return tuple_hash("covert-plan", super().plan_digest(), uint(self.copies), places)

    def places(self, indices: Iterable[int]) -> list[Place]:
        """Input values, wire by wire, each of all instances."""
        return [(n, wire) for index in indices for wire in self.circuit.wires(index) for n in self.instances]

    def kind(self, indices: Iterable[int], random: bool = False) -> list[int]:
        """The given input values of these, or the random ones."""
        return [index for index in indices if (index in self.random) == random]

    def derive(self, side: int, number: int, purpose: bytes, seed: bytes) -> bytes:
        """A derived seed of a side."""
        return self.digest("covert-seed", (b"garbler", b"evaluator")[side], uint(number), purpose, seed)

    def commitment(self, number: int, seed: bytes) -> bytes:
        """The commitment to the evaluator's seed of a stream."""
        return self.digest("covert-commitment", uint(number), seed)

    def closed(self, seed: bytes) -> int:
        """The number of the copy that the evaluator leaves closed."""
        drawn = self.derive(EVALUATOR, 0, b"copy", seed)[:16]
        return 1 + int.from_bytes(drawn, "big") % self.copies

    def seed_transfer(self, garblers: bytes, seed: bytes) -> ot_twin.BaseTransfers:
        """Both sides of stream 0."""
        context = ot_twin.tuple_hash("setup", 32, self.transfer_context(0), b"\0")
        choices = [int(number == self.closed(seed)) for number in range(1, self.copies + 1)]
        return ot_twin.BaseTransfers(context, garblers, self.derive(EVALUATOR, 0, b"transfer", seed), choices)

    def transfer_context(self, number: int) -> bytes:
        """The context of the transfers of a stream."""
        return self.digest("covert-transfer", *self.ends(), uint(number))

    def message_hash(self, number: int, position: int, content: bytes) -> bytes:
        """The hash of a message of a stream."""
        key = self.digest("covert-message", self.plan_digest(), uint(number), uint(position))
        return keyed_hash(key, content)

    def copy(self, number: int, seed: bytes, theirs: bytes) -> Copy:
        """Play both sides of a copy, from the seed of the copy and the evaluator's."""

        def digest(label: str) -> bytes:
            return self.digest(label, *self.ends(), uint(number))

        def derive(side: int, purpose: bytes) -> bytes:
            return self.derive(side, number, purpose, (seed, theirs)[side])

        def offset(place: Place) -> int:
            return garble_twin.delta(derive(GARBLER, b"garbling"), place[0])

        circuit, contents, held = self.circuit.plain, dict[int, bytes](), dict[Place, int]()
        zeros, first = dict[Place, int](), dict[Place, int]()
        setting, label_keys = (
            garble_twin.Setting(digest(label)[:16], self.terms["mode"], self.tile, len(self.instances))
            for label in ("covert-keys", "covert-label-keys")
        )
        slots, coins = self.places(self.theirs), self.places(self.kind(self.ours, random=True))
        choices = stream(derive(EVALUATOR, b"choices"), len(slots))
        drawn = dict(zip(slots, choices, strict=True))
        if slots:
            seeds = derive(GARBLER, b"transfer"), derive(EVALUATOR, b"transfer")
            messages, pads = transfer(digest("covert-transfer"), *seeds, tuple(choices))
            contents = dict(enumerate(messages)) | {CORRECTIONS: b""}
            for place, zero, one, pad in zip(slots, *pads, strict=True):
                correction = zero ^ one ^ offset(place)
                contents[CORRECTIONS] += octets(correction)
                first[place], held[place] = zero, pad ^ drawn[place] * correction
        zeros |= {place: first[place] for place in self.places(self.kind(self.theirs, random=True))}
        for place, bit in zip(coins, stream(derive(GARBLER, b"coins"), len(coins)), strict=True):
            drawn[place], held[place] = bit, garble_twin.open_label(digest("covert-open")[:16], *place)
            zeros[place] = held[place] ^ bit * offset(place)
        garbled = garble_twin.garble(circuit, setting, derive(GARBLER, b"garbling"), zeros)
        listed = []
        for at, place in enumerate(self.places(self.kind(self.ours)) + self.places(self.kind(self.theirs))):
            zero = garbled[place[0]].zeros[place[1]] ^ first.get(place, 0)
            labels = [zero, zero ^ offset(place)]
            if place not in first:
                labels.sort(key=lambda label: label & 1)
            key = label_keys.key(place[0], garble_twin.OUTPUT_HASH + at // len(self.instances))
            hashed = [octets(garble_twin.hash_label(label, key)) for label in labels]
            listed.append(Listed(place, labels, hashed))
        contents[TABLES] = garble_twin.tables(circuit, setting, garbled)
        contents[LABELS] = b"".join(hashed for entry in listed for hashed in entry.hashes)
        hashes = {position: self.message_hash(number, position, contents[position]) for position in contents}
        contents[DECODING] = pack_bits([[one.zeros[wire] & 1 for one in garbled] for wire in circuit.outputs])
        if self.third:
            rows = garble_twin.output_hashes(circuit, setting, garbled)
            pairs = b"".join(octets(label) for row in rows for pair in row for label in pair)
            contents[DECODING] = pairs + contents[DECODING]
        opening = derive(GARBLER, b"decoding")
        hashes[DECODING] = self.digest("covert-decoding", uint(number), opening, contents[DECODING])
        return Copy(setting, garbled, drawn, held, listed, opening, contents, hashes)

    # The run.

    def execute(self) -> None:
        """Go through the whole run."""
        self._greet()
        seeds = [self.evaluator.take(32) for _ in range(self.copies + 1)]
        e = self.closed(seeds[0])
        first, response, pairs, received = self.seed_transfer(self.seed, seeds[0]).run()
        assert received == [keys[number == e] for number, keys in enumerate(pairs, 1)]
        opened = [self.derive(GARBLER, number, b"copy", zero) for number, (zero, _) in enumerate(pairs, 1)]
        witness = self.derive(GARBLER, e, b"witness", pairs[e - 1][1])
        copies = [
            self.copy(number, opened[number - 1], seeds[number]) for number in range(1, self.copies + 1)
        ]
        commitments = [self.commitment(number, seed) for number, seed in enumerate(seeds)]
        self.piece(GARBLER, first)
        self.control(self.evaluator, self.garbler, "commit", commitments)
        self.piece(EVALUATOR, response)
        for position in range(CORRECTIONS if self.theirs else 0):
            for copy in copies:
                self.piece(SENDERS[position], copy.contents[position])
        signed = [[self.message_hash(0, place, content) for place, content in enumerate((first, response))]]
        signed += [[copy.hashes[position] for position in sorted(copy.hashes)] for copy in copies]
        statement = (self.plan_digest(), self.start, commitments, signed)
        self.head["labels"] = (*self.control(self.garbler, self.evaluator, "sign", *statement), e)
        others = [seed for number, seed in enumerate(opened, 1) if number != e]
        self.head["hashes"] = self.control(self.evaluator, self.garbler, "open", e, others, witness)
        self._use(copies[e - 1])
        if self.third:
            for party in (self.garbler, self.evaluator):
                self.control(self.everyone[2], party, "receipt", self.value())

    def bits(self, index: int, instances: range) -> list[list[int]]:
        """The bits of a given input value, by wire and instance."""
        owner, indices = (self.evaluator, self.theirs) if index in self.theirs else (self.garbler, self.ours)
        values = self.vector["inputs"][owner.name][self.kind(indices).index(index)]
        return [[values[n] >> bit & 1 for n in instances] for bit in range(self.circuit.inputs[index])]

    def _use(self, copy: Copy) -> None:
        """Bring the inputs into the closed copy, evaluate it, and bring the output to whom it is for."""
        circuit = self.circuit.plain
        self.inputs = dict(copy.drawn)
        for index in self.kind(range(len(self.circuit.inputs))):
            rows = [bit for row in self.bits(index, self.instances) for bit in row]
            self.inputs |= zip(self.places([index]), rows, strict=True)
        theirs = self.places(self.kind(self.theirs))
        masked = {place: self.inputs[place] ^ copy.drawn[place] for place in theirs}
        active, labels, tables = dict(copy.held), b"", copy.contents[TABLES]
        for place, pair, hashes in copy.listed:
            zero = copy.garbled[place[0]].zeros[place[1]]
            label = zero ^ self.inputs[place] * copy.garbled[place[0]].delta
            c = masked[place] if place in masked else pair.index(label)
            labels += octets(pair[c]) + hashes[1 - c]
            active[place] = active.get(place, 0) ^ pair[c]
            assert active[place] == label
        pieces = [
            (EVALUATOR, pack_bits([[*masked.values()]])),
            (GARBLER, copy.contents.get(CORRECTIONS, b"")),
        ]
        pieces += [
            (GARBLER, labels),
            *((GARBLER, tables[at:][:PIECE]) for at in range(0, len(tables), PIECE)),
        ]
        for side, content in pieces:
            if content:
                self.piece(side, content)
        block = Block(0, copy.setting, copy.garbled)
        for n, row in enumerate(garble_twin.rows_of(circuit, copy.setting, tables)):
            labels_in = [active[n, wire] for wire in range(circuit.n_inputs)]
            keys = garble_twin.keys_of(copy.setting, n)
            block.active.append(garble_twin.evaluate_one(circuit, keys, row, labels_in))
        colours = [[one.zeros[wire] & 1 for one in copy.garbled] for wire in circuit.outputs]
        self.opening = copy.opening
        self._finish(block, colours)
        if self.terms["output"] in ("evaluator", "both"):
            self.control(self.garbler, self.evaluator, "decode", copy.opening, pack_bits(colours))

    def _show(self, sender: Party, step: str, block: int, message: bytes) -> None:
        opening = self.opening if step == "hashes" else b""
        sealed = self.sealed(sender, step, block, opening + message)
        self.control(sender, self.everyone[2], step, *self.head[step], self.value(), sealed)


# The judge.


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a certificate in their order."""

    format: str
    session_digest: bytes
    request: int
    session: bytes
    names: list[str]
    nonces: bytes
    keys: bytes
    public_key: bytes
    statement: bytes
    signature: bytes
    circuit: tuple[list[int], list[int], int, bytes, bytes, bytes, bytes]
    instances: int
    mode: str
    output: str
    evaluator_inputs: list[int]
    random_inputs: list[int]
    copies: int
    first_message: bytes
    first_seed: bytes
    copy: int
    seed: bytes


def read(data: bytes, kind: Any) -> Any:
    """Decode MessagePack of a kind in its one encoding."""
    try:
        value = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError):
        raise Refused("malformed") from None
    required(msgspec.msgpack.encode(value) == data, "malformed")
    return value


def circuit_text(certificate: Certificate) -> str:
    """The circuit of a certificate as a file; every wire is made once, before it is used."""
    inputs, outputs, wires, ops, *columns = certificate.circuit
    required(all(len(column) == 4 * len(ops) for column in columns), "circuit")
    required(all(width > 0 for width in [*inputs, *outputs]) and outputs, "circuit")
    lines = [
        f"{len(ops)} {wires}",
        *(f"{len(row)} {' '.join(map(str, row))}" for row in (inputs, outputs)),
        "",
    ]
    kinds = {code: kind for kind, code in OPS.items()}
    required(sum(outputs) <= wires == sum(inputs) + len(ops), "circuit")
    made = {*range(sum(inputs))}
    for number, op in enumerate(ops):
        a, b, out = (int.from_bytes(column[4 * number :][:4], "little") for column in columns)
        required(op in kinds and out < wires and out not in made, "circuit")
        both = kinds[op] in ("XOR", "AND")
        required(a < 2 if kinds[op] == "EQ" else a in made, "circuit")
        required(b in made if both else b == 0, "circuit")
        made.add(out)
        lines.append(f"2 1 {a} {b} {out} {kinds[op]}" if both else f"1 1 {a} {out} {kinds[op]}")
    return "\n".join(lines)


def evaluation(certificate: Certificate) -> Evaluation:
    """The evaluation that a certificate is of, up to its run id."""
    names, inputs = certificate.names, range(len(certificate.circuit[0]))
    third = certificate.output == "aggregator"
    required(certificate.format == FORMAT, "format")
    required(len(names) == len({*names}) == 2 + third, "names")
    required(all(PATTERNS["name"].fullmatch(name) for name in names), "names")
    required(len(certificate.nonces) == 32 * len(names), "nonces")
    required(len(certificate.keys) == (32 * len(names) if third else 0), "keys")
    required(len(certificate.session_digest) == 32 and certificate.request >= 0, "session")
    hashed = tuple_hash("session-digest", certificate.session)
    required(not certificate.session or hashed == certificate.session_digest, "session")
    required(certificate.mode in ("tile", "unique"), "mode")
    required(certificate.output in ("garbler", "evaluator", "both", "aggregator"), "output")
    required(2 <= certificate.copies <= 64 and certificate.instances >= 1, "plan")
    for places in (certificate.evaluator_inputs, certificate.random_inputs):
        required(places == sorted({*places} & {*inputs}), "plan")
    widths = [0, 0, sum(certificate.circuit[1])]
    for index, width in enumerate(certificate.circuit[0]):
        widths[index in certificate.evaluator_inputs] += width
    required(certificate.instances * max(widths) <= MOST_LABELS, "too large")
    gates = len(certificate.circuit[3])
    required(gates <= MOST_GATES and gates * certificate.instances <= MOST_WORK, "too large")
    named = ("request", "evaluator_inputs", "random_inputs", "instances", "output", "mode", "copies")
    session = {name: getattr(certificate, name) for name in named} | {
        **{"protocol": "pairwise", "version": 1, "session_digest": certificate.session_digest.hex()},
        **dict(zip(("garbler", "evaluator", "aggregator"), [*names, ""], strict=False)),
    }
    run = Evaluation(
        {
            "session": session,
            "circuit": circuit_text(certificate),
            "identities": {name: {"signing_seed": ""} for name in names},
            "randomness": {name: [] for name in names},
        }
    )
    for number, party in enumerate(run.everyone):
        part = slice(32 * number, 32 * number + 32)
        party.nonce, party.key = certificate.nonces[part], certificate.keys[part]
    run.begin()
    return run


def judge(data: bytes) -> dict[str, Any]:
    """Say whom a certificate convicts, and by which message; raises Refused if nobody."""
    required(len(data) <= MOST_BYTES, "too large")
    certificate: Certificate = read(data, Certificate)
    run = evaluation(certificate)
    signed = run.envelope(run.garbler, run.evaluator, "sign", certificate.statement)
    try:
        key = Ed25519PublicKey.from_public_bytes(certificate.public_key)
        key.verify(certificate.signature, signed)
    except (InvalidSignature, ValueError):
        raise Refused("signature") from None
    plan, run.start, commitments, transcripts = read(
        certificate.statement, tuple[bytes, bytes, list[bytes], list[list[bytes]]]
    )
    required(plan == run.plan_digest(), "plan")
    positions = range(0 if run.theirs else TABLES, DECODING + 1)
    lengths = [len(transcript) for transcript in transcripts]
    required(len(run.start) == 32 and len(commitments) == run.copies + 1, "statement")
    required(lengths == [2, *[len(positions)] * run.copies], "statement")
    required(all(len(value) == 32 for row in (commitments, *transcripts) for value in row), "statement")
    number = certificate.copy
    required(1 <= number <= run.copies, "copy")
    for stream_number, seed in ((0, certificate.first_seed), (number, certificate.seed)):
        required(commitments[stream_number] == run.commitment(stream_number, seed), "commitment")
    try:
        response, keys = run.seed_transfer(b"", certificate.first_seed).answer(certificate.first_message)
    except ValueError:
        raise Refused("first message") from None
    played = enumerate((certificate.first_message, response))
    required(transcripts[0] == [run.message_hash(0, place, content) for place, content in played], "seeds")
    required(number != run.closed(certificate.first_seed), "closed copy")
    copy = run.copy(number, run.derive(GARBLER, number, b"copy", keys[number - 1]), certificate.seed)
    for position, claimed in zip(positions, transcripts[number], strict=True):
        if copy.hashes[position] != claimed:
            required(SENDERS[position] == GARBLER, "the evaluator deviated first")
            return {
                "garbler": run.garbler.name,
                "public_key": certificate.public_key.hex(),
                "run_id": run.run_id.hex(),
                "copy": number,
                "message": MESSAGES[position],
            }
    raise Refused("the garbler is honest")
