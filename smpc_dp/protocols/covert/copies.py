"""One copy of a covert evaluation: each side is a function of its seed and of the other's messages."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from smpc_dp.crypto.garble import Bytes, Evaluator, Garbler
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.memory import working_memory
from smpc_dp.crypto.ot import Receiver, Sender
from smpc_dp.crypto.prg import expand
from smpc_dp.errors import Check, VerificationError
from smpc_dp.protocols.covert import terms as t
from smpc_dp.protocols.covert.terms import Terms
from smpc_dp.protocols.garbled.messages import LABEL_BYTES, TABLE_PIECE
from smpc_dp.protocols.garbled.plan import COVERT_FIELD, Bits, pack_bits

HASH_BYTES = 16
OPENED_BYTES = LABEL_BYTES + HASH_BYTES
"""Of each label of the list: the active label, and the hash of its sibling."""


def check_labels(terms: Terms, copy: int, content: bytes | memoryview, masked: Bits, signed: bytes) -> Bytes:
    """Return the active labels of a copy's label list, shape (labels, 16), of the garbler's message.

    `masked` are the evaluator's masked inputs, one bit each. Raises VerificationError unless the hashes of
    the labels and those of their siblings give the signed digest.
    """
    opened = np.frombuffer(content, np.uint8).reshape(-1, OPENED_BYTES)
    labels = np.ascontiguousarray(opened[:, :LABEL_BYTES])
    choices = np.concatenate([labels[: len(labels) - masked.size, 0] & 1, masked.reshape(-1)])
    hashes = np.stack([terms.label_hashes(copy, labels), opened[:, LABEL_BYTES:]], axis=1)
    ordered = np.where(choices[:, None, None] == 1, hashes[:, ::-1], hashes)
    if not hmac.compare_digest(terms.hash(copy, t.LABELS, ordered.tobytes()), signed):
        reason = f"its labels of copy {copy} are not those that it signed"
        raise VerificationError(reason, Check.BAD_OPENING)
    return labels


def draw_bits(seed: bytes, count: int) -> Bits:
    """Return so many bits, 0 or 1, of the keystream under a derived seed."""
    octets = expand(seed, -(-count // 64), np.uint64).astype("<u8").view(np.uint8)
    return np.unpackbits(octets, bitorder="little")[:count]


class GarblerCopy:
    """The garbler's side of a copy: everything follows from the copy's seed and the evaluator's messages."""

    def __init__(self, terms: Terms, copy: int, seed: bytes) -> None:
        """`seed`: the copy's, which the seed transfer gives."""
        self._terms = terms
        self._copy = copy
        self._seed = terms.derive("garbler", copy, "garbling", seed)
        self._opening = terms.derive("garbler", copy, "decoding", seed)
        own = terms.random_wires(terms.plan.garbler_values)
        drawn = draw_bits(terms.derive("garbler", copy, "coins", seed), len(own) * terms.instances)
        self._coins = drawn.reshape(len(own), terms.instances)
        self._sender: Sender | None = None
        if terms.transfers:
            context = terms.between(Label.COVERT_TRANSFER, copy)
            transfer = terms.derive("garbler", copy, "transfer", seed)
            self._sender = Sender(terms.plan.parameters.evaluator, context, transfer, COVERT_FIELD)
        self._pads: Bytes = np.empty((0, LABEL_BYTES), np.uint8)
        self._garbler = self._garble()
        self._pairs: Bytes = np.empty((0, 2, LABEL_BYTES), np.uint8)
        self._hashes: Bytes = np.empty((0, 2, HASH_BYTES), np.uint8)
        self._zero_choices: Bits = np.empty(0, np.uint8)
        self._corrections = b""

    @property
    def _transfers(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("the evaluator has no inputs")
        return self._sender

    def _garble(self) -> Garbler:
        """Return a garbler of the copy before its first table, with the labels of all random inputs."""
        terms, plan = self._terms, self._terms.plan
        garbler = Garbler(plan.compiled, terms.garbling(self._copy), self._seed)
        if len(self._coins):
            wires = terms.random_wires(plan.garbler_values)
            garbler.open_inputs(wires, self._coins, terms.open_seed(self._copy))
        if len(self._pads):
            rows = self._pads[~terms.given_transfers].reshape(-1, terms.instances, LABEL_BYTES)
            for wire, row in zip(terms.random_wires(plan.evaluator_values).tolist(), rows, strict=True):
                garbler.set_zero_labels(wire, row[None])
        return garbler

    def respond(self, first: bytes) -> bytes:
        """Return the base response."""
        return self._transfers.respond(first)

    def challenge(self, trees: bytes, extension: bytes) -> bytes:
        """Take the evaluator's corrections of the trees and its extension; return the challenge."""
        self._transfers.finish_setup(trees)
        return self._transfers.challenge(self._terms.transfers, extension)

    def take(self, response: bytes) -> None:
        """Check the evaluator's response; compute the corrections of all transfers to the offsets."""
        pads = self._transfers.random(response)
        self._pads = pads[:, 0].copy()
        width = self._terms.plan.width(self._terms.plan.evaluator_values)
        self._corrections = (pads[:, 0] ^ pads[:, 1] ^ self._offsets(width)).tobytes()
        self._garbler = self._garble()

    @property
    def corrections(self) -> bytes:
        """The corrections, 16 bytes a transfer."""
        return self._corrections

    def _offsets(self, width: int) -> Bytes:
        """Return the offset of each label of so many wires, shape (width * instances, 16)."""
        return np.tile(self._garbler.deltas(), (width, 1))

    def digests(self) -> dict[int, bytes]:
        """Garble the copy; return the hashes of all that the garbler does not send before it has signed."""
        terms, copy = self._terms, self._copy
        made: dict[int, bytes] = {}
        if terms.transfers:
            made[t.CORRECTIONS] = terms.hash(copy, t.CORRECTIONS, self.corrections)
        hashed = terms.stream_hash(copy, t.TABLES)
        for piece in _tables(self._garbler):
            hashed.update(piece)
        made[t.TABLES] = hashed.digest()
        self._list_labels()
        made[t.LABELS] = terms.hash(copy, t.LABELS, self._hashes.tobytes())
        made[t.DECODING] = terms.decoding(copy, *self.decoding())
        return made

    def _list_labels(self) -> None:
        """Make both labels, and their hashes, of each label of the list."""
        terms, plan = self._terms, self._terms.plan
        zeros = self._garbler.zero_labels(0, plan.circuit.n_inputs)
        own = zeros[terms.given_wires(plan.garbler_values)].reshape(-1, LABEL_BYTES)
        theirs = zeros[terms.given_wires(plan.evaluator_values)].reshape(-1, LABEL_BYTES)
        firsts = np.concatenate([own, theirs ^ self._pads[terms.given_transfers]])
        offsets = self._offsets(len(firsts) // terms.instances)
        # Of the garbler's labels the first has colour 0; of the masks it is that of 0.
        self._zero_choices = firsts[:, 0] & np.uint8(1)
        self._zero_choices[len(own) :] = 0
        firsts ^= offsets & np.negative(self._zero_choices)[:, None]
        seconds = firsts ^ offsets
        self._pairs = np.stack([firsts, seconds], axis=1)
        self._hashes = np.stack(
            [terms.label_hashes(self._copy, labels) for labels in (firsts, seconds)], axis=1
        )

    def labels(self, inputs: Bits, masked: Bits) -> bytes:
        """Return the active labels for these bits, each with the hash of its sibling.

        `inputs` are the garbler's given ones, `masked` the evaluator's masked ones.
        """
        bits = np.concatenate([inputs.reshape(-1), masked.reshape(-1)])
        choices = bits ^ self._zero_choices
        positions = np.arange(len(choices))
        active, siblings = self._pairs[positions, choices], self._hashes[positions, 1 - choices]
        return np.concatenate([active, siblings], axis=1).tobytes()

    def tables(self) -> Iterator[memoryview]:
        """Yield the tables in pieces; one is valid until the next is asked for."""
        return _tables(self._garble())

    def decoding(self) -> tuple[bytes, bytes]:
        """Return the opening of the decoding, and its content."""
        colours = pack_bits(self._garbler.output_colours())
        if self._terms.plan.parameters.output != "aggregator":
            return self._opening, colours
        return self._opening, self._garbler.output_hashes().tobytes() + colours

    @property
    def garbler(self) -> Garbler:
        """The garbler, which has made all tables."""
        return self._garbler


def _tables(garbler: Garbler) -> Iterator[memoryview]:
    """Yield a garbler's tables in pieces; one is valid until the next is asked for."""
    buffer = working_memory(TABLE_PIECE)
    while size := garbler.fill(buffer):
        yield buffer[:size].data


class EvaluatorMessages(Protocol):
    """Interface of the evaluator's side of a copy's transfers."""

    def first(self) -> bytes: ...

    def trees(self, response: bytes, /) -> bytes: ...

    def extension(self) -> bytes: ...

    def response(self, challenge: bytes, /) -> bytes: ...


class EvaluatorCopy:
    """The evaluator's side of a copy: its messages follow from its seed and the garbler's messages."""

    def __init__(self, terms: Terms, copy: int, seed: bytes) -> None:
        """`seed`: the evaluator's for this copy, to which it has committed."""
        self._terms = terms
        self._copy = copy
        peer, context = terms.plan.parameters.garbler, terms.between(Label.COVERT_TRANSFER, copy)
        transfer = terms.derive("evaluator", copy, "transfer", seed)
        self._receiver = Receiver(peer, context, transfer, COVERT_FIELD)
        self.choices = draw_bits(terms.derive("evaluator", copy, "choices", seed), terms.transfers)
        self._pads: Bytes = np.empty((0, LABEL_BYTES), np.uint8)

    def first(self) -> bytes:
        """Return the first base message."""
        return self._receiver.first_message()

    def trees(self, response: bytes, /) -> bytes:
        """Return the corrections of the trees."""
        return self._receiver.finish_setup(response)

    def extension(self) -> bytes:
        """Return the extension for all transfers."""
        return self._receiver.extend(self.choices.size, pack_bits(self.choices))

    def response(self, challenge: bytes, /) -> bytes:
        """Return the response to the challenge."""
        response, self._pads = self._receiver.random(challenge)
        return response

    def held(self, corrections: bytes | memoryview) -> Bytes:
        """Return the labels of the choices, shape (transfers, 16), from the garbler's corrections.

        To those of given inputs the masks' labels are added.
        """
        rows = np.frombuffer(corrections, np.uint8).reshape(-1, LABEL_BYTES)
        return self._pads ^ (rows & np.negative(self.choices)[:, None])


def set_inputs(terms: Terms, copy: int, evaluator: Evaluator, labels: Bytes, held: Bytes) -> None:
    """Give the evaluator of the closed copy its active labels, of the label list and of its transfers."""
    plan = terms.plan
    own = terms.given_wires(plan.garbler_values)
    rows = labels.reshape(-1, terms.instances, LABEL_BYTES)
    active = held.copy()
    active[terms.given_transfers] ^= labels[len(labels) - np.count_nonzero(terms.given_transfers) :]
    theirs = active.reshape(-1, terms.instances, LABEL_BYTES)
    wires = plan.wires(plan.evaluator_values)
    for wire, row in zip([*own, *wires], [*rows[: len(own)], *theirs], strict=True):
        evaluator.set_input_labels(int(wire), row[None])
    if len(drawn := terms.random_wires(plan.garbler_values)):
        evaluator.open_inputs(drawn, terms.open_seed(copy))


class RecordedEvaluator:
    """The evaluator's messages as it sent them: an honest one need not make them again."""

    def __init__(self, sent: Mapping[int, bytes]) -> None:
        self._sent = sent

    def first(self) -> bytes:
        """Return the first base message."""
        return self._sent[t.FIRST]

    def trees(self, _response: bytes, /) -> bytes:
        """Return the corrections of the trees."""
        return self._sent[t.TREES]

    def extension(self) -> bytes:
        """Return the extension."""
        return self._sent[t.EXTENSION]

    def response(self, _challenge: bytes, /) -> bytes:
        """Return the response to the challenge."""
        return self._sent[t.RESPONSE]


def replay(
    terms: Terms, copy: int, garbler: GarblerCopy, evaluator: EvaluatorMessages
) -> Iterator[tuple[int, bytes]]:
    """Yield position and hash of each message of a copy in which both sides follow their seeds.

    Stop at the first that is not the one sent: recorded messages of the evaluator answer what was sent.
    """

    def hashed(position: int, content: bytes) -> tuple[int, bytes]:
        return position, terms.hash(copy, position, content)

    if terms.transfers:
        first = evaluator.first()
        yield hashed(t.FIRST, first)
        base = garbler.respond(first)
        yield hashed(t.BASE, base)
        trees = evaluator.trees(base)
        yield hashed(t.TREES, trees)
        extension = evaluator.extension()
        yield hashed(t.EXTENSION, extension)
        challenge = garbler.challenge(trees, extension)
        yield hashed(t.CHALLENGE, challenge)
        response = evaluator.response(challenge)
        yield hashed(t.RESPONSE, response)
        garbler.take(response)
    yield from garbler.digests().items()
