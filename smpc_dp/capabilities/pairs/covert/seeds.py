"""The seed transfer: the evaluator learns the garbler's seeds of all copies but one, which it chooses.

One base transfer for each copy. Its first key gives the seed, its second key the witness, with which the
evaluator shows that it did not take the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smpc_dp.capabilities.pairs.covert.terms import BASE_FIRST, BASE_RESPONSE, SEEDS, Terms, Transcript
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import BaseSender, Rows, base_respond


def _secret(terms: Terms, copy: int, purpose: str, key: Rows) -> bytes:
    """Derive a garbled copy's seed, or its witness, from a key of the oblivious transfer of seeds."""
    return terms.derive("garbler", copy, purpose, key.tobytes())


class SeedSender:
    """The garbler's end of the transfer of seeds; holds each copy's seed and witness after `take`."""

    def __init__(self, terms: Terms, seed: bytes) -> None:
        """`seed`: 32 random bytes, for this run alone."""
        self._terms = terms
        context = terms.between(Label.COVERT_TRANSFER, SEEDS)
        self._sender = BaseSender(terms.plan.parameters.evaluator, context, seed)
        self.seeds: dict[int, bytes] = {}
        self.witnesses: dict[int, bytes] = {}

    @property
    def first(self) -> bytes:
        """The first message of the oblivious transfer of the copies' seeds."""
        return self._sender.first

    def take(self, response: bytes) -> None:
        """Take the evaluator's response, and derive the seeds and witnesses of all garbled copies."""
        for copy, keys in enumerate(self._sender.keys(self._terms.copies, response), 1):
            self.seeds[copy] = _secret(self._terms, copy, "copy", keys[0])
            self.witnesses[copy] = _secret(self._terms, copy, "witness", keys[1])


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of the evaluator's seed transfer: the closed copy, its witness, and the other copies' seeds."""

    closed: int
    seeds: Mapping[int, bytes] = field(repr=False)
    witness: bytes = field(repr=False)


def choose_closed(terms: Terms, seed: bytes) -> int:
    """Return the number of the copy that stays unopened, derived from the evaluator's seed."""
    drawn = terms.derive("evaluator", SEEDS, "copy", seed)[:16]
    return 1 + int.from_bytes(drawn, "big") % terms.copies


def respond(terms: Terms, seed: bytes, first: bytes) -> tuple[bytes, Learned]:
    """Return the evaluator's response in the transfer of seeds, and the seeds and witness that it learns.

    Raises PeerFault for a first message that is no group element.
    """
    closed, copies = choose_closed(terms, seed), range(1, terms.copies + 1)
    response, keys = base_respond(
        terms.plan.parameters.garbler,
        terms.between(Label.COVERT_TRANSFER, SEEDS),
        terms.derive("evaluator", SEEDS, "transfer", seed),
        [copy == closed for copy in copies],
        first,
    )
    seeds = {copy: _secret(terms, copy, "copy", keys[copy - 1]) for copy in copies if copy != closed}
    return response, Learned(closed, seeds, _secret(terms, closed, "witness", keys[closed - 1]))


def replay_seeds(terms: Terms, seed: bytes, first: bytes) -> tuple[Transcript, Learned]:
    """Replay the evaluator's transfer of seeds from its seed; return message hashes and what it learned.

    Raises PeerFault for a message that such an evaluator would have refused.
    """
    response, learned = respond(terms, seed, first)
    messages = {BASE_FIRST: first, BASE_RESPONSE: response}
    return {position: terms.hash(SEEDS, position, content) for position, content in messages.items()}, learned
