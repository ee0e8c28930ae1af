"""Counted floor of a covert evaluation: the work that no pair of λ copies can leave out, measured here.

Each part is done as often as the protocol requires it, by the product's own code, and is timed alone; the
floor is the sum over both sides:

- the seed transfer: λ base transfers in one batch;
- the transfers of λ copies at both sides: a copy has a setup of its own, of which the base transfers are the
  greatest share. Both sides hash each message once;
- λ copies garbled, from the labels of their transfers and coins, with the hashes of corrections, tables,
  label list and decoding;
- λ - 1 copies made again by the evaluator: the garbler's part of their transfers, from what the evaluator
  has of them, then garbled and hashed;
- the closed copy opened by the garbler, evaluated, and the hashes of what the evaluator gets;
- the hash of all pieces, at both sides;
- the output labels, and what decodes them, sealed for the aggregator;
- the signed messages of both sides, and those that they check. Garbler: two hellos, two starts, statement,
  check and decoding for the aggregator; it checks two hellos, commitments, opened seeds, confirmation and
  receipt. Evaluator: two hellos, commitments, opened seeds, confirmation and labels for the aggregator; it
  checks two hellos, start, statement, check and receipt.
- every piece and signed message encrypted, sent, received and decrypted once, on a connected socket.

It lacks connecting, waits and threads, derivations, and what Python does for a message. Nothing is counted
that only our code does: no copy of a table, and no message hashed twice for the same purpose.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

from smpc_dp.capabilities.pairs.garbled.messages import TABLE_PIECE
from smpc_dp.capabilities.pairs.garbled.plan import COVERT_FIELD, Plan, pack_bits
from smpc_dp.crypto.agree import agree, public_key
from smpc_dp.crypto.garble import LABEL_BYTES, Bytes, Evaluator, Garbler, Run, opened_list
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import BaseSender, Deviation, Receiver, Sender, base_respond
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.crypto.seal import seal
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest
from smpc_dp.identity.keys import Identity, verify
from smpc_dp_lab.bench.wire import Wire

# Signed messages of both sides, and those that they check; as many are received.
_SIGNED, _CHECKED = 13, 12
_SIGNED_BYTES = 256

T = TypeVar("T")


def floor_seconds(plan: Plan) -> Mapping[str, float]:
    """Return the processor time of each part, of both sides together, each done as often as required."""
    with Wire() as wire:
        floor = _Floor(plan, wire)
        floor.run()
    return floor.spent


class _Floor:
    """The unavoidable work of a covert evaluation, done step by step, with each step's processor time."""

    def __init__(self, plan: Plan, wire: Wire) -> None:
        self._plan = plan
        self._wire = wire
        self._run: Run = plan.garbling(next(plan.blocks()), bytes(16))
        self._count = plan.parameters.instances * plan.width(plan.evaluator_values)
        self._wires = plan.wires((*plan.given(plan.garbler_values), *plan.given(plan.evaluator_values)))
        self._masks = plan.width(plan.given(plan.evaluator_values))
        coins = plan.wires(plan.random(plan.garbler_values))
        self._coins = coins, np.zeros((len(coins), self._run.n_instances), np.uint8)
        self._identity = Identity.generate("signer")
        # Both sides hash the pieces of both.
        self._pieces = StreamHash(bytes(32)), StreamHash(bytes(32))
        self.spent: dict[str, float] = {}

    def run(self) -> None:
        """Do all the work of one covert evaluation, and add up the processor time of each step."""
        copies = self._plan.parameters.covert
        self._timed("seeds", self._seeds, copies)
        closed: tuple[Garbler, Bytes, list[Bytes]] | None = None
        for number in range(copies):
            seed = secrets.token_bytes(32)
            pads, receiver = self._transfers(seed)
            # The closed copy is that whose tables are stored.
            made = self._timed("garbles", self._garble, pads, True)
            if number:
                self._check(seed, receiver)
            else:
                closed = made
        if closed is not None:
            self._evaluate(*closed)
        self._timed("signs", self._sign)
        for _ in range(_CHECKED):
            self._carry(bytes(_SIGNED_BYTES))
        outputs = bytes(self._run.n_instances * self._plan.circuit.n_outputs * LABEL_BYTES)
        # Of each output the label, and both hashes.
        for content in (outputs, 2 * outputs):
            self._timed("seals", self._seal, content)

    def _timed(self, part: str, call: Callable[..., T], *arguments: Any) -> T:
        began = time.process_time()
        result = call(*arguments)
        self.spent[part] = self.spent.get(part, 0.0) + time.process_time() - began
        return result

    def _seeds(self, copies: int) -> None:
        """Transfer the copies' seeds obliviously, as both sides."""
        sender = BaseSender("receiver", bytes(32), bytes(32))
        choices = [number == 0 for number in range(copies)]
        response, _ = base_respond("sender", bytes(32), bytes(32), choices, sender.first)
        sender.keys(copies, response)

    def _transfers(self, seed: bytes) -> tuple[Bytes, Receiver]:
        """Do the transfers of one copy, timed; return both pads of each, and the receiver.

        Return both pads, and the evaluator's side.
        """
        timed, count = self._timed, self._count
        sender = timed("sends", Sender, "receiver", bytes(32), seed, COVERT_FIELD)
        receiver = timed(
            "receives", partial(Receiver, record=True), "sender", bytes(32), seed[::-1], COVERT_FIELD
        )
        first = timed("receives", receiver.first_message)
        base = timed("sends", sender.respond, first)
        trees = timed("receives", receiver.finish_setup, base)
        timed("sends", sender.finish_setup, trees)
        extension = timed("receives", receiver.extend, count, pack_bits(np.zeros(count, np.uint8)))
        challenge = timed("sends", sender.challenge, count, extension)
        response, _ = timed("receives", receiver.random, challenge)
        pads = np.empty((2, count, LABEL_BYTES), np.uint8)
        timed("sends", sender.random, response, pads)
        for message in (first, base, trees, extension, challenge, response):
            for side in ("sends", "receives"):
                timed(side, _hash, message)
            self._piece(message)
        return pads, receiver

    def _piece(self, content: bytes | memoryview) -> None:
        """Carry a piece of a message between the sides, and hash it at each side."""
        self._carry(content)
        for side in self._pieces:
            self._timed("pieces", side.update, content)

    def _carry(self, content: bytes | memoryview) -> None:
        """Send bytes over a local TLS connection from one side to the other, and time it."""
        sent = np.frombuffer(content, np.uint8)
        self._timed("channel", self._wire.carry, sent, np.empty_like(sent))

    def _garble(self, pads: Bytes, stored: bool = False) -> tuple[Garbler, Bytes, list[Bytes]]:
        """Garble a copy with all its hashes; return the garbler, the masks' pads and the tables if stored."""
        plan, run = self._plan, self._run
        garbler, hashed = Garbler(plan.compiled, run, bytes(32)), StreamHash(bytes(32))
        garbler.open_inputs(*self._coins, bytes(16))
        rows = pads[0].reshape(-1, run.n_instances, LABEL_BYTES)
        for value, given in plan.by_value(plan.evaluator_values, rows):
            if value in plan.parameters.random_inputs:
                garbler.set_zero_labels(plan.first_wire(value), given)
        garbler.correct(pads)
        _hash(pads[1].data.cast("B"))
        total, tables, start = plan.compiled.table_bytes(run.n_instances), list[Bytes](), 0
        room = np.empty(total if stored else min(TABLE_PIECE, total), np.uint8)
        while size := garbler.fill(piece := room[start : start + TABLE_PIECE]):
            hashed.update(piece[:size].data)
            if stored:
                tables.append(piece[:size])
                start += size
        hashed.digest()
        masks = rows[: self._masks]
        garbler.list_digest(self._wires, masks, bytes(16), bytes(32))
        colours = pack_bits(garbler.output_colours())
        digest(Label.COVERT_DECODING, bytes(32), garbler.output_hashes().tobytes() + colours)
        return garbler, masks, tables

    def _check(self, seed: bytes, receiver: Receiver) -> None:
        """Recompute the garbler's part of a checked copy from its seed, as the evaluator does."""

        def check() -> None:
            made = receiver.remake(seed)
            if isinstance(made, Deviation):
                raise RuntimeError(f"{made}: not that of the seed")
            self._garble(made)

        self._timed("checks", check)

    def _evaluate(self, garbler: Garbler, masks: Bytes, tables: list[Bytes]) -> None:
        """Open the labels of the closed copy, check its messages, and evaluate its tables."""
        plan, run = self._plan, self._run
        bits = np.zeros((len(self._wires), run.n_instances), np.uint8)
        opened = self._timed("opens", garbler.open_list, self._wires, masks, bytes(16), bits)
        corrections = bytes(LABEL_BYTES * self._count)

        def evaluate() -> None:
            content = np.frombuffer(opened, np.uint8).reshape(-1, run.n_instances, 2 * LABEL_BYTES)
            opened_list(content, bits[: self._masks], run, bytes(32))
            _hash(corrections)
            evaluator, hashed = Evaluator(plan.compiled, run), StreamHash(bytes(32))
            evaluator.set_input_labels(0, labels)
            for piece in tables:
                hashed.update(piece.data)
                evaluator.feed(piece.data)
            hashed.digest()

        labels = np.zeros((plan.circuit.n_inputs, run.n_instances, LABEL_BYTES), np.uint8)
        self._timed("evaluates", evaluate)
        for piece in (corrections, opened):
            self._piece(piece)
        for table in tables:
            self._piece(table.data)

    def _sign(self) -> None:
        """Make and verify as many signatures as one evaluation needs."""
        message = bytes(32)
        for _ in range(_SIGNED):
            signature = self._identity.sign(message)
        for _ in range(_CHECKED):
            verify(self._identity.public_key, message, signature)

    def _seal(self, content: bytes) -> None:
        """Derive a key with the aggregator by Diffie-Hellman, and encrypt content under it."""
        randomness = SystemRandomness()
        secret = randomness.bytes(32)
        key = agree(secret, public_key(secret), salt=bytes(32), info=bytes(32))
        seal(key, content, bytes(32), randomness)


def _hash(content: bytes | memoryview) -> None:
    hashed = StreamHash(bytes(32))
    hashed.update(content)
    hashed.digest()
