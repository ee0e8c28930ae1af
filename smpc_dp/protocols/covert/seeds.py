"""The seed transfer: the evaluator learns the garbler's seeds of all copies but one, which it chooses.

Two random transfers for each copy. Their first pads give the seed, their second pads the witness, with which
the evaluator shows that it did not take the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import Receiver, Rows, Sender
from smpc_dp.protocols.covert.terms import (
    BASE,
    CHALLENGE,
    EXTENSION,
    FIRST,
    RESPONSE,
    SEEDS,
    TREES,
    Terms,
    Transcript,
)
from smpc_dp.protocols.garbled.plan import FIELD, pack_bits

PADS = 2
"""Transfers of a copy: pads of 16 bytes, for seeds of 32."""


def _secret(terms: Terms, copy: int, purpose: str, pads: Rows) -> bytes:
    """Return the seed or the witness of a copy from its pads, shape (PADS, 16)."""
    return terms.derive("garbler", copy, purpose, *(pad.tobytes() for pad in pads))


class SeedSender:
    """The garbler's side. `seeds` and `witnesses`, by copy, are there after `take`."""

    def __init__(self, terms: Terms, seed: bytes) -> None:
        """`seed`: 32 random bytes, for this run alone."""
        self._terms = terms
        peer, context = terms.plan.parameters.evaluator, terms.between(Label.COVERT_TRANSFER, SEEDS)
        self._sender = Sender(peer, context, seed, FIELD)
        self.seeds: dict[int, bytes] = {}
        self.witnesses: dict[int, bytes] = {}

    def respond(self, first: bytes) -> bytes:
        """Return the base response."""
        return self._sender.respond(first)

    def challenge(self, trees: bytes, extension: bytes) -> bytes:
        """Take the evaluator's corrections and extension; return the challenge."""
        self._sender.finish_setup(trees)
        return self._sender.challenge(PADS * self._terms.copies, extension)

    def take(self, response: bytes) -> None:
        """Check the evaluator's response, and derive all seeds and witnesses."""
        pads = self._sender.random(response).reshape(self._terms.copies, PADS, 2, 16)
        for copy, pair in enumerate(pads, 1):
            self.seeds[copy] = _secret(self._terms, copy, "copy", pair[:, 0])
            self.witnesses[copy] = _secret(self._terms, copy, "witness", pair[:, 1])


@dataclass(frozen=True, slots=True)
class Learned:
    """The evaluator's result: the closed copy with its witness, and the seeds of the others."""

    closed: int
    seeds: Mapping[int, bytes] = field(repr=False)
    witness: bytes = field(repr=False)


class SeedReceiver:
    """The evaluator's side, a function of its seed of stream 0 and of the garbler's messages."""

    def __init__(self, terms: Terms, seed: bytes) -> None:
        self._terms = terms
        drawn = terms.derive("evaluator", SEEDS, "copy", seed)[:16]
        self._closed = 1 + int.from_bytes(drawn, "big") % terms.copies
        peer, context = terms.plan.parameters.garbler, terms.between(Label.COVERT_TRANSFER, SEEDS)
        self._receiver = Receiver(peer, context, terms.derive("evaluator", SEEDS, "transfer", seed), FIELD)

    def first(self) -> bytes:
        """Return the first base message."""
        return self._receiver.first_message()

    def trees(self, response: bytes) -> bytes:
        """Return the corrections of the trees."""
        return self._receiver.finish_setup(response)

    def extension(self) -> bytes:
        """Return the extension for two transfers a copy."""
        choices = np.zeros((self._terms.copies, PADS), np.uint8)
        choices[self._closed - 1] = 1
        return self._receiver.extend(choices.size, pack_bits(choices))

    def take(self, challenge: bytes) -> tuple[bytes, Learned]:
        """Return the response to the challenge, and what was learned."""
        response, rows = self._receiver.random(challenge)
        pads = rows.reshape(self._terms.copies, PADS, 16)
        seeds = {
            copy: _secret(self._terms, copy, "copy", pads[copy - 1])
            for copy in range(1, self._terms.copies + 1)
            if copy != self._closed
        }
        witness = _secret(self._terms, self._closed, "witness", pads[self._closed - 1])
        return response, Learned(self._closed, seeds, witness)


def replay_seeds(terms: Terms, seed: bytes, base: bytes, challenge: bytes) -> tuple[Transcript, Learned]:
    """Return the transcript of an evaluator with this seed that got these messages, and its result.

    Raises PeerFault for messages that such an evaluator would have refused.
    """
    receiver = SeedReceiver(terms, seed)
    messages = {FIRST: receiver.first(), BASE: base, TREES: receiver.trees(base)}
    messages[EXTENSION] = receiver.extension()
    messages[CHALLENGE] = challenge
    messages[RESPONSE], learned = receiver.take(challenge)
    return {position: terms.hash(SEEDS, position, content) for position, content in messages.items()}, learned
