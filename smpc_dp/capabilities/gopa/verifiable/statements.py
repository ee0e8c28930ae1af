"""Meaning and verification of the statements on a board: for parties, aggregator and auditors.

Nothing here is secret. `Rules` is bound to one run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.versions import UNBOUNDED_VERSION
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import RingVector
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.wire.sets import unpack_list
from smpc_dp.wire.signing import Context, decode

# The statement of a party to which a proof belongs, and the reason given if it is false.
RANGE, NORM, NOISE, SUM, OPENING = "range", "norm", "noise", "sum", "opening"
# Reasons against a signed statement that are found without a proof.
COMMIT_MALFORMED, MALFORMED, BOUNDS = "commit-malformed", "malformed", "bounds"
# Of logs of version 2 alone, where it shows nothing.
BOUNDS_BEFORE = "bounds-before"
OPENING_MALFORMED, OPENING_BOUNDS, OPENING_OTHER = "opening-malformed", "opening-bounds", "opening-other"
FALSE = {
    RANGE: "its value is not within the bounds: the range proof is wrong",
    NORM: "its vector is longer than the bound: the norm proof is wrong",
    NOISE: "its noise is not what its secret bits and the coins give: the noise proof is wrong",
    SUM: "x_hat is not the sum of what it has committed to",
    OPENING: "opened an edge to something else than it has committed to",
    COMMIT_MALFORMED: "what it committed to is malformed",
    MALFORMED: "what it published is malformed",
    BOUNDS: "published a value that no noise of the plan explains",
    BOUNDS_BEFORE: "published a value out of the bounds of version 2, which an honest party can exceed",
    OPENING_MALFORMED: "its opening is malformed",
    OPENING_BOUNDS: "opened an edge to more than pairwise noise can be",
    OPENING_OTHER: "opened not just those of its edges that lead to who was shown false before",
}
CHECKS = {
    **dict.fromkeys((RANGE, NORM, NOISE), Check.BAD_PROOF),
    **dict.fromkeys((SUM, OPENING), Check.BAD_OPENING),
    **dict.fromkeys((COMMIT_MALFORMED, MALFORMED, OPENING_MALFORMED), Check.MALFORMED),
    **dict.fromkeys((BOUNDS, BOUNDS_BEFORE, OPENING_BOUNDS), Check.OUT_OF_BOUNDS),
    OPENING_OTHER: Check.SET_DIFFERS,
}
"""The check of each of `FALSE`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Checks of a verifiable run's public messages, shared by parties, aggregator and auditors.

    `combined` is empty until all coins are open. Every `add_...` puts proofs in a batch under the tag (party,
    which), which a `ProofFailure` then names.
    """

    context: Context
    parameters: VerifiableParameters
    run_id: bytes
    combined: bytes = b""

    @property
    def length(self) -> int:
        """The number of coordinates of a party's vector."""
        return self.parameters.encoding.length

    # coins

    def coin_commitment(self, name: str, coin: bytes) -> bytes:
        """Return the hiding commitment to a coin of 32 random bytes."""
        return self._digest(Label.COIN_COMMITMENT, name.encode(), coin)

    def combine_coins(self, participants: bytes, coins: bytes) -> bytes:
        """Return the hash of all parties' coins in roster order, from which public noise bits derive."""
        return self._digest(Label.COINS, participants, coins)

    def bits_of(self, name: str) -> bytes:
        """Return the public random bits of all coordinates of a party's vector, in their order."""
        length, bits = self.length, self.parameters.bits
        seed = self._digest(Label.COIN_BITS, self.combined, name.encode())
        size = proofs.coin_bytes(length, bits)
        stream = bytearray(hashlib.shake_256(seed).digest(size))
        if length * bits % 8:
            # Unused bits are zero: the encoding is unique.
            stream[-1] &= (1 << length * bits % 8) - 1
        return bytes(stream)

    # statements

    def proof_context(self, name: str) -> bytes:
        """Return the bytes (run and name) to which all zero-knowledge proofs of a party are bound."""
        return proofs.context(self.run_id, name)

    def edges_of(self, party: int, message: v.Commit, sender: str) -> dict[int, bytes]:
        """Return a party's commitments to pairwise noise, by neighbour; raise PeerFault if malformed."""
        neighbours = self.neighbours_of(party, message, sender)
        size = commit.POINT_BYTES
        return {peer: message.edges[size * i : size * (i + 1)] for i, peer in enumerate(neighbours)}

    def neighbours_of(self, party: int, message: v.Commit, sender: str) -> tuple[int, ...]:
        """Return the neighbours listed in a party's commitments; raise PeerFault if malformed."""
        neighbours = unpack_list(message.neighbours, len(self.context.names), sender)
        if party in neighbours:
            raise PeerFault(sender, "is its own neighbour", Check.BAD_DRAW)
        if len(message.edges) != commit.POINT_BYTES * len(neighbours):
            raise PeerFault(sender, "does not have one commitment for each neighbour", Check.NOT_ONE_EACH)
        if len(neighbours) > self.parameters.most_neighbours:
            raise PeerFault(
                sender, f"has {len(neighbours)} neighbours, more than any party accepts", Check.BAD_DRAW
            )
        return neighbours

    def check_commit(self, party: int, body: bytes, sender: str) -> v.Commit | str:
        """Return a party's decoded commitments, proofs unverified, or a code in `FALSE` if malformed."""
        try:
            message = self.read_commit(party, body, sender)
            commit.check_commitments(message.value + message.noise_secret + message.edges)
        except (PeerFault, VerificationError):
            return COMMIT_MALFORMED
        return message

    def read_commit(self, party: int, body: bytes, sender: str) -> v.Commit:
        """Decode a party's commitments without checking curve points; raise PeerFault if malformed."""
        message = decode(body, v.Commit, sender)
        self.neighbours_of(party, message, sender)
        expected = self.parameters.value_proof_bytes
        if len(message.range_proof) != expected:
            reason = "range" if self.parameters.bound_squared is None else "norm"
            raise PeerFault(
                sender,
                f"a {reason} proof has {len(message.range_proof)} bytes, {expected} are due",
                Check.BAD_PROOF,
            )
        return message

    def read_publish(self, body: bytes, sender: str) -> v.Publish | str:
        """Return a party's noisy vector, proofs unverified, or a code in `FALSE` if malformed or too big."""
        try:
            message = self._decode_publish(body, sender)
        except PeerFault:
            return MALFORMED
        parameters, older = self.parameters, self.context.version == UNBOUNDED_VERSION
        most = parameters.greatest_published_before if older else parameters.greatest_published
        if max(map(abs, self.integers(message.x_hat, sender))) > most:
            return BOUNDS_BEFORE if older else BOUNDS
        return message

    def _decode_publish(self, body: bytes, sender: str) -> v.Publish:
        """Return a party's decoded noisy vector and proofs; raise PeerFault if malformed."""
        message = decode(body, v.Publish, sender)
        self.ring_vector(message.x_hat, sender)
        if len(message.noise_proof) != proofs.noise_proof_bytes(self.length, self.parameters.bits):
            raise PeerFault(sender, f"a noise proof has {len(message.noise_proof)} bytes", Check.BAD_PROOF)
        try:
            commit.check_blinding(message.blinding)
            commit.check_commitment(message.noise)
        except VerificationError as error:
            raise PeerFault(sender, f"malformed Publish: {error}", Check.MALFORMED) from None
        return message

    def check_open(
        self, party: int, body: bytes, sender: str, owed: Mapping[int, bytes]
    ) -> dict[int, RingVector] | str:
        """Return a party's opened pairwise noise by neighbour, or a code in `FALSE` if it is wrong.

        `owed` are the party's commitments to Delta with each neighbour to which it must open the edge: a
        right opening is of all these and no others.
        """
        try:
            message = decode(body, v.Open, sender)
            parties = unpack_list(message.parties, len(self.context.names), sender)
        except PeerFault:
            return OPENING_MALFORMED
        size = self.parameters.encoding.ring_length * self.parameters.encoding.element_bytes
        if len(message.deltas) != size * len(parties) or len(message.blindings) != 32 * len(parties):
            return OPENING_MALFORMED
        if set(parties) != owed.keys():
            return OPENING_OTHER
        opened, batch = {}, proofs.Batch()
        for i, peer in enumerate(parties):
            opened[peer] = self.ring_vector(message.deltas[size * i : size * (i + 1)], sender)
            values, blinding = signed(opened[peer]), message.blindings[32 * i : 32 * i + 32]
            if max(map(abs, values)) > self.parameters.greatest_delta:
                return OPENING_BOUNDS
            try:
                commit.check_blinding(blinding)
            except VerificationError:
                return OPENING_MALFORMED
            batch.add_opening((party, OPENING, peer), [owed[peer]], (), values, blinding)
        return OPENING if opened and failures(batch) else opened

    def ring_vector(self, packed: bytes, sender: str) -> RingVector:
        """Decode packed ring elements; raise PeerFault on a wrong length."""
        try:
            return self.parameters.encoding.unpack(packed)
        except ValueError as error:
            raise PeerFault(sender, f"malformed vector: {error}", Check.MALFORMED) from None

    def integers(self, packed: bytes, sender: str) -> list[int]:
        """Decode packed ring elements as signed integers; raise PeerFault on a wrong length."""
        return signed(self.ring_vector(packed, sender))

    def values_of(self, ring_vector: RingVector) -> list[int]:
        """Return, as integers, the values that a party commits to for a vector of ring elements."""
        centre = self.parameters.centre
        return [value - centre for value in signed(ring_vector)]

    def prove_values(
        self, name: str, ring_vector: RingVector, blinding: bytes, randomness: Randomness
    ) -> bytes:
        """Return the zero-knowledge proof that a vector's coordinates, or its norm, are within bounds."""
        context, values = self.proof_context(name), self.values_of(ring_vector)
        bound = self.parameters.bound_squared
        if bound is None:
            low, high = self.parameters.bounds
            return proofs.prove_range(context, values, blinding, low, high, randomness)
        return proofs.prove_norm(context, values, blinding, bound, randomness)

    def add_commit(
        self, batch: proofs.Batch | proofs.Statements, party: int, name: str, message: v.Commit
    ) -> None:
        """Add to a batch the proof that a party's vector is within the bounds [Bellet 2021, (4.7)]."""
        context, bound = self.proof_context(name), self.parameters.bound_squared
        value, proof = message.value, message.range_proof
        if bound is None:
            low, high = self.parameters.bounds
            batch.add_range((party, RANGE), context, value, self.length, low, high, proof)
        else:
            batch.add_norm((party, NORM), context, value, self.length, bound, proof)

    def add_publish(
        self,
        batch: proofs.Batch | proofs.Statements,
        party: int,
        name: str,
        message: v.Publish,
        committed: v.Commit,
        edges: Iterable[bytes],
    ) -> None:
        """Add to a batch the proofs that a noisy vector's noise and sum are as committed.

        [Bellet 2021, (4.4) and (4.6)]
        """
        batch.add_noise(
            (party, NOISE),
            self.proof_context(name),
            committed.noise_secret,
            message.noise,
            self.length,
            self.parameters.bits,
            self.bits_of(name),
            message.noise_proof,
        )
        plus = [committed.value, message.noise, *edges]
        values = self.values_of(self.ring_vector(message.x_hat, name))
        batch.add_opening((party, SUM), plus, (), values, message.blinding)

    def is_right(
        self, party: int, name: str, body: bytes, committed: v.Commit, edges: Iterable[bytes]
    ) -> bool:
        """Tell whether a party's published noisy vector is valid, given its commitments and edges."""
        message, batch = self.read_publish(body, name), proofs.Batch()
        if isinstance(message, str):
            return False
        self.add_publish(batch, party, name, message, committed, edges)
        return not failures(batch)

    def attestation(self, phase: str, head: bytes, members: bytes, *false: bytes) -> bytes:
        """Return the digest that parties sign in a step: of run, log hash and remaining parties.

        Before a round of openings also a list of the parties whose edges are to be opened: nobody sees all
        entries, and the parties that go on do not tell whether another was false or silent.
        """
        return self._digest(Label.BOARD_ATTESTATION, phase.encode(), head, members, *false)

    def _digest(self, label: Label, *parts: bytes) -> bytes:
        """Return the hash of the parts, bound to this run and to a label."""
        return digest(label, *self.context.bound, self.run_id, *parts)


def agreements(edges: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
    """Return own edge commitments by party and peer, where both sides' cancel: only their noise counts.

    An edge that only one side claims, or that does not cancel, is void for both: two honest parties always
    agree, so nobody's privacy counted on it. [Bellet 2021, (4.5)]
    """
    result: dict[int, dict[int, bytes]] = {party: {} for party in edges}
    for party, claimed in edges.items():
        for peer, edge in claimed.items():
            if party < peer and (other := edges.get(peer, {}).get(party)) and cancel(edge, other):
                result[party][peer], result[peer][party] = edge, other
    return result


def cancel(first: bytes, second: bytes) -> bool:
    """Tell whether two commitments to pairwise noise are valid points that add up to the identity."""
    try:
        return commit.combine([], [first]) == second
    except VerificationError:
        return False


def signed(ring_vector: RingVector) -> list[int]:
    """Return ring elements modulo 2^64 as signed integers."""
    return [int(value) for value in ring_vector.view(np.int64)]


def failures_among(statements: proofs.Statements) -> Sequence[tuple[Any, ...]]:
    """Verify stored proofs and return the tags of those that are false."""
    return failures(statements.batch())


def failures(batch: proofs.Batch, threads: int = 1) -> Sequence[tuple[Any, ...]]:
    """Verify a batch of zero-knowledge proofs; return the tags of those that are false."""
    try:
        batch.verify(threads)
    except proofs.ProofFailure as failure:
        return [tag for tag in failure.failed if isinstance(tag, tuple)]
    return ()
