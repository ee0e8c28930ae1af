"""GOPA from its specification alone: the twin of secure aggregation with noise in the place of masks.

Steps, hashes and signatures are that twin's, samples those of the sampling twin; nothing of the library.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

from smpc_dp_verify.encodings import party_set
from tests.reference import checked_twin, sampling_twin, secagg_twin
from tests.reference.secagg_twin import Message, Party

Ends = tuple[dict[Message, tuple[str, str]], dict[str, Any]]


def execute(vector: dict[str, Any]) -> Ends:
    """Return (body digest, signature) by (step, sender, receiver) of all messages but aborts, and the end."""
    kinds = {"keep": Keep, "roll-back": MerkleCommitmentBack, "checked": Checked}
    session = vector["session"]
    return kinds[session.get("total", session["on_dropout"])](vector).execute()


@functools.cache
def _table(variance: int) -> sampling_twin.Table:
    return sampling_twin.table(sampling_twin.gaussian(Fraction(variance)))


def noise(seed: bytes, purpose: str, variance: int, count: int) -> list[int]:
    """`count` values of the first call, a discrete Gaussian, of the source of this seed and purpose."""
    source = sampling_twin.source_key(seed, b"gopa", purpose.encode())
    key = sampling_twin.call_key(source, 0, "discrete-gaussian", Fraction(variance))
    distribution = _table(variance)
    return sampling_twin.samples(key, count, lambda words: sampling_twin.draw(words, distribution))


class MerkleCommitmentBack(secagg_twin.Session):
    """x_hat travels under a self-mask, in the place of the vector of secure aggregation."""

    def __init__(self, vector: dict[str, Any]) -> None:
        super().__init__(vector)
        self.own: dict[Party, list[int]] = {}

    def own_noise(self, p: Party) -> list[int]:
        """eta: its key is the last thing that a party draws, where its total is not checked."""
        if p not in self.own:
            self.own[p] = noise(p.take(), "own", self.session["own_variance"], len(p.ring_vector))
        return self.own[p]

    def pair_terms(self, p: Party, secret: bytes, q: Party) -> list[int]:
        """Delta of a pair, from the seed of its mask: plus at the smaller number."""
        seed = self.run.pair_seed(secret, secagg_twin.public_key(q.mask_secret), p.name, q.name)
        terms = noise(seed, "pair", self.session["pair_variance"], len(p.ring_vector))
        return terms if p.number < q.number else [-term for term in terms]

    def masked(self, p: Party, participants: list[Party]) -> list[int]:
        """x_hat under the self-mask."""
        return self.reduced(super().masked(p, participants), self.own_noise(p))

    def offset(self, element: int) -> int:
        """With noise a total may lie below the lower bounds."""
        return element - 2**64 if element >= 2**63 else element


class Checked(checked_twin.Session, MerkleCommitmentBack):
    """Each receiver checks the total: a party commits to its vector with its own noise."""

    def committed_noise(self, p: Party) -> list[int]:
        """eta, which a party draws before its blinding."""
        return self.own_noise(p)

    def masked(self, p: Party, participants: list[Party]) -> list[int]:
        """x_hat under the self-mask, from a vector that has its noise already."""
        return secagg_twin.Session.masked(self, p, participants)

    def offset(self, element: int) -> int:
        """As without a check."""
        return MerkleCommitmentBack.offset(self, element)


class Keep(MerkleCommitmentBack):
    """Five steps: who reveals takes part, and what a lost party shared with others stays in the total."""

    def self_mask(self, p: Party, seed: bytes) -> list[int]:
        """There is none."""
        assert seed == b""
        return [0] * len(p.ring_vector)

    def _go_on(self, revealed: list[Party]) -> Ends:
        n = len(self.names)
        members = party_set([p.number for p in revealed], n)
        digest = self.run.digest("participants", self.merkle_commitment_digest, members)
        attesting = self.speakers(4, revealed)
        publishing = self._certify("attest-participants", "participants", digest, attesting, 5)
        x_hat = {p: self.masked(p, revealed) for p in publishing}
        for p in publishing:
            self.send(self.run, "publish", p.name, self.aggregator, (self.packed(x_hat[p]),))
        total = self.reduced(*x_hat.values())
        residual = sum(q in publishing for p in revealed if p not in publishing for q in p.neighbours)
        published = party_set([p.number for p in publishing], n)
        for p in publishing:
            self.send(self.run, "average", self.aggregator, p.name, (self.packed(total), published, residual))
        return self.messages, {
            "intermediate": {
                "run_id": self.run.run_id.hex(),
                "participants_digest": digest.hex(),
                "survivors_digest": None,
                "masked": {p.name: self.packed(ring_vector).hex() for p, ring_vector in x_hat.items()},
            },
            "result": {
                "survivors": [p.name for p in publishing],
                "absent": [p.name for p in self.parties if p not in publishing],
                "weight": len(publishing),
                "fixed_point": [
                    self.offset(element) + len(publishing) * self.encoding["lowest"] for element in total
                ],
                "residual_pairs": residual,
                "total": self.packed(total).hex(),
            },
        }
