"""Zero-knowledge proofs about committed vectors: bounds, norms, and noise from committed bits.

`docs/proofs/zero-knowledge.md` gives statements, sizes and what they rest on. Every proof is bound
to a context (`context`: run, author, and what else is public) and to all parts of its statement. A
verification returns nothing or raises VerificationError; `Batch` checks many at once and names the false
ones.

    secret = NoiseSecret.draw(length, bits, randomness)     secret.commitment  --> published
    public coins, known to nobody before that                                  <-- coins
    noise, proof = secret.prove(context, coins, blinding, randomness)          --> published
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from smpc_dp import _core
from smpc_dp.crypto.commit import WIDE_BYTES
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.errors import Check, LocalError, VerificationError

SEED_BYTES = 32
MAX_BITS = _core.MAX_PROOF_BITS
"""Most bits of one proof: coordinates times the bits of each."""
# A bound of all coordinates, or one for each.
Bound = int | Sequence[int]
# Random bytes for secret bits, and for their blinding.
SecretBytes = tuple[bytes, bytes]


class ProofFailure(VerificationError):
    """Error of a batch in which statements are false or malformed; the text names the first ten tags.

    `failed` holds all tags, in the order of adding.
    """

    def __init__(self, failed: Sequence[Hashable], checked: int) -> None:
        self.failed = tuple(failed)
        named = ", ".join(str(tag) for tag in self.failed[:10])
        more = f" and {len(self.failed) - 10} more" if len(self.failed) > 10 else ""
        super().__init__(
            f"{len(self.failed)} of {checked} statements are false: {named}{more}", Check.BAD_PROOF
        )


def context(run_id: bytes, author: str, *public: bytes) -> bytes:
    """Return a 32-byte hash that binds a zero-knowledge proof to run, author and public values.

    A proof made in one context is false in every other.
    """
    return digest(Label.PROOF_CONTEXT, run_id, author.encode(), *public)


def group_sums(seed: bytes, decoded: int, public: Sequence[int], secret: Sequence[int]) -> None:
    """Do point decodings and multi-scalar sums of these sizes, for a benchmark; return nothing.

    `public` in the time that their scalars take, `secret` in constant time. `seed` has 32 bytes.
    """
    _core.group_sums(seed, decoded, public, secret)


def prove_range(
    context: bytes, values: Sequence[int], blinding: bytes, lo: Bound, hi: Bound, randomness: Randomness
) -> bytes:
    """Return a zero-knowledge proof that each committed value is in [lo, hi]; ValueError if one is not.

    `lo` and `hi` are both numbers, or both sequences of one number for each coordinate: a box.

    Returns `range_proof_bytes(len(values), lo, hi)` bytes. Raises ValueError for a value out of range, for
    lo >= hi, bounds of 2**126 or more in magnitude, another number of them, or more than MAX_BITS bits.
    """
    low, high = _ranges(len(values), lo, hi)
    return _core.prove_range(context, values, blinding, low, high, randomness.bytes(SEED_BYTES))


def verify_range(context: bytes, commitment: bytes, length: int, lo: Bound, hi: Bound, proof: bytes) -> None:
    """Raise VerificationError unless `proof` shows that `commitment` is to `length` values in [lo, hi].

    The proof also shows that its author knew the blinding. Raises ValueError as `prove_range`.
    """
    batch = Batch()
    batch.add_range("range proof", context, commitment, length, lo, hi, proof)
    batch.verify()


def range_proof_bytes(length: int, lo: Bound, hi: Bound) -> int:
    """Return the length in bytes of a range proof for `length` values with these bounds.

    It is 32 (2 log2 N + 6) for N bits, rounded up to a power of two.
    """
    return _core.range_proof_bytes(length, *_ranges(length, lo, hi))


def _ranges(length: int, lo: Bound, hi: Bound) -> tuple[Sequence[int], Sequence[int]]:
    """Return lower and upper bounds as sequences: of one bound, or of one for each value; or ValueError."""
    if isinstance(lo, int) and isinstance(hi, int):
        return (lo,), (hi,)
    if isinstance(lo, int) or isinstance(hi, int) or not len(lo) == len(hi) == length:
        raise ValueError(f"lo, hi: not both one number, nor both {length}")
    return lo, hi


def prove_norm(
    context: bytes, values: Sequence[int], blinding: bytes, bound_squared: int, randomness: Randomness
) -> bytes:
    """Return a zero-knowledge proof that squares of committed values sum to at most a bound; or ValueError.

    Returns `norm_proof_bytes(len(values), bound_squared)` bytes. Raises ValueError for values beyond the
    bound, a bound that is not from 1 to 2**126 - 1, or more than MAX_BITS bits.
    """
    return _core.prove_norm(context, values, blinding, bound_squared, randomness.bytes(SEED_BYTES))


def verify_norm(context: bytes, commitment: bytes, length: int, bound_squared: int, proof: bytes) -> None:
    """Raise VerificationError unless the proof shows that committed values' squares sum to at most the bound.

    Raises ValueError as `prove_norm`.
    """
    batch = Batch()
    batch.add_norm("norm proof", context, commitment, length, bound_squared, proof)
    batch.verify()


def norm_proof_bytes(length: int, bound_squared: int) -> int:
    """Return the length in bytes of a proof that a committed vector's norm is bounded."""
    return _core.norm_proof_bytes(length, bound_squared)


class NoiseSecret:
    """Secret bits of one party from which, with public coins, its provable noise follows.

    Coordinate c of the noise is (number of k with secret bit and coin c, k different) - bits/2: with uniform
    coins, a centred binomial of variance bits/4.
    """

    def __init__(self, length: int, bits: int, packed: bytes, wide: bytes) -> None:
        """Build the bits from `coin_bytes` uniform bytes, and the blinding from 64; see `draw`."""
        self.length = length
        self.bits = bits
        self._core: _core.NoiseSecret | None = _core.NoiseSecret(length, bits, packed, wide)
        self.commitment = self._core.commitment

    @classmethod
    def draw(cls, length: int, bits: int, randomness: Randomness) -> NoiseSecret:
        """Draw a fresh secret for noise in `length` coordinates, `bits` (even) bits in each.

        Raises ValueError beyond MAX_BITS.
        """
        return cls(length, bits, *draw_secret_bytes(length, bits, randomness))

    def __repr__(self) -> str:
        return f"NoiseSecret(length={self.length}, bits={self.bits})"

    def noise(self, coins: bytes) -> list[int]:
        """Return the noise of each coordinate for public coins; raise LocalError after `prove`."""
        return self._unused().values(coins)

    def prove(
        self, context: bytes, coins: bytes, blinding: bytes, randomness: Randomness
    ) -> tuple[bytes, bytes]:
        """Return (commitment to the noise for these coins, proof), once: LocalError at a second call.

        Raises ValueError for coins of another length, LocalError the second time.
        """
        core, self._core = self._unused(), None  # first: another thread may call meanwhile
        try:
            return core.prove(context, coins, blinding, randomness.bytes(SEED_BYTES))
        except ValueError:
            self._core = core
            raise

    def _unused(self) -> _core.NoiseSecret:
        """Return the native secret; raise LocalError if a proof has used it up."""
        if self._core is None:
            raise LocalError("noise: the secret bits are used up by their proof")
        return self._core


def draw_secret_bytes(length: int, bits: int, randomness: Randomness) -> SecretBytes:
    """Draw the random bytes (for the secret bits, for their blinding) that build a noise secret later."""
    return randomness.bytes(coin_bytes(length, bits)), randomness.bytes(WIDE_BYTES)


def verify_noise(
    context: bytes,
    secret_commitment: bytes,
    noise_commitment: bytes,
    length: int,
    bits: int,
    coins: bytes,
    proof: bytes,
) -> None:
    """Raise VerificationError unless the committed noise follows from committed bits and the coins.

    Raises ValueError for coins of another length or numbers out of range.
    """
    batch = Batch()
    batch.add_noise("noise proof", context, secret_commitment, noise_commitment, length, bits, coins, proof)
    batch.verify()


def coin_bytes(length: int, bits: int) -> int:
    """Return how many bytes of public coins noise in `length` coordinates of `bits` bits takes.

    Coin k of coordinate c is bit number c bits + k; the least significant bit of a byte comes first. Bits
    beyond the last are ignored.
    """
    return _core.noise_bytes(length, bits)[0]


def noise_proof_bytes(length: int, bits: int) -> int:
    """Return the length in bytes of a proof that committed noise was derived correctly.

    It is 32 (2 log2 N + 5) for N bits, rounded up to a power of two.
    """
    return _core.noise_bytes(length, bits)[1]


class Batch:
    """Verifier that collects zero-knowledge proofs and openings, and checks all of them together.

    The tag of a statement names it in the failure; tags may repeat. A malformed statement counts as false.
    Memory grows with the proofs: add a few thousand at a time.
    """

    def __init__(self) -> None:
        """Create an empty batch."""
        self._core = _core.ProofBatch()
        self._tags: list[Hashable] = []

    def __len__(self) -> int:
        return len(self._tags)

    def add_opening(
        self,
        tag: Hashable,
        plus: Sequence[bytes],
        minus: Sequence[bytes],
        values: Sequence[int],
        blinding: bytes,
    ) -> None:
        """Store the claim that sum(plus) - sum(minus) of commitments opens to these values, for `verify`."""
        self._core.add_opening(plus, minus, values, blinding)
        self._tags.append(tag)

    def add_range(
        self,
        tag: Hashable,
        context: bytes,
        commitment: bytes,
        length: int,
        lo: Bound,
        hi: Bound,
        proof: bytes,
    ) -> None:
        """Store a range proof in the batch, to be checked by `verify`."""
        low, high = _ranges(length, lo, hi)
        self._core.add_range(context, commitment, length, low, high, proof)
        self._tags.append(tag)

    def add_norm(
        self, tag: Hashable, context: bytes, commitment: bytes, length: int, bound_squared: int, proof: bytes
    ) -> None:
        """Store a norm proof in the batch, to be checked by `verify`."""
        self._core.add_norm(context, commitment, length, bound_squared, proof)
        self._tags.append(tag)

    def add_noise(
        self,
        tag: Hashable,
        context: bytes,
        secret_commitment: bytes,
        noise_commitment: bytes,
        length: int,
        bits: int,
        coins: bytes,
        proof: bytes,
    ) -> None:
        """Store a proof of noise in the batch, to be checked by `verify`."""
        self._core.add_noise(context, secret_commitment, noise_commitment, length, bits, coins, proof)
        self._tags.append(tag)

    def verify(self, threads: int = 1) -> None:
        """Check all collected statements and empty the batch; ProofFailure names those that are false.

        Raises ProofFailure that names the false statements, and ValueError unless `threads` is 1 to 256:
        then, as after any error but ProofFailure, the statements stay.
        """
        failed = self._core.find_false(threads)
        tags, self._tags = self._tags, []
        if failed:
            raise ProofFailure([tags[number] for number in failed], len(tags))


class Statements:
    """List of proofs and openings, unchecked, that can be sent to another process for a batch check."""

    def __init__(self) -> None:
        """Create a list without statements."""
        self._added: list[tuple[str, tuple[Any, ...]]] = []

    def add_opening(self, *statement: Any) -> None:
        """Append the claim that commitments open to given values; nothing is checked here."""
        self._added.append(("add_opening", statement))

    def add_range(self, *statement: Any) -> None:
        """Append a range proof to the list; nothing is checked here."""
        self._added.append(("add_range", statement))

    def add_norm(self, *statement: Any) -> None:
        """Append a norm proof to the list; nothing is checked here."""
        self._added.append(("add_norm", statement))

    def add_noise(self, *statement: Any) -> None:
        """Append a proof of noise to the list; nothing is checked here."""
        self._added.append(("add_noise", statement))

    def batch(self) -> Batch:
        """Return a batch verifier with all listed statements; nothing is verified yet."""
        batch = Batch()
        for name, statement in self._added:
            getattr(batch, name)(*statement)
        return batch
