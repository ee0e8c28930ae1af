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
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import Check, VerificationError
from smpc_dp.protocols.covert import terms as t
from smpc_dp.protocols.covert.terms import Terms
from smpc_dp.protocols.garbled.messages import LABEL_BYTES, TABLE_PIECE
from smpc_dp.protocols.garbled.plan import FIELD, Bits, pack_bits

COMMITMENT_BYTES = 32
OPENED_BYTES = LABEL_BYTES + COMMITMENT_BYTES
"""Of each label: the active label, and the commitment to its sibling."""


class LabelCommitments:
    """Commitments to both labels of each position of a copy's label list.

    The list has the labels of the garbler's inputs, then the masks of the evaluator's, each of all instances.
    """

    def __init__(self, terms: Terms, copy: int) -> None:
        self._terms = terms
        self._copy = copy
        self._bound = terms.message_key(copy, t.LABELS)

    def commit(self, position: int, choice: int, label: bytes) -> bytes:
        """Return the commitment to one label: of colour `choice`, or of a mask's bit `choice`."""
        return digest(Label.COVERT_LABEL, self._bound, encode_uint(position), encode_uint(choice), label)

    def digest(self, commitments: list[bytes]) -> bytes:
        """Return the digest of all commitments, two for each position."""
        return self._terms.bound(Label.COVERT_LABELS, encode_uint(self._copy), b"".join(commitments))

    def check(self, content: bytes | memoryview, masked: Bits, signed: bytes) -> Bytes:
        """Return the active labels, shape (labels, 16), of the garbler's message.

        `masked` are the evaluator's masked inputs. Raises VerificationError unless the labels and the
        commitments to their siblings give the signed digest.
        """
        opened = np.frombuffer(content, np.uint8).reshape(-1, OPENED_BYTES)
        labels, siblings = opened[:, :LABEL_BYTES], opened[:, LABEL_BYTES:]
        own = len(opened) - masked.size
        choices = np.concatenate([labels[:own, 0] & 1, masked.reshape(-1)])
        commitments: list[bytes] = []
        for position, choice in enumerate(choices.tolist()):
            pair = [self.commit(position, choice, labels[position].tobytes()), siblings[position].tobytes()]
            commitments += pair if not choice else reversed(pair)
        if not hmac.compare_digest(self.digest(commitments), signed):
            reason = f"its labels of copy {self._copy} are not those to which it committed"
            raise VerificationError(reason, Check.BAD_OPENING)
        return labels


class GarblerCopy:
    """The garbler's side of a copy: everything follows from the copy's seed and the evaluator's messages."""

    def __init__(self, terms: Terms, copy: int, seed: bytes) -> None:
        """`seed`: the copy's, which the seed transfer gives."""
        self._terms = terms
        self._copy = copy
        self._seed = terms.derive("garbler", copy, "garbling", seed)
        self._opening = terms.derive("garbler", copy, "decoding", seed)
        self._sender: Sender | None = None
        if terms.transfers:
            context = terms.between(Label.COVERT_TRANSFER, copy)
            transfer = terms.derive("garbler", copy, "transfer", seed)
            self._sender = Sender(terms.plan.parameters.evaluator, context, transfer, FIELD)
        self._pads: Bytes = np.empty((0, LABEL_BYTES), np.uint8)
        self._garbler = self._garble()
        self._pairs: Bytes = np.empty((0, 2, LABEL_BYTES), np.uint8)
        self._zero_choices: Bits = np.empty(0, np.uint8)
        self._commitments: list[bytes] = []

    @property
    def _transfers(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("the evaluator has no inputs")
        return self._sender

    def _garble(self) -> Garbler:
        """Return a garbler of the copy before its first table."""
        return Garbler(self._terms.plan.compiled, self._terms.garbling(self._copy), self._seed)

    def respond(self, first: bytes) -> bytes:
        """Return the base response."""
        return self._transfers.respond(first)

    def challenge(self, trees: bytes, extension: bytes) -> bytes:
        """Take the evaluator's corrections of the trees and its extension; return the challenge."""
        self._transfers.finish_setup(trees)
        return self._transfers.challenge(self._terms.transfers, extension)

    def corrections(self, response: bytes) -> bytes:
        """Check the evaluator's response; return the corrections of all transfers to the offsets."""
        pads = self._transfers.random(response)
        self._pads = pads[:, 0].copy()
        width = self._terms.plan.width(self._terms.plan.evaluator_values)
        return (pads[:, 0] ^ pads[:, 1] ^ self._offsets(width)).tobytes()

    def _offsets(self, width: int) -> Bytes:
        """Return the offset of each label of so many wires, shape (width * instances, 16)."""
        return np.tile(self._garbler.deltas(), (width, 1))

    def digests(self) -> dict[int, bytes]:
        """Garble the copy; return the digests of tables and labels, and the commitment to the decoding."""
        hashed = self._terms.stream_hash(self._copy, t.TABLES)
        for piece in _tables(self._garbler):
            hashed.update(piece)
        self._commit()
        labels = LabelCommitments(self._terms, self._copy).digest(self._commitments)
        decoding = self._terms.decoding(self._copy, *self.decoding())
        return {t.TABLES: hashed.digest(), t.LABELS: labels, t.DECODING: decoding}

    def _commit(self) -> None:
        """Commit to both labels of each position of the label list."""
        plan = self._terms.plan
        zeros = self._garbler.zero_labels(0, plan.circuit.n_inputs)
        own = zeros[plan.wires(plan.garbler_values)].reshape(-1, LABEL_BYTES)
        masks = zeros[plan.wires(plan.evaluator_values)].reshape(-1, LABEL_BYTES) ^ self._pads
        firsts = np.concatenate([own, masks])
        offsets = self._offsets(plan.width(plan.garbler_values) + plan.width(plan.evaluator_values))
        # Of the garbler's labels the first has colour 0; of the masks it is that of 0.
        self._zero_choices = firsts[:, 0] & np.uint8(1)
        self._zero_choices[len(own) :] = 0
        firsts ^= offsets & np.negative(self._zero_choices)[:, None]
        self._pairs = np.stack([firsts, firsts ^ offsets], axis=1)
        commitments = LabelCommitments(self._terms, self._copy)
        self._commitments = [
            commitments.commit(position, choice, label.tobytes())
            for position, pair in enumerate(self._pairs)
            for choice, label in enumerate(pair)
        ]

    def labels(self, inputs: Bits, masked: Bits) -> bytes:
        """Return the active labels for these bits, each with the commitment to its sibling.

        `inputs` are the garbler's, `masked` the evaluator's masked ones.
        """
        bits = np.concatenate([inputs.reshape(-1), masked.reshape(-1)])
        choices = bits ^ self._zero_choices
        positions = np.arange(len(choices))
        commitments = np.frombuffer(b"".join(self._commitments), np.uint8).reshape(-1, 2, COMMITMENT_BYTES)
        active, siblings = self._pairs[positions, choices], commitments[positions, 1 - choices]
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
        self._receiver = Receiver(peer, context, terms.derive("evaluator", copy, "transfer", seed), FIELD)
        drawn = expand(terms.derive("evaluator", copy, "choices", seed), -(-terms.transfers // 64), np.uint64)
        octets = drawn.astype("<u8").view(np.uint8)
        self.choices: Bits = np.unpackbits(octets, bitorder="little")[: terms.transfers]
        self._pads: Bytes = np.empty((0, LABEL_BYTES), np.uint8)
        self._corrections: Bytes = self._pads

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

    def take(self, corrections: bytes) -> None:
        """Take the garbler's corrections, 16 bytes a transfer."""
        self._corrections = np.frombuffer(corrections, np.uint8).reshape(-1, LABEL_BYTES)

    def held(self) -> Bytes:
        """Return the labels of the choices, shape (transfers, 16), to be added to the masks' labels."""
        return self._pads ^ (self._corrections & np.negative(self.choices)[:, None])


def set_inputs(terms: Terms, evaluator: Evaluator, labels: Bytes, held: Bytes) -> None:
    """Give the evaluator of the closed copy its active labels, of the label list and of its transfers."""
    plan = terms.plan
    shape = (-1, plan.parameters.instances, LABEL_BYTES)
    own = len(labels) - len(held)
    for values, given in (
        (plan.garbler_values, labels[:own]),
        (plan.evaluator_values, labels[own:] ^ held),
    ):
        rows = np.ascontiguousarray(given).reshape(shape)
        for number, wire in enumerate(plan.wires(values).tolist()):
            evaluator.set_input_labels(wire, rows[number : number + 1])


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
        yield hashed(t.CORRECTIONS, garbler.corrections(response))
    yield from garbler.digests().items()
