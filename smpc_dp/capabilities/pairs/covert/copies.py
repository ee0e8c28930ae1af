"""One copy of a covert evaluation: each side is a function of its seed and of the other's messages."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.covert.terms import Terms
from smpc_dp.capabilities.pairs.garbled.effects import Buffer
from smpc_dp.capabilities.pairs.garbled.messages import LABEL_BYTES, TABLE_PIECE
from smpc_dp.capabilities.pairs.garbled.plan import COVERT_FIELD, Bits, Plan, pack_bits
from smpc_dp.crypto.garble import Bytes, Evaluator, Garbler, Wires, opened_list
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import Deviation, Receiver, Sender
from smpc_dp.crypto.prg import expand
from smpc_dp.errors import Check, VerificationError

OPENED_BYTES = LABEL_BYTES + 16
"""Of each label of the list: the active label, and the hash of its sibling."""


def check_labels(terms: Terms, copy: int, content: bytes | memoryview, masked: Bits, signed: bytes) -> Bytes:
    """Return a copy's active input labels from its opening; VerificationError if the digest is not `signed`.

    `masked` are the evaluator's masked inputs, one bit each. Raises VerificationError unless the hashes of
    the labels and those of their siblings give the signed digest.
    """
    opened = np.frombuffer(content, np.uint8).reshape(-1, terms.instances, OPENED_BYTES)
    bits = masked.reshape(-1, terms.instances)
    made, labels = opened_list(opened, bits, terms.list_run(copy), terms.message_key(copy, t.LABELS))
    if not hmac.compare_digest(made, signed):
        reason = f"its labels of copy {copy} are not those that it signed"
        raise VerificationError(reason, Check.BAD_OPENING)
    return labels


def draw_bits(seed: bytes, count: int) -> Bits:
    """Return `count` pseudorandom bits, one a byte, from the keystream of a seed."""
    octets = expand(seed, -(-count // 64), np.uint64).astype("<u8").view(np.uint8)
    return np.unpackbits(octets, bitorder="little")[:count]


class GarblerCopy:
    """The garbler's computation of one of several garbled copies, replayable from the copy's seed."""

    def __init__(self, terms: Terms, copy: int, seed: bytes) -> None:
        """`seed`: the copy's, which the seed transfer gives."""
        self._terms = terms
        self._copy = copy
        self._seed = terms.derive("garbler", copy, "garbling", seed)
        self._opening = terms.derive("garbler", copy, "decoding", seed)
        shape = terms.plan.width(terms.plan.random(terms.plan.garbler_values)), terms.instances
        drawn = draw_bits(terms.derive("garbler", copy, "coins", seed), shape[0] * shape[1])
        self._coins = drawn.reshape(shape)
        self._transfer_seed = terms.derive("garbler", copy, "transfer", seed)
        # First pads of the evaluator's wires, and the corrections; there after `take`.
        self._pads: Bytes = np.empty((0, terms.instances, LABEL_BYTES), np.uint8)
        self.corrections: Buffer = b""
        self._made: Garbler | None = None
        self._stored: list[memoryview] = []

    @cached_property
    def _transfers(self) -> Sender:
        """The sender of this copy's oblivious transfers, derived from the copy's seed."""
        context = self._terms.between(Label.COVERT_TRANSFER, self._copy)
        return Sender(self._terms.plan.parameters.evaluator, context, self._transfer_seed, COVERT_FIELD)

    def _garble(self) -> Garbler:
        """Return a garbler of this copy, with the labels of random inputs set, before any table."""
        terms, plan = self._terms, self._terms.plan
        garbler = Garbler(plan.compiled, terms.garbling(self._copy), self._seed)
        if len(self._coins):
            wires = plan.wires(plan.random(plan.garbler_values))
            garbler.open_inputs(wires, self._coins, terms.open_seed(self._copy))
        for value, rows in plan.by_value(plan.evaluator_values, self._pads):
            if value in plan.parameters.random_inputs:
                garbler.set_zero_labels(plan.first_wire(value), rows)
        return garbler

    @property
    def garbler(self) -> Garbler:
        """The object that garbles this copy, made at first use; it makes its tables once."""
        if self._made is None:
            self._made = self._garble()
        return self._made

    def respond(self, first: bytes) -> bytes:
        """Return the garbler's answer to the evaluator's first message of oblivious transfers."""
        return self._transfers.respond(first)

    def challenge(self, trees: bytes, extension: bytes) -> bytes:
        """Take the evaluator's corrections of the trees and its extension; return a consistency challenge."""
        self._transfers.finish_setup(trees)
        return self._transfers.challenge(self._terms.transfers, extension)

    def take(self, response: bytes) -> None:
        """Check the evaluator's answer to the challenge, and compute this copy's label corrections."""
        pads = np.empty((2, self._terms.transfers, LABEL_BYTES), np.uint8)
        self._transfers.random(response, pads)
        self._correct(pads)

    def remake(self, evaluator: EvaluatorCopy) -> int | None:
        """Replay this copy's transfers by its seed; return the position of its first false message, or None.

        Return the position of the first of the garbler's messages that does not follow from the seed; None
        if all do, and then the copy is as after `take`.
        """
        made = evaluator.receiver.remake(self._transfer_seed)
        if isinstance(made, Deviation):
            return {Deviation.BASE_RESPONSE: t.BASE, Deviation.CHALLENGE: t.CHALLENGE}[made]
        self._correct(made)
        return None

    def _correct(self, pads: Bytes) -> None:
        """Take both pads of all oblivious transfers, and compute the corrections that map them to labels."""
        self._pads = pads[0].reshape(-1, self._terms.instances, LABEL_BYTES)
        self.garbler.correct(pads)
        self.corrections = pads[1].data.cast("B")

    def digests(self, *, store: bool = False) -> dict[int, bytes]:
        """Garble the copy, once; return hashes of corrections, tables, labels and decoding, by position.

        With `store` the tables are held in memory for `tables`, which otherwise garbles once more.
        """
        terms, copy = self._terms, self._copy
        room = _room(terms.plan, store=store)
        made: dict[int, bytes] = {}
        if terms.transfers:
            made[t.CORRECTIONS] = terms.hash(copy, t.CORRECTIONS, self.corrections)
        hashed = terms.stream_hash(copy, t.TABLES)
        for piece in _tables(self.garbler, room):
            hashed.update(piece)
            if store:
                self._stored.append(piece)
        made[t.TABLES] = hashed.digest()
        made[t.LABELS] = self.garbler.list_digest(*self._list, terms.message_key(copy, t.LABELS))
        made[t.DECODING] = terms.decoding(copy, *self.decoding())
        return made

    @cached_property
    def _list(self) -> tuple[Wires, Bytes, bytes]:
        """Arguments for opening input labels: wires, pads of the masks, start of the hashes; after `take`."""
        terms = self._terms
        return terms.list_wires, self._pads[terms.mask_rows], terms.list_run(self._copy).start

    def labels(self, inputs: Bits, masked: Bits) -> bytes:
        """Return the message with the active labels of these inputs, each with its sibling's hash.

        `inputs` are the garbler's given ones, `masked` the evaluator's masked ones, of all instances each.
        """
        bits = np.concatenate([rows.reshape(-1, self._terms.instances) for rows in (inputs, masked)])
        return self.garbler.open_list(*self._list, bits)

    def tables(self) -> Iterator[memoryview]:
        """Yield the garbled tables of this copy in pieces: those stored by `digests`, or garbled again."""
        if self._stored:
            yield from self._stored
            return
        for piece in _tables(self._garble(), _room(self._terms.plan)):
            yield memoryview(bytes(piece))

    def decoding(self) -> tuple[bytes, bytes]:
        """Return (opening, content) of the commitment to what decodes the outputs of this copy."""
        colours = pack_bits(self.garbler.output_colours())
        if self._terms.plan.parameters.output != "aggregator":
            return self._opening, colours
        return self._opening, self.garbler.output_hashes().tobytes() + colours


def _room(plan: Plan, *, store: bool = False) -> Bytes:
    """Return empty memory for all garbled tables of a copy if `store`, else for one piece."""
    total = plan.compiled.table_bytes(plan.parameters.instances)
    return np.empty(total if store else min(TABLE_PIECE, total), np.uint8)


def _tables(garbler: Garbler, room: Bytes) -> Iterator[memoryview]:
    """Yield a garbler's tables in pieces, which stay valid if `room` is large enough for all.

    Otherwise each piece is at the front of `room`, and is valid until the next is asked for.
    """
    start = 0
    while size := garbler.fill(room[start : start + TABLE_PIECE]):
        yield room[start : start + size].data
        start = start + size if len(room) > TABLE_PIECE else 0


class EvaluatorCopy:
    """The evaluator's computation of one garbled copy's oblivious transfers, replayable from its seed."""

    def __init__(self, terms: Terms, copy: int, seed: bytes) -> None:
        """`seed`: the evaluator's for this copy, to which it has committed."""
        self._terms = terms
        self._copy = copy
        peer, context = terms.plan.parameters.garbler, terms.between(Label.COVERT_TRANSFER, copy)
        transfer = terms.derive("evaluator", copy, "transfer", seed)
        self.receiver = Receiver(peer, context, transfer, COVERT_FIELD, record=True)
        self.choices = draw_bits(terms.derive("evaluator", copy, "choices", seed), terms.transfers)
        self._pads: Bytes = np.empty((0, LABEL_BYTES), np.uint8)

    def first(self) -> bytes:
        """Return the evaluator's first message of a copy's oblivious transfers."""
        return self.receiver.first_message()

    def trees(self, response: bytes) -> bytes:
        """Take the garbler's answer of the base transfers; return corrections of the seed trees."""
        return self.receiver.finish_setup(response)

    def extension(self) -> bytes:
        """Return the evaluator's message that extends a few oblivious transfers to all inputs."""
        return self.receiver.extend(self.choices.size, pack_bits(self.choices))

    def response(self, challenge: bytes) -> bytes:
        """Return the evaluator's answer to the garbler's consistency challenge."""
        response, self._pads = self.receiver.random(challenge)
        return response

    def held(self, corrections: bytes | memoryview) -> Bytes:
        """Return the labels that the evaluator obtains by its random choices, from the corrections.

        To those of given inputs the masks' labels are added.
        """
        rows = np.frombuffer(corrections, np.uint8).reshape(-1, LABEL_BYTES)
        # As long arrays: numpy takes three times as long for many rows of 16 bytes, each with its choice.
        held = np.repeat(np.negative(self.choices), LABEL_BYTES).reshape(rows.shape)
        held &= rows
        held ^= self._pads
        return held


def set_inputs(terms: Terms, copy: int, evaluator: Evaluator, labels: Bytes, held: Bytes) -> None:
    """Set the active labels of all input wires of the copy that is evaluated; overwrites `held`.

    `labels` are those of the label list, `held` those of its transfers; the latter are changed.
    """
    plan = terms.plan
    theirs = held.reshape(-1, terms.instances, LABEL_BYTES)
    theirs[terms.mask_rows] ^= labels[terms.own_count :]
    for values, rows in (
        (plan.given(plan.garbler_values), labels[: terms.own_count]),
        (plan.evaluator_values, theirs),
    ):
        for value, row in plan.by_value(values, rows):
            evaluator.set_input_labels(plan.first_wire(value), row)
    if len(drawn := plan.wires(plan.random(plan.garbler_values))):
        evaluator.open_inputs(drawn, terms.open_seed(copy))


def replay(
    terms: Terms, copy: int, garbler: GarblerCopy, evaluator: EvaluatorCopy
) -> Iterator[tuple[int, bytes]]:
    """Yield (position, hash) of every message that two honest sides would send for a copy."""

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


def first_cheat(
    terms: Terms, copy: int, seed: bytes, evaluator: EvaluatorCopy | None, signed: Sequence[bytes]
) -> int | None:
    """Return the position of the garbler's first message that does not follow from its seed, or None.

    `evaluator`: the evaluator's side of the copy, which took part in its transfers; None without any.
    `signed`: the signed transcript, in which the hashes of the transfers are those of what was sent.
    """
    garbler = GarblerCopy(terms, copy, seed)
    if evaluator is not None and (position := garbler.remake(evaluator)) is not None:
        return position
    made = garbler.digests()
    return t.first_difference(made.items(), signed[len(signed) - len(made) :])
