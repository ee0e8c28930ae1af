"""A two-party evaluation from its specification alone: both roles and the third party, slow and plain.

Garbling is `garble_twin`'s, transfers are `ot_twin`'s; nothing of the library is used. `Evaluation.execute`
makes every message and every result of a published run out of its inputs and random bytes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from smpc_dp_verify.encodings import tuple_hash, uint
from tests.reference import garble_twin, ot_twin
from tests.reference.blake3_twin import keyed_hash
from tests.reference.secagg_twin import Fields, agree, pack, public_key, seal, sign

K = 2
PIECE = 1 << 19
GARBLER, EVALUATOR = 0, 1
OPS = {"XOR": 0, "AND": 1, "INV": 2, "EQ": 3, "EQW": 4}


@dataclass(frozen=True)
class Limits:
    """What a block holds at most (labels of one kind), a chunk (transfers), and how many are on their way."""

    block_labels: int = 1 << 20
    transfers: int = 127 * 128
    in_flight: int = 3


@dataclass(frozen=True)
class Circuit:
    """A circuit of Bristol Fashion: widths of its values, and gates in the form of `garble_twin`."""

    inputs: list[int]
    outputs: list[int]
    plain: garble_twin.Circuit

    @classmethod
    def parse(cls, text: str) -> Circuit:
        """Read a file that is known to be good and has no MAND."""
        lines = [line.split() for line in text.splitlines() if line.strip()]
        wires = int(lines[0][1])
        inputs, outputs = ([int(word) for word in line[1:]] for line in lines[1:3])
        gates = []
        for *words, kind in lines[3:]:
            numbers = [int(word) for word in words[2:]]
            a, b, out = numbers if len(numbers) == 3 else (numbers[0], 0, numbers[1])
            gates.append(garble_twin.Gate(OPS[kind], a, b, out))
        last = list(range(wires - sum(outputs), wires))
        return cls(inputs, outputs, garble_twin.Circuit(wires, sum(inputs), gates, last))

    def digest(self) -> bytes:
        """Widths, number of wires, and the columns of the gates."""
        gates = self.plain.gates
        columns = [[gate.a for gate in gates], [gate.b for gate in gates], [gate.out for gate in gates]]
        return tuple_hash(
            "circuit",
            b"".join(uint(width) for width in self.inputs),
            b"".join(uint(width) for width in self.outputs),
            uint(self.plain.n_wires),
            bytes(gate.op for gate in gates),
            *(b"".join(number.to_bytes(4, "little") for number in column) for column in columns),
        )

    def wires(self, index: int) -> range:
        """The wires of an input value."""
        starts = [0, *accumulate(self.inputs)]
        return range(starts[index], starts[index + 1])


def origins_and_reads(circuit: garble_twin.Circuit) -> tuple[dict[int, int], dict[int, list[int]]]:
    """The wire that each wire is a copy of, and by the number of a gate the wires that it reads."""
    origin = {wire: wire for wire in range(circuit.n_wires)}
    reads: dict[int, list[int]] = {}
    for number, gate in enumerate(circuit.gates):
        if gate.op == garble_twin.EQW:
            origin[gate.out] = origin[gate.a]
            continue
        operands = {garble_twin.EQ: [], garble_twin.INV: [gate.a]}.get(gate.op, [gate.a, gate.b])
        reads[number] = [origin[wire] for wire in operands]
    return origin, reads


def slots(circuit: garble_twin.Circuit) -> int:
    """The most wires that are held at once when gates are evaluated in the order of the file."""
    origin, reads = origins_and_reads(circuit)
    outputs = Counter(origin[wire] for wire in circuit.outputs)
    uses = dict.fromkeys(range(circuit.n_wires), 0)
    for wire in [*(wire for operands in reads.values() for wire in operands), *outputs.elements()]:
        uses[wire] += 1
    held: set[int] = set()
    most = 0

    def hold(wire: int) -> None:
        nonlocal most
        held.add(wire)
        most = max(most, len(held))
        # It is written out as often as it is an output.
        let_go(wire, outputs[wire])

    def let_go(wire: int, count: int) -> None:
        uses[wire] -= count
        if uses[wire] == 0:
            held.discard(wire)

    for number, operands in reads.items():
        for wire in operands:
            if wire not in held:
                hold(wire)
        for wire in operands:
            let_go(wire, 1)
        hold(circuit.gates[number].out)
    for wire in range(circuit.n_inputs):
        if uses[wire]:
            hold(wire)
    return most


def tile_of(held: int, instances: int, most: int) -> int:
    """How many instances go together: `held` are the slots of the circuit, `most` what a block may have."""
    held = max(1, held)
    if instances < 16 or held > 1 << 16:
        return 1
    fit = min(max((1 << 16) // held, 16), 2048)
    tile = 1 << min(fit, max(instances // 4, 256)).bit_length() - 1
    while tile > most:
        tile //= 2
    return tile


def pack_bits(rows: Sequence[Sequence[int]]) -> bytes:
    """Bits, row after row, eight to a byte, the least significant first."""
    return ot_twin.pack([bit for row in rows for bit in row])


def octets(label: int) -> bytes:
    """A label as it travels."""
    return label.to_bytes(16, "little")


class Party:
    """A name, its signing seed, and its random bytes in the order in which it draws them."""

    def __init__(self, name: str, vector: dict[str, Any]) -> None:
        self.name = name
        self.seed = bytes.fromhex(vector["identities"][name]["signing_seed"])
        self._draws = [bytes.fromhex(draw) for draw in vector["randomness"][name]]
        self.secret = self.nonce = self.key = b""

    def take(self, n: int) -> bytes:
        """The next draw, which must be of `n` bytes."""
        drawn = self._draws.pop(0)
        assert len(drawn) == n
        return drawn

    def has_drawn_all(self) -> bool:
        """Whether the random bytes are used up."""
        return not self._draws

    def left(self) -> int:
        """How many draws are left."""
        return len(self._draws)


@dataclass
class Block:
    """A block as both sides see it when its tables are through."""

    number: int
    setting: garble_twin.Setting
    garbled: list[garble_twin.Garbled]
    active: list[dict[int, int]] = field(default_factory=list)


class Evaluation:
    """Plays a published run. `sent` holds the messages of each (sender, receiver) in order.

    `before` is the run that the same two have played before, with the transfers that were set up in it.
    """

    def __init__(self, vector: dict[str, Any], limits: Limits, before: Evaluation | None = None) -> None:
        self.vector, self.limits = vector, limits
        self.terms = vector["session"]
        self.circuit = Circuit.parse(vector["circuit"])
        self.theirs: list[int] = self.terms["evaluator_inputs"]
        self.ours = [index for index in range(len(self.circuit.inputs)) if index not in self.theirs]
        names = [self.terms["garbler"], self.terms["evaluator"]]
        self.third = self.terms["output"] == "aggregator"
        self.everyone = [Party(name, vector) for name in names + [self.terms["aggregator"]] * self.third]
        self.garbler, self.evaluator = self.everyone[:2]
        widths = [
            sum(self.circuit.inputs[index] for index in indices) for indices in (self.ours, self.theirs)
        ]
        self.most = limits.block_labels // max(1, sum(self.circuit.outputs), *widths)
        self.tile = tile_of(slots(self.circuit.plain), self.terms["instances"], self.most)
        self.run_id = bytes.fromhex(self.terms["session_digest"])
        self.sent: dict[tuple[str, str], list[bytes]] = {}
        self.start = b""
        self.choices: dict[tuple[int, int], int] = {}
        self.setup: bytes = before.setup if before else b""
        self.transfers: ot_twin.Extension | None = before.transfers if before else None
        self.pieces = [0, 0]
        self.streams = [b"", b""]
        self.outputs: list[list[int]] = [[] for _ in self.circuit.plain.outputs]

    # Terms and digests.

    def digest(self, label: str, *parts: bytes) -> bytes:
        """A digest bound to protocol, version, run, start and circuit."""
        return tuple_hash(label, *self.protocol(), self.run_id, self.start, self.circuit.digest(), *parts)

    def protocol(self) -> tuple[bytes, bytes]:
        """What every hash starts with."""
        return self.terms["protocol"].encode(), uint(self.terms["version"])

    def ends(self) -> tuple[bytes, bytes]:
        """The names of garbler and evaluator."""
        return self.garbler.name.encode(), self.evaluator.name.encode()

    def blocks(self) -> list[range]:
        """The instances of each block."""
        size, instances = self.most // self.tile * self.tile, self.terms["instances"]
        return [range(first, min(first + size, instances)) for first in range(0, instances, size)]

    def plan_digest(self) -> bytes:
        """What both sides must cut and assign alike."""
        numbers = (self.terms["instances"], self.tile, len(self.blocks()[0]), K)
        return tuple_hash(
            "pairwise-plan",
            self.circuit.digest(),
            self.terms["mode"].encode(),
            self.terms["output"].encode(),
            *(uint(n) for n in numbers),
            b"".join(uint(index) for index in self.theirs),
        )

    # Messages.

    def control(
        self, sender: Party, to: Party, step: str, *fields: Fields | bytes | int
    ) -> tuple[bytes, bytes]:
        """A signed message; its body and signature."""
        body = pack(fields)
        signature = sign(sender.seed, self.envelope(sender, to, step, body))
        envelope = (self.run_id, step, sender.name, to.name, body, signature)
        self.sent.setdefault((sender.name, to.name), []).append(b"\1" + pack(envelope))
        return body, signature

    def envelope(self, sender: Party, to: Party, step: str, body: bytes) -> bytes:
        """What the signature of a message is of."""
        ends = (step.encode(), sender.name.encode(), to.name.encode())
        return tuple_hash("envelope", *self.protocol(), self.run_id, *ends, hashlib.sha256(body).digest())

    def piece(self, side: int, content: bytes) -> None:
        """A piece, which enters the hash of its side."""
        assert content
        header = b"\2" + bytes([side]) + uint(self.pieces[side]) + uint(len(content))
        self.pieces[side] += 1
        self.streams[side] += header + content
        names = (self.garbler.name, self.evaluator.name)
        self.sent.setdefault((names[side], names[1 - side]), []).append(header + content)

    def value(self) -> bytes:
        """The hash of all pieces so far: those of each side in order, then both."""
        plan = self.plan_digest()
        keys = [self.digest("pairwise-pieces", plan, uint(side)) for side in (GARBLER, EVALUATOR)]
        hashed = [keyed_hash(key, stream) for key, stream in zip(keys, self.streams, strict=True)]
        return self.digest("pairwise-transcript", *hashed)

    # The protocol.

    def execute(self) -> None:
        """Go through the whole run."""
        self._greet()
        if self.theirs and self.transfers is None:
            self._set_up()
        held: list[tuple[int, bytes]] = []
        for number, instances in enumerate(self.blocks()):
            block = self._garble(number, instances)
            colours = [[one.zeros[wire] & 1 for one in block.garbled] for wire in self.circuit.plain.outputs]
            self._finish(block, colours)
            held.append((number, pack_bits(colours)))
        if self.terms["output"] in ("evaluator", "both"):
            for number, packed in held:
                self.control(self.garbler, self.evaluator, "decode", number, packed)
        if self.third:
            for party in (self.garbler, self.evaluator):
                self.control(self.everyone[2], party, "receipt", self.value())

    def _greet(self) -> None:
        for party in self.everyone:
            if self.third:
                party.secret = party.take(32)
                party.key = public_key(party.secret)
            if party is self.garbler:
                self.seed = party.take(32)
            party.nonce = party.take(32)
        plan, circuit = self.plan_digest(), self.circuit.digest()
        for party in self.everyone:
            for other in self.everyone:
                if other is not party:
                    # A third party holds no transfers.
                    forgets = party not in self.everyone[:2] or party.name == self.vector["forgot"]
                    held = None if forgets else self.transfers
                    index = (self.setup, held.next_index) if held else (b"", 0)
                    self.control(party, other, "hello", party.nonce, circuit, plan, party.key, *index)
        self.begin()
        start = self.garbler.take(32)
        for party in self.everyone[1:]:
            self.control(self.garbler, party, "start", start)
        self.start = start
        if self.vector["forgot"]:
            self.transfers = None
        self.keys = self.digest("pairwise-keys", *self.ends())[:16]
        self.open_seed = self.digest("pairwise-open", *self.ends())[:16]

    def begin(self) -> None:
        """The id of the run, by what the hellos say."""
        self.run_id = tuple_hash(
            "run-id",
            *self.protocol(),
            self.run_id,
            uint(self.terms["request"]),
            "\n".join(party.name for party in self.everyone).encode(),
            b"".join(party.nonce for party in self.everyone),
            b"".join(party.key for party in self.everyone),
        )

    def _set_up(self) -> None:
        self.setup = self.digest("pairwise-transfer", *self.ends())
        seeds = self.garbler.take(32), self.evaluator.take(32)
        self.transfers = ot_twin.Extension(self.setup, K, *seeds)
        for side, message in zip((EVALUATOR, GARBLER, EVALUATOR), self.transfers.messages, strict=True):
            self.piece(side, message)

    def bits(self, index: int, instances: range) -> list[list[int]]:
        """The bits of an input value, by wire and instance."""
        owner, indices = (self.evaluator, self.theirs) if index in self.theirs else (self.garbler, self.ours)
        values = self.vector["inputs"][owner.name][indices.index(index)]
        return [[values[n] >> bit & 1 for n in instances] for bit in range(self.circuit.inputs[index])]

    def _garble(self, number: int, instances: range) -> Block:
        """Transfers, labels and tables of a block."""
        setting = garble_twin.Setting(
            self.keys, self.terms["mode"], self.tile, len(instances), instances.start
        )
        zeros, active = self._transfer(instances)
        self._choose(instances, zeros)
        for index in self.ours:
            # The active labels are public; the garbler's bits are in the labels of 0.
            for wire, bits in zip(self.circuit.wires(index), self.bits(index, instances), strict=True):
                for n, bit in zip(instances, bits, strict=True):
                    active[n, wire] = garble_twin.open_label(self.open_seed, n, wire)
                    zeros[n, wire] = active[n, wire] ^ bit * garble_twin.delta(self.seed, n)
        garbled = garble_twin.garble(self.circuit.plain, setting, self.seed, zeros)
        tables = garble_twin.tables(self.circuit.plain, setting, garbled)
        for start in range(0, len(tables), PIECE):
            self.piece(GARBLER, tables[start : start + PIECE])
        block = Block(number, setting, garbled)
        rows = garble_twin.rows_of(self.circuit.plain, setting, tables)
        for n, row in zip(instances, rows, strict=True):
            labels_in = [active[n, wire] for wire in range(self.circuit.plain.n_inputs)]
            keys = garble_twin.keys_of(setting, n)
            block.active.append(garble_twin.evaluate_one(self.circuit.plain, keys, row, labels_in))
        return block

    def _transfer(self, instances: range) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Both parties' labels of the evaluator's inputs, of random choices, by instance and wire."""
        zeros: dict[tuple[int, int], int] = {}
        active: dict[tuple[int, int], int] = {}
        labels = [(n, wire) for index in self.theirs for wire in self.circuit.wires(index) for n in instances]
        drawn = int.from_bytes(self.evaluator.take(-(-len(labels) // 8)) if labels else b"", "little")
        self.choices = {label: drawn >> number & 1 for number, label in enumerate(labels)}
        expected = list(self.choices.items())
        starts = range(0, len(expected), self.limits.transfers)
        pieces = [
            self._chunk(expected[start : start + self.limits.transfers], zeros, active) for start in starts
        ]
        # Each chunk is answered only when so many later ones have begun, if there are so many.
        for begun in range(len(pieces) + self.limits.in_flight):
            answered = begun - self.limits.in_flight
            for number, half in ((answered, slice(2, 4)), (begun, slice(0, 2))):
                if 0 <= number < len(pieces):
                    for side, content in pieces[number][half]:
                        self.piece(side, content)
        return zeros, active

    def _choose(self, instances: range, zeros: dict[tuple[int, int], int]) -> None:
        """The evaluator says where its input is not its choice; the garbler exchanges the labels there."""
        masked: list[int] = []
        for index in self.theirs:
            for wire, bits in zip(self.circuit.wires(index), self.bits(index, instances), strict=True):
                for n, bit in zip(instances, bits, strict=True):
                    masked.append(bit ^ self.choices[n, wire])
                    zeros[n, wire] ^= masked[-1] * garble_twin.delta(self.seed, n)
        if masked:
            self.piece(EVALUATOR, pack_bits([masked]))

    def _chunk(
        self,
        expected: list[tuple[tuple[int, int], int]],
        zeros: dict[tuple[int, int], int],
        active: dict[tuple[int, int], int],
    ) -> list[tuple[int, bytes]]:
        """The four pieces of a chunk of transfers: `expected` has instance and wire, and the choice."""
        transfers = self.transfers
        assert transfers is not None
        chunk = transfers.run([choice for _, choice in expected])
        sent = transfers.pads(chunk.first, chunk.q)
        others = transfers.pads(chunk.first, [ot_twin.xor(row, transfers.delta) for row in chunk.q])
        chosen = transfers.pads(chunk.first, chunk.t)
        corrections = b""
        for ((n, wire), choice), zero, one, pad in zip(expected, sent, others, chosen, strict=True):
            offset = garble_twin.delta(self.seed, n)
            correction = ot_twin.xor(zero, one, octets(offset))
            zeros[n, wire] = int.from_bytes(zero, "little")
            label = ot_twin.xor(pad, correction) if choice else pad
            active[n, wire] = int.from_bytes(label, "little")
            assert active[n, wire] == zeros[n, wire] ^ choice * offset
            corrections += correction
        return [
            (EVALUATOR, chunk.corrections),
            (GARBLER, chunk.challenge),
            (EVALUATOR, chunk.response),
            (GARBLER, corrections),
        ]

    def _finish(self, block: Block, zero_colours: list[list[int]]) -> None:
        """Compare hashes and bring the output to whom it is for."""
        outputs, value, to = self.circuit.plain.outputs, self.value(), self.terms["output"]
        self.control(self.garbler, self.evaluator, "check", block.number, self.pieces[GARBLER], value)
        labels = b"".join(octets(one[wire]) for wire in outputs for one in block.active)
        colours = [[one[wire] & 1 for one in block.active] for wire in outputs]
        shown, proof = b"", b""
        if to in ("garbler", "both"):
            shown = pack_bits(colours)
            hashed = hashlib.sha256(labels).digest()
            proof = self.digest("pairwise-outputs", uint(block.number), hashed)
        self.control(self.evaluator, self.garbler, "confirm", block.number, value, shown, proof)
        if self.third:
            self._show(self.evaluator, "labels", block.number, labels)
            pairs = garble_twin.output_hashes(self.circuit.plain, block.setting, block.garbled)
            hashes = b"".join(octets(label) for row in pairs for pair in row for label in pair)
            self._show(self.garbler, "hashes", block.number, hashes + pack_bits(zero_colours))
            self._check_labels(block, pairs)
        for row, active, zeros in zip(self.outputs, colours, zero_colours, strict=True):
            row += [a ^ z for a, z in zip(active, zeros, strict=True)]

    def _show(self, sender: Party, step: str, block: int, message: bytes) -> None:
        """Send the third party its part of the output."""
        sealed = self.sealed(sender, step, block, message)
        self.control(sender, self.everyone[2], step, block, self.value(), sealed)

    def sealed(self, sender: Party, step: str, block: int, message: bytes) -> bytes:
        """What only the third party can read."""
        aggregator = self.everyone[2]
        ends = (sender.name.encode(), aggregator.name.encode())
        key = agree(sender.secret, aggregator.key, self.run_id, self.digest("seal-key", *ends))
        associated = self.digest("seal-aad", *ends, step.encode(), uint(block))
        return seal(key, sender.take(24), message, associated)

    def _check_labels(self, block: Block, pairs: list[list[list[int]]]) -> None:
        """What the third party checks of each output label."""
        for index, wire in enumerate(self.circuit.plain.outputs):
            for n, one, pair in zip(block.setting.instances(), block.active, pairs[index], strict=True):
                key = block.setting.key(n, garble_twin.OUTPUT_HASH + index)
                assert garble_twin.hash_label(one[wire], key) == pair[one[wire] & 1]

    def values(self) -> list[list[int]]:
        """The output values, by value and instance."""
        starts = [0, *accumulate(self.circuit.outputs)]
        return [
            [
                sum(bit << i for i, bit in enumerate(bits))
                for bits in zip(*self.outputs[low:high], strict=True)
            ]
            for low, high in pairwise(starts)
        ]
