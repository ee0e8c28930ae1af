"""Checked totals from their specification alone: slow, plain integers, nothing of the library.

Steps and hashes are those of the twin of secure sums, the group is the second auditor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from Crypto.Cipher import AES
from Crypto.Hash import TupleHash256

from smpc_dp_verify.encodings import party_set
from smpc_dp_verify.ristretto import ORDER, Point, add, encode, map_to_group, times
from tests.reference import sampling_twin, secagg_twin
from tests.reference.merkle_twin import Tree
from tests.reference.secagg_twin import Message, Party, public_key, sign


def generator(family: str, index: int) -> Point:
    """A generator of vector commitments."""
    hasher = TupleHash256.new(digest_bytes=64, custom=b"smpc-dp/1/vector-generator")
    wide = hasher.update(family.encode()).update(index.to_bytes(4, "big")).digest()
    return add(map_to_group(wide[:32]), map_to_group(wide[32:]))


def commit(values: Sequence[int], blinding: int) -> bytes:
    """The commitment to integers."""
    point = times(blinding % ORDER, generator("blinding", 0))
    for index, value in enumerate(values):
        point = add(point, times(value % ORDER, generator("value", index)))
    return encode(point)


def noise(key: bytes, variance: int, count: int) -> list[int]:
    """A party's share of the noise: the first call, a discrete Gaussian, of the source of this key."""
    source = sampling_twin.source_key(key, b"secagg", b"noise")
    called = sampling_twin.call_key(source, 0, "discrete-gaussian", Fraction(variance))
    distribution = sampling_twin.table(sampling_twin.gaussian(Fraction(variance)))
    return sampling_twin.samples(called, count, lambda words: sampling_twin.draw(words, distribution))


def scalar(value: int) -> bytes:
    """A scalar as it travels."""
    return (value % ORDER).to_bytes(32, "little")


class Session(secagg_twin.Session):
    """A run whose receivers check the total."""

    def __init__(self, vector: dict[str, Any]) -> None:
        super().__init__(vector)
        self.blindings: dict[str, int] = {}
        self.points: dict[str, bytes] = {}
        self.signatures_of: dict[str, bytes] = {}
        self.masked_blindings: dict[str, int] = {}

    def prepare(self, p: Party) -> None:
        """Add noise, if any, draw a blinding, and commit."""
        values = [a + b for a, b in zip(p.ring_vector, self.committed_noise(p), strict=True)]
        p.ring_vector = self.reduced(values)
        self.blindings[p.name] = int.from_bytes(p.take(), "little") % ORDER
        self.points[p.name] = commit(values, self.blindings[p.name])

    def committed_noise(self, p: Party) -> list[int]:
        """The noise in what a party commits to."""
        variance, count = self.session.get("noise_variance"), len(p.ring_vector)
        return noise(p.take(), variance, count) if variance else [0] * count

    def offset(self, element: int) -> int:
        """With noise a total may lie below the lower bounds."""
        return element - 2**64 if "noise_variance" in self.session and element >= 2**63 else element

    def hidden(self, p: Party) -> bytes:
        """The commitment to the commitment."""
        return self.run.digest("value-commitment", p.name, self.points[p.name])

    def of_advertise(self, p: Party) -> Sequence[bytes]:
        """The commitment to the commitment."""
        return (self.hidden(p),)

    def trees(self) -> Sequence[Tree]:
        """The tree of values."""
        return (Tree("values", [(p.name.encode(), self.hidden(p)) for p in self.advertised]),)

    def blinding_mask(self, p: Party, seed: bytes) -> int:
        """What follows the lanes of the elements in the keystream of a mask."""
        start = len(p.ring_vector) * (4 if self.encoding["element_bytes"] <= 4 else 8)
        stream = AES.new(seed, AES.MODE_CTR, nonce=b"", initial_value=bytes(16)).encrypt(bytes(start + 64))
        return int.from_bytes(stream[start:], "little") % ORDER

    def opening(self, p: Party, participants: list[Party], digest: bytes) -> Sequence[bytes]:
        """The commitment, the masked blinding, and a signature."""
        masked = self.blindings[p.name] + self.blinding_mask(
            p, self.run.digest("self-mask", p.name, p.self_seed)
        )
        for q in p.neighbours:
            if q in participants:
                seed = self.run.pair_seed(p.mask_secret, public_key(q.mask_secret), p.name, q.name)
                masked += (1 if p.number < q.number else -1) * self.blinding_mask(p, seed)
        point = self.points[p.name]
        statement = self.run.digest("value-opening", digest, p.name, point)
        self.signatures_of[p.name] = sign(p.seed, statement)
        return point, scalar(masked), self.signatures_of[p.name]

    def of_result(self, survivors: list[Party]) -> Sequence[bytes]:
        """The sum of the blindings, and the commitments of all."""
        shown = b"".join(self.points[p.name] + self.signatures_of[p.name] for p in survivors)
        hidden = b"".join(self.hidden(p) for p in self.advertised if p not in survivors)
        return scalar(sum(self.blindings[p.name] for p in survivors)), shown, hidden


class SessionOfMany(Session):
    """A run in which some check the total for all."""

    def announce(self, total: bytes, survivors: list[Party], left: list[Party], digest: bytes) -> None:
        """Show the total to the checkers; send it to all, with a certificate of what they attest."""
        blinding, *shown = self.of_result(survivors)
        corrupt, dropouts = int(self.session["max_corrupt"]), int(self.session["max_dropouts"])
        quorum, absent = corrupt + 1, len(self.names) - len(left)
        count = min(len(left), 2 * corrupt + 1 + max(0, dropouts - absent))
        first = int.from_bytes(self.run.run_id, "big") % len(left)
        chosen = [left[(first + index) % len(left)] for index in range(count)]
        checkers = [p for p in left if p in chosen]
        for p in checkers:
            self.send(self.run, "total", self.aggregator, p.name, (total, blinding, *shown))
        attested = self.run.digest("total", digest, total, blinding)
        attesting = self.speakers(9, checkers)
        for p in attesting:
            self.send(self.run, "attest-total", p.name, self.aggregator, (attested,))
        # So few that no sample has fewer bytes.
        signers = attesting[:quorum]
        signatures = b"".join(self.signatures["attest-total", p.name, self.aggregator] for p in signers)
        packed = party_set([p.number for p in signers], len(self.names))
        certificate = (packed, signatures, b"", b"")
        for p in left:
            if p in attesting or p not in checkers:
                self.send(self.run, "result", self.aggregator, p.name, (total, blinding, certificate))


def execute(vector: dict[str, Any]) -> tuple[dict[Message, tuple[str, str]], dict[str, Any]]:
    """As of the twin of secure sums."""
    kind = SessionOfMany if "max_corrupt" in vector["session"] else Session
    return kind(vector).execute()
