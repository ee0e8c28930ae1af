"""Whole evaluations that are secure against both sides, from their specification alone.

`active_twin` computes, `pairs_twin` has what the protocols share, and nothing of the library is used.
`Evaluation.execute` makes every message and result of a published run out of its inputs and random bytes.
With a published fault it raises `active_twin.Stopped` of the member that the fault comes to, with the check.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify.encodings import tuple_hash, uint
from tests.reference import active_twin, ot_twin, pairs_twin
from tests.reference.active_twin import SIDES, ZERO, E, G, Shared, Stopped, octets, word
from tests.reference.garble_twin import AND
from tests.reference.pairs_twin import Party
from tests.reference.secagg_twin import Fields, agree, public_key, unseal

LIMITS = pairs_twin.Limits()
PENDING = 4
AGGREGATOR = 2
DIGEST = 32
# The fields of the body of each signed message.
BODIES: dict[str, tuple[type, ...]] = {
    "hello": (bytes, bytes, bytes, bytes, bytes, int, bytes, int, int, int),
    "start": (bytes,),
    "commit": (int, bytes, bytes),
    "equal": (int, bytes, bytes),
    "coin": (int, bytes),
    "macs": (int, bytes, bytes),
    "outputs": (int, bytes, bytes),
    "shares": (bytes, bytes),
    "chi": (bytes,),
    "opening": (bytes, bytes, bytes),
    "opened": (bytes, bytes),
}


@lru_cache(4)
def setups_of(
    bound: tuple[bytes, ...], seeds: tuple[tuple[bytes, bytes], tuple[bytes, bytes]], k: int
) -> active_twin.Transfers:
    """Both setups: those of a run are needed again for each of its faults."""
    return active_twin.Transfers(bound, seeds, k)


def bit_of(side: int, bit: int, mac: int, key: int) -> Shared:
    """An authenticated bit of one side."""
    return Shared((bit, 0), (mac, 0), (0, key)) if side == G else Shared((0, bit), (0, mac), (key, 0))


class Block(active_twin.Evaluation):
    """The one block of an evaluation; what a side sends becomes a message, and is read from what arrives."""

    run_of: Evaluation

    def authenticated(self, counts: Sequence[int]) -> list[Shared]:
        """The triples are a sequence of transfers, and the masks another."""
        thirds = 3 * self.l * self.B
        sequences = [[thirds, thirds]] * bool(thirds) + [[count - thirds for count in counts]]
        return self.run_of.transfer(sequences)

    def check(self, side: int, name: str, holds: bool) -> None:
        self.run_of.require(side, holds, name)

    def drawn(self, side: int) -> bytes:
        return self.run_of.everyone[side].take(32)

    def send(self, step: str, side: int, value: Any) -> Any:
        self.sent[step, side] = getattr(self.run_of, f"send_{step.lower()}")(side, value)
        return self.sent[step, side]


class Evaluation(pairs_twin.Evaluation):
    """Plays a published run. `before` is the run that the same two have played before."""

    def __init__(
        self, vector: dict[str, Any], before: Evaluation | None = None, fault: dict[str, Any] | None = None
    ) -> None:
        super().__init__(vector, LIMITS)
        self.k: int = self.terms["k"]
        self.coins: list[int] = self.terms["random_inputs"]
        self.both: active_twin.Transfers | None = before.both if before else None
        self.counters: tuple[int, int] = before.counters if before else (0, 0)
        self.fault = fault
        self.arrived: dict[str, int] = {}
        self.transcripts: list[bytes] = []

    # Terms.

    def blocks(self) -> list[range]:
        """Of as many instances as have 2^16 AND gates together, and 2^20 inputs, outputs and slots."""
        plain = self.circuit.plain
        widest = max(1, plain.n_inputs, len(plain.outputs), pairs_twin.slots(plain))
        ands = sum(gate.op == AND for gate in plain.gates)
        size = max(1, min((1 << 20) // widest, (1 << 16) // max(1, ands)))
        instances = self.terms["instances"]
        return [range(first, min(first + size, instances)) for first in range(0, instances, size)]

    def plan_digest(self) -> bytes:
        """That of two-party evaluation, with k and the coins."""
        coins = b"".join(uint(index) for index in self.coins)
        return tuple_hash("active-plan", super().plan_digest(), uint(self.k), coins)

    def given(self, indices: Sequence[int]) -> list[int]:
        """Those of the input values that are no coin."""
        return [index for index in indices if index not in self.coins]

    def bits(self, index: int, instances: range) -> list[list[int]]:
        """The bits of a given input value, by wire and instance."""
        owner, indices = (self.evaluator, self.theirs) if index in self.theirs else (self.garbler, self.ours)
        values = self.vector["inputs"][owner.name][self.given(indices).index(index)]
        return [[values[n] >> bit & 1 for n in instances] for bit in range(self.circuit.inputs[index])]

    # Messages, and how they are read.

    def control(self, sender: Party, to: Party, step: str, *fields: Fields | bytes | int) -> Any:
        """Send a signed message; the fields that arrive."""
        super().control(sender, to, step, *fields)
        data = self.deliver(sender, to)
        return fields if data is None else self.read(sender, to, step, data)

    def deliver(self, sender: Party, to: Party) -> bytes | None:
        """What arrives in place of the message that was sent last; None for the message itself."""
        number = self.arrived.get(to.name, 0)
        self.arrived[to.name] = number + 1
        if self.fault is None or (to.name, number) != (self.fault["receiver"], self.fault["after"]):
            return None
        assert sender.name == self.fault["message"]["sender"]
        return bytes.fromhex(self.fault["message"]["bytes"])

    def read(self, sender: Party, to: Party, step: str, data: bytes) -> list[Any]:
        """The fields of a signed message, all of which is checked."""
        side = self.everyone.index(to)
        self.require(side, data[:1] == b"\1", "order")
        envelope = self.decoded(side, data[1:], list[Any])
        self.require(
            side, [type(one) for one in envelope] == [bytes, str, str, str, bytes, bytes], "decoding"
        )
        run_id, claimed, origin, receiver, body, signature = envelope
        self.require(side, (origin, receiver) == (sender.name, to.name), "envelope")
        held = self.run_id
        self.run_id = run_id
        statement = self.envelope(sender, to, claimed, body)
        self.run_id = held
        key = bytes.fromhex(self.vector["identities"][sender.name]["public_key"])
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
        except InvalidSignature:
            raise Stopped(side, "envelope") from None
        self.require(side, claimed != "abort", "abort")
        self.require(side, (claimed, run_id) == (step, self.run_id), "order")
        fields: list[Any] = self.decoded(side, body, list[Any])
        self.require(side, tuple(map(type, fields)) == BODIES[step], "decoding")
        return fields

    def decoded(self, side: int, data: bytes, kind: Any) -> Any:
        """MessagePack in its one encoding."""
        try:
            value = msgspec.msgpack.decode(data, type=kind)
        except (msgspec.MsgspecError, ValueError):
            raise Stopped(side, "decoding") from None
        self.require(side, msgspec.msgpack.encode(value) == data, "decoding")
        return value

    def require(self, side: int, holds: bool, check: str) -> None:
        """Stop the member whose check fails; with a fault only the one that it comes to can."""
        if not holds and (self.fault is None or self.everyone[side].name == self.fault["receiver"]):
            raise Stopped(side, check)

    def content(self, side: int, content: bytes) -> bytes:
        """Send a content to the other side, in pieces; what arrives."""
        arrived = b""
        for first in range(0, len(content), pairs_twin.PIECE):
            part = content[first : first + pairs_twin.PIECE]
            header = b"\2" + bytes([side]) + uint(self.pieces[side])
            self.piece(side, part)
            data = self.deliver(self.everyone[side], self.everyone[1 - side])
            if data is not None:
                size = len(data) - 18
                self.require(1 - side, data[:18] == header + uint(size) and size <= len(part), "framing")
                self.require(1 - side, size == len(part), "format")
                part = data[18:]
            arrived += part
        return arrived

    def unpacked(self, receiver: int, data: bytes, count: int) -> list[int]:
        """Bits of a content, which has no others."""
        bits = ot_twin.bits(data)
        self.require(receiver, len(data) == -(-count // 8) and not any(bits[count:]), "format")
        return bits[:count]

    # What the block sends.

    def send_u(self, side: int, value: list[int]) -> list[int]:
        arrived = self.content(side, b"".join(map(octets, value)))
        return [word(arrived[i : i + 16]) for i in range(0, len(arrived), 16)]

    def send_bits(self, side: int, bits: list[int]) -> list[int]:
        return self.unpacked(1 - side, self.content(side, ot_twin.pack(bits)), len(bits))

    send_d = send_inputs = send_bits

    def send_told(self, side: int, value: tuple[list[int], bytes]) -> tuple[list[int], bytes]:
        """Bits and a digest."""
        bits, digest = value
        arrived = self.content(side, ot_twin.pack(bits) + digest)
        return self.unpacked(1 - side, arrived[:-DIGEST], len(bits)), arrived[-DIGEST:]

    send_differences = send_openings = send_masked = send_told

    def send_tables(self, side: int, tables: dict[tuple[int, int], Any]) -> dict[tuple[int, int], Any]:
        places = list(self.block.places())
        halves = [
            (j, half, n)
            for j in range(len(self.block.gates))
            for half in range(2)
            for n in range(self.block.instances)
        ]
        rows = b"".join(octets(tables[j, n][half]) for j, half, n in halves)
        arrived = self.content(side, rows + ot_twin.pack([tables[place][2] for place in places]))
        at = {place: word(arrived[16 * i : 16 * i + 16]) for i, place in enumerate(halves)}
        bits = self.unpacked(1 - side, arrived[len(rows) :], len(places))
        return {(j, n): (at[j, 0, n], at[j, 1, n], bit) for (j, n), bit in zip(places, bits, strict=True)}

    def to_other(self, side: int, step: str, *fields: bytes | int) -> list[Any]:
        return self.control(self.everyone[side], self.everyone[1 - side], step, *fields)  # type: ignore[no-any-return]

    def numbered(self, side: int, step: str, *fields: bytes) -> list[Any]:
        """A message of the group or block 0."""
        number, *rest = self.to_other(side, step, 0, *fields)
        self.require(1 - side, number == 0, "format")
        return rest

    def send_commit(self, side: int, value: tuple[bytes, bytes]) -> tuple[bytes, ...]:
        return tuple(self.numbered(side, "commit", *value))

    def send_equal(self, side: int, value: tuple[bytes, bytes]) -> tuple[bytes, ...]:
        return tuple(self.numbered(side, "equal", *value))

    def send_coin(self, side: int, seed: bytes) -> bytes:
        return bytes(self.numbered(side, "coin", seed)[0])

    def send_macs(self, side: int, digest: bytes) -> bytes:
        arrived, transcript = self.numbered(side, "macs", digest, self.value())
        self.transcripts.append(transcript)
        return bytes(arrived)

    def send_output(self, side: int, value: tuple[list[int], bytes]) -> tuple[list[int], bytes]:
        bits, digest = value
        packed, arrived = self.numbered(side, "outputs", ot_twin.pack(bits), digest)
        return self.unpacked(1 - side, packed, len(bits)), arrived

    def send_shares(self, side: int, value: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
        sender, aggregator = self.everyone[side], self.everyone[AGGREGATOR]
        sealed = self.sealed(sender, "shares", 0, ot_twin.pack(value[0]) + ot_twin.pack(value[1]))
        transcript, arrived = self.control(sender, aggregator, "shares", self.value(), sealed)
        ends = (sender.name.encode(), aggregator.name.encode())
        key = agree(sender.secret, aggregator.key, self.run_id, self.digest("seal-key", *ends))
        associated = self.digest("seal-aad", *ends, b"shares", uint(0))
        try:
            packed = unseal(key, arrived, associated)
        except ValueError:
            raise Stopped(AGGREGATOR, "seal") from None
        self.require(AGGREGATOR, transcript == self.value(), "transcript")
        shares = self.unpacked(AGGREGATOR, packed[:-8], len(value[0]))
        return shares, self.unpacked(AGGREGATOR, packed[-8:], 64)

    def send_opening(self, side: int, value: tuple[int, bytes]) -> tuple[int, bytes]:
        told = value[0].to_bytes(8, "little")
        chi, opening, digest = self.to_other(side, "opening", self.chi[side], told, value[1])
        self.require(1 - side, chi == self.chi[1 - side], "chi")
        return word(opening), digest

    def send_opened(self, side: int, value: int) -> int:
        sender, aggregator = self.everyone[side], self.everyone[AGGREGATOR]
        told = value.to_bytes(8, "little")
        chi, opening = self.control(sender, aggregator, "opened", self.chi[side], told)
        self.require(AGGREGATOR, chi == self.chi[AGGREGATOR], "opened")
        return word(opening)

    # The run.

    def execute(self) -> None:
        """Go through the whole run."""
        self.greet()
        if self.both is None:
            self.set_up()
        self.evaluate()
        self.give_outputs()

    def greet(self) -> None:
        """Hellos, the run id and the start."""
        for party in self.everyone:
            if self.third:
                party.secret = party.take(32)
                party.key = public_key(party.secret)
            party.nonce = party.take(32)
        agreed = self.circuit.digest(), self.plan_digest()
        for party in self.everyone:
            for other in self.everyone:
                if other is not party:
                    shown = self.control(
                        party, other, "hello", party.nonce, *agreed, party.key, *self.held(party)
                    )
                    self.require(self.everyone.index(other), tuple(shown[1:3]) == agreed, "agreement")
        self.begin()
        self.start = self.garbler.take(32)
        for party in self.everyone[1:]:
            self.control(self.garbler, party, "start", self.start)
        if self.vector["forgot"]:
            self.both, self.counters = None, (0, 0)

    def held(self, party: Party) -> list[bytes | int]:
        """What a hello says of both setups: their contexts and next indices, and both counters."""
        if self.both is None or party.name == self.vector["forgot"] or party not in self.everyone[:2]:
            return [b"", 0, b"", 0, 0, 0]
        setups = self.both.setups
        return [value for one in setups for value in (one.caller_context, one.next_index)] + [*self.counters]

    def set_up(self) -> None:
        """Both setups side by side."""
        own = [(party.take(32), party.take(32)) for party in self.everyone[:2]]
        seeds = ((own[G][0], own[E][1]), (own[E][0], own[G][1]))
        self.both = copy.deepcopy(setups_of(self.bound(), seeds, self.k))
        setups = self.both.setups
        for step in range(3):
            for side in SIDES:
                # Of the three messages the sender of a setup sends the second alone.
                setup = setups[side if step == 1 else 1 - side]
                arrived = self.content(side, setup.messages[step])
                if arrived != setup.messages[step]:
                    self.check_transfer(1 - side, self.checks_of(setup)[step], arrived)

    def checks_of(self, setup: active_twin.Setup) -> list[Callable[[bytes], Any]]:
        """What the receiver of each message of a setup does with it."""
        k, size = setup.k, len(setup.messages[2]) // len(setup.trees)

        def puncture(trees: bytes) -> None:
            for d, digit in enumerate(setup.digits):
                point = sum(bit << b for b, bit in enumerate(digit))
                keys = setup.received[d * k : d * k + k]
                ot_twin.puncture(setup.context, k, d, point, keys, trees[size * d : size * d + size])

        return [setup.base.answer, lambda _: None, puncture]

    def check_transfer(self, side: int, check: Callable[[bytes], Any], arrived: bytes) -> None:
        """Stop the side whose check of transfers fails."""
        try:
            check(arrived)
        except ValueError:
            raise Stopped(side, "transfer") from None

    def transfer(self, sequences: Sequence[Sequence[int]]) -> list[Shared]:
        """Sequences of transfers of both directions: so many bits of each side in each."""
        assert self.both is not None
        setups, shared = self.both.setups, []
        chunks: list[list[ot_twin.Chunk]] = [[], []]
        for counts in sequences:
            alone: list[list[Shared]] = [[], []]
            for side, count in zip(SIDES, counts, strict=True):
                bits = ot_twin.bits(self.everyone[side].take(-(-count // 8)))[:count]
                for first in range(0, count, LIMITS.transfers):
                    chunk = setups[1 - side].run(bits[first : first + LIMITS.transfers])
                    chunks[side].append(chunk)
                    rows = zip(bits[first:], chunk.t, chunk.q, strict=False)
                    alone[side] += [bit_of(side, bit, word(mac), word(key)) for bit, mac, key in rows]
            shared += [a + b for a, b in zip_longest(*alone, fillvalue=ZERO)]
        for first in range(0, max(map(len, chunks)), PENDING):
            pending = [part[first : first + PENDING] for part in chunks]
            for side, name in [(u, name) for name in ("corrections", "challenge", "response") for u in SIDES]:
                # The challenge comes from the setup's sender.
                for chunk in pending[1 - side if name == "challenge" else side]:
                    message = getattr(chunk, name)
                    arrived = self.content(side, message)
                    if arrived != message and name == "response":
                        self.check_response(side, chunk, arrived)
        return shared

    def check_response(self, side: int, chunk: ot_twin.Chunk, arrived: bytes) -> None:
        """The check of a response of `side` that is not that of the run."""
        assert self.both is not None
        setup = self.both.setups[1 - side]
        self.check_transfer(
            1 - side, lambda data: setup.check(chunk.challenge[8:], data, chunk.columns), arrived
        )

    def evaluate(self) -> None:
        """The block, up to the last check."""
        assert self.both is not None
        instances = range(self.terms["instances"])
        assert self.blocks() == [instances]
        inputs = []
        for indices in (self.ours, self.theirs):
            wires = [wire for index in self.given(indices) for wire in self.circuit.wires(index)]
            rows = [row for index in self.given(indices) for row in self.bits(index, instances)]
            inputs.append(dict(zip(wires, rows, strict=True)))
        self.block = Block(
            self.circuit.plain,
            (inputs[G], inputs[E]),
            [wire for index in self.coins for wire in self.circuit.wires(index)],
            self.both,
            active_twin.seeded("not used"),
            self.bound(),
            self.both.start,
            first_triple=self.counters[0],
            first_gate=self.counters[1],
            hiding_bits=64 * self.third,
            instances=len(instances),
        )
        self.block.run_of = self
        self.block.run()
        [transcript] = self.transcripts
        self.require(E, transcript == self.value(), "transcript")
        triples, gates = self.counters
        self.counters = (
            triples + self.block.l * self.block.B,
            gates + len(self.block.gates) * len(instances),
        )

    def bound(self) -> tuple[bytes, ...]:
        """What every hash of the run begins with."""
        return (*self.protocol(), self.run_id, self.start, self.circuit.digest())

    def give_outputs(self) -> None:
        """To whom the output is for, the evaluator first."""
        to, bits = self.terms["output"], []
        for side, name in ((E, "evaluator"), (G, "garbler")):
            if to in (name, "both"):
                bits = self.block.output_to(side)
        if self.third:
            aggregator = self.everyone[AGGREGATOR]
            chi = aggregator.take(32)
            self.chi = [self.control(aggregator, party, "chi", chi)[0] for party in self.everyone[:2]] + [chi]
            try:
                bits = self.block.output_to_aggregator(chi)
            except ValueError:
                raise Stopped(AGGREGATOR, "opened") from None
        n = self.terms["instances"]
        self.outputs = [bits[first : first + n] for first in range(0, len(bits), n)]
