"""Recomputes the total from the publications, for a party that checks the aggregator's.

The aggregator sends the entries of the counted parties: each publication, and each opening. The party has
followed the hash of every entry, so the entries are those under the heads that it signs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.gopa.verifiable.statements import Rules
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.logs.followed import Followed
from smpc_dp.logs.log import entry_digest
from smpc_dp.wire.signing import decode, encode

SIGNATURE = m.SIGNATURE_BYTES


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive log entries of one step: the first's number, and the authors in ascending order."""

    kind: str
    first: int
    authors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recount:
    """Recomputes a run's total from signed log entries: noisy vectors minus opened pairwise noise."""

    rules: Rules
    log: Followed
    batches: Sequence[Batch]

    def total(self, counted: Collection[int], claimed: Sequence[v.Claimed]) -> RingVector:
        """Return the counted vectors' sum minus the noise they opened; PeerFault if one is not as logged.

        Raises PeerFault, of the aggregator, if an entry is not on the board, or not signed by its author.
        """
        relay = self.rules.context.aggregator
        try:
            return self._total(counted, claimed)
        except (ValueError, PeerFault, VerificationError) as error:
            # Whatever an author did, the aggregator has counted it.
            raise PeerFault(relay, f"does not show what is in its total: {error}", Check.NOT_SHOWN) from None

    def _total(self, counted: Collection[int], claimed: Sequence[v.Claimed]) -> RingVector:
        """Return the recomputed total; raise if an entry is malformed, not in the log, or not signed."""
        total = np.zeros(self.rules.parameters.encoding.ring_length, dtype=np.uint64)
        for batch, shown in zip(self.batches, claimed, strict=True):
            authors = [(at, party) for at, party in enumerate(batch.authors) if party in counted]
            if len(shown.signatures) != SIGNATURE * len(authors):
                raise ValueError(f"{len(authors)} signatures of '{batch.kind}' are due")
            for position, ((at, party), body) in enumerate(zip(authors, shown.bodies, strict=True)):
                signature = shown.signatures[SIGNATURE * position : SIGNATURE * (position + 1)]
                self._add(
                    total, batch.kind, batch.first + at, self.rules.context.names[party - 1], body, signature
                )
        return total

    def _add(
        self, total: RingVector, kind: str, number: int, name: str, body: bytes, signature: bytes
    ) -> None:
        """Verify a log entry; add its noisy vector to the total in place, or subtract the noise it opens."""
        publishes = kind == v.PUBLISH
        if publishes:
            body = widen(self.rules.parameters, body)
        if entry_digest(number, name, kind, body, signature) != self.log.digest(number):
            raise ValueError(f"entry {number}, of {name}, is another")
        try:
            self.rules.context.check_detached(
                self.rules.run_id, kind, name, self.rules.context.aggregator, body, signature
            )
        except PeerFault:
            raise ValueError(f"{name} did not sign entry {number}") from None
        if publishes:
            total += self.rules.ring_vector(decode(body, v.Publish, name).x_hat, name)
            return
        deltas = decode(body, v.Open, name).deltas
        size = total.nbytes
        for position in range(0, len(deltas), size):
            total -= self.rules.ring_vector(deltas[position : position + size], name)


def narrow(parameters: VerifiableParameters, body: bytes) -> bytes:
    """Return a party's published noisy vector re-encoded with as few bytes as its bounds need."""
    message = decode(body, v.Publish, "")
    ring_vector = np.frombuffer(message.x_hat, dtype=np.uint8).reshape(-1, 8)
    return encode(replace(message, x_hat=ring_vector[:, : parameters.published_bytes].tobytes()))


def widen(parameters: VerifiableParameters, body: bytes) -> bytes:
    """Return a published vector's full encoding from its short one; ValueError or PeerFault if malformed."""
    message, size = decode(body, v.Publish, ""), parameters.published_bytes
    short = np.frombuffer(message.x_hat, dtype=np.uint8).reshape(-1, size)
    ring_vector = np.where(short[:, -1:] >= 0x80, 0xFF, 0).astype(np.uint8).repeat(8, axis=1)
    ring_vector[:, :size] = short
    return encode(replace(message, x_hat=ring_vector.tobytes()))
