"""Counted floor of a covert evaluation: the work that no pair of λ copies can leave out, measured here.

Each part is done as often as the protocol requires it, by the product's own code, and is timed alone; the
floor is the sum over both sides:

- the seed transfer: λ base transfers in one batch;
- the transfers of λ copies at both sides: a copy has a setup of its own, of which the base transfers are the
  greatest share. Both sides hash each message once;
- λ copies garbled, from the labels of their transfers and coins, with the hashes of corrections, tables,
  label list and decoding;
- λ - 1 copies made again by the evaluator: the garbler's part of their transfers, then garbled and hashed;
- the closed copy opened by the garbler, evaluated, and the hashes of what the evaluator gets;
- three signatures, made and checked: of the evaluator's commitments, the statement and the opened seeds.

It lacks the channel (TLS, sockets, threads), the hash of all pieces, the other signed messages (hellos,
start, check, confirmation, what goes to the aggregator), seals, derivations, and what Python does for a
message.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from smpc_dp.crypto.garble import LABEL_BYTES, Bytes, Evaluator, Garbler, Run, opened_list
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import BaseSender, Receiver, Sender, base_respond
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest
from smpc_dp.identity.keys import Identity, verify
from smpc_dp.protocols.garbled.messages import TABLE_PIECE
from smpc_dp.protocols.garbled.plan import COVERT_FIELD, Plan, pack_bits

_SIGNATURES = 3

T = TypeVar("T")


def floor_seconds(plan: Plan) -> Mapping[str, float]:
    """Return the processor time of each part, of both sides together, each done as often as required."""
    floor = _Floor(plan)
    floor.run()
    return floor.spent


class _Floor:
    """The work, and the time of each part so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._run: Run = plan.garbling(next(plan.blocks()), bytes(16))
        self._count = plan.parameters.instances * plan.width(plan.evaluator_values)
        self._wires = plan.wires((*plan.given(plan.garbler_values), *plan.given(plan.evaluator_values)))
        self._masks = plan.width(plan.given(plan.evaluator_values))
        coins = plan.wires(plan.random(plan.garbler_values))
        self._coins = coins, np.zeros((len(coins), self._run.n_instances), np.uint8)
        self._identity = Identity.generate("signer")
        self.spent: dict[str, float] = {}

    def run(self) -> None:
        """Do everything once."""
        copies = self._plan.parameters.covert
        self._timed("seeds", self._seeds, copies)
        closed: tuple[Garbler, Bytes, list[Bytes]] | None = None
        for number in range(copies):
            seed = secrets.token_bytes(32)
            pads, messages = self._transfers(seed)
            # The closed copy is that whose tables are stored.
            made = self._timed("garbles", self._garble, pads, True)
            if number:
                self._check(seed, messages)
            else:
                closed = made
        if closed is not None:
            self._evaluate(*closed)
        self._timed("signs", self._sign)

    def _timed(self, part: str, call: Callable[..., T], *arguments: Any) -> T:
        began = time.process_time()
        result = call(*arguments)
        self.spent[part] = self.spent.get(part, 0.0) + time.process_time() - began
        return result

    def _seeds(self, copies: int) -> None:
        """Make the seed transfer."""
        sender = BaseSender("receiver", bytes(32), bytes(32))
        choices = [number == 0 for number in range(copies)]
        response, _ = base_respond("sender", bytes(32), bytes(32), choices, sender.first)
        sender.keys(copies, response)

    def _sender(self, seed: bytes) -> Sender:
        return Sender("receiver", bytes(32), seed, COVERT_FIELD)

    def _transfers(self, seed: bytes) -> tuple[Bytes, tuple[bytes, bytes, bytes, bytes]]:
        """Make the transfers of a copy, and hash their messages at both sides.

        Return both pads, and the evaluator's messages.
        """
        timed, count = self._timed, self._count
        sender = timed("sends", self._sender, seed)
        receiver = timed("receives", Receiver, "sender", bytes(32), seed[::-1], COVERT_FIELD)
        first = timed("receives", receiver.first_message)
        base = timed("sends", sender.respond, first)
        trees = timed("receives", receiver.finish_setup, base)
        timed("sends", sender.finish_setup, trees)
        extension = timed("receives", receiver.extend, count, pack_bits(np.zeros(count, np.uint8)))
        challenge = timed("sends", sender.challenge, count, extension)
        response, _ = timed("receives", receiver.random, challenge)
        pads = np.empty((2, count, LABEL_BYTES), np.uint8)
        timed("sends", sender.random, response, pads)
        for side in ("sends", "receives"):
            for message in (first, base, trees, extension, challenge, response):
                timed(side, _hash, message)
        return pads, (first, trees, extension, response)

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

    def _check(self, seed: bytes, messages: tuple[bytes, bytes, bytes, bytes]) -> None:
        """Make the garbler's part of a checked copy again."""
        first, trees, extension, response = messages
        pads = np.empty((2, self._count, LABEL_BYTES), np.uint8)

        def check() -> None:
            sender = self._sender(seed)
            sender.respond(first)
            sender.finish_setup(trees)
            sender.challenge(self._count, extension)
            sender.random(response, pads)
            self._garble(pads)

        self._timed("checks", check)

    def _evaluate(self, garbler: Garbler, masks: Bytes, tables: list[Bytes]) -> None:
        """Open the closed copy, check its messages, and evaluate it."""
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

    def _sign(self) -> None:
        """Make and check the signatures."""
        message = bytes(32)
        for _ in range(_SIGNATURES):
            verify(self._identity.public_key, message, self._identity.sign(message))


def _hash(content: bytes | memoryview) -> None:
    hashed = StreamHash(bytes(32))
    hashed.update(content)
    hashed.digest()
