"""Commitments and the verifiers of `protocols/proofs/README.md` in plain integers: slow.

Where the core checks one equation about all generators, this folds statement and generators round by round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import isqrt

from Crypto.Hash import TupleHash256

from smpc_dp_verify import ristretto
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.merlin import Transcript
from smpc_dp_verify.ristretto import ORDER, Point

BLINDING, PRODUCT, NORM = ("blinding", 0), ("product", 0), ("norm", 0)
Name = tuple[str, int]


@cache
def generator(name: Name) -> Point:
    """Return the ristretto255 generator of this family and index, hashed to the group."""
    family, index = name
    hasher = TupleHash256.new(digest_bytes=64, custom=b"smpc-dp/1/proofs-generator")
    hasher.update(family.encode()).update(index.to_bytes(4, "big"))
    wide = hasher.digest()
    return ristretto.add(ristretto.map_to_group(wide[:32]), ristretto.map_to_group(wide[32:]))


def multiply(scalar: int, point: Point) -> Point:
    """Return a point multiplied by any integer, also a negative one."""
    return ristretto.times(scalar % ORDER, point)


def total(points: Sequence[Point]) -> Point:
    """Return the sum of points; the identity for none."""
    result = ristretto.IDENTITY
    for point in points:
        result = ristretto.add(result, point)
    return result


def decode_point(data: bytes) -> Point:
    """Decode 32 bytes to a point; raise Refused unless they are a canonical encoding."""
    try:
        return ristretto.decode(_exactly(data))
    except ValueError as error:
        raise Refused(str(error)) from None


def decode_scalar(data: bytes) -> int:
    """Decode 32 bytes to a scalar below the group order; raise Refused for others."""
    scalar = int.from_bytes(_exactly(data), "little")
    if scalar >= ORDER:
        raise Refused("scalar not canonical")
    return scalar


def _exactly(data: bytes) -> bytes:
    if len(data) != 32:
        raise Refused("not 32 bytes")
    return data


def committed(values: Sequence[int], blinding: int) -> Point:
    """Return the Pedersen commitment to a vector of integers with this blinding, as a point."""
    terms = [multiply(value, generator(("value", index))) for index, value in enumerate(values)]
    return total([*terms, multiply(blinding, generator(BLINDING))])


def commit(values: Sequence[int], blinding: bytes) -> bytes:
    """Return the Pedersen commitment to a vector of integers, as 32 bytes."""
    return ristretto.encode(committed(values, decode_scalar(blinding)))


def _challenge(transcript: Transcript, label: bytes) -> int:
    return int.from_bytes(transcript.challenge(label), "little") % ORDER


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


class _Reader:
    def __init__(self, transcript: Transcript, proof: bytes) -> None:
        self.transcript, self._rest = transcript, proof

    def point(self, label: bytes) -> Point:
        data = self._take()
        self.transcript.append(label, data)
        return decode_point(data)

    def scalar(self) -> int:
        return decode_scalar(self._take())

    def end(self) -> None:
        if self._rest:
            raise Refused("bytes after the proof")

    def _take(self) -> bytes:
        taken, self._rest = self._rest[:32], self._rest[32:]
        return taken


def check_product(
    reader: _Reader, p: Point, left: list[Point], right: list[Point], product: Point, y: int
) -> None:
    """Raise Refused unless a folding proof shows P = <a, G> + <b, H> + (sum y^i a_i b_i) U + alpha H_0."""
    kappa = 1
    while len(left) > 1:
        n = len(left) // 2
        cross_l, cross_r = reader.point(b"L"), reader.point(b"R")
        c = _challenge(reader.transcript, b"round")
        d = c * pow(y, n, ORDER) % ORDER
        p = total([p, multiply(c, cross_l), multiply(pow(c, -1, ORDER), cross_r)])
        left = [ristretto.add(lo, multiply(c, hi)) for lo, hi in zip(left[:n], left[n:], strict=True)]
        right = [ristretto.add(multiply(d, lo), hi) for lo, hi in zip(right[:n], right[n:], strict=True)]
        kappa = kappa * d % ORDER
    a, b = reader.point(b"A"), reader.point(b"B")
    e = _challenge(reader.transcript, b"last")
    r, s, delta = reader.scalar(), reader.scalar(), reader.scalar()
    shown = total([multiply(e * e, p), multiply(e, a), b])
    claimed = total(
        [
            multiply(e * r, left[0]),
            multiply(e * s, right[0]),
            multiply(kappa * y * r * s, product),
            multiply(delta, generator(BLINDING)),
        ]
    )
    if not ristretto.is_same(shown, claimed):
        raise Refused("the inner-product argument fails")


def check_bits(reader: _Reader, weights: Sequence[tuple[Name, int]], bits: Point, target: Point) -> None:
    """Raise Refused unless a proof shows that `bits` commits to bits with weighted sums as in `target`."""
    y, z, rho = (_challenge(reader.transcript, label) for label in (b"y", b"z", b"rho"))
    size = _power_of_two(len(weights))
    left = [generator(("left", i)) for i in range(size)]
    right = [generator(("right", i)) for i in range(size)]
    for i, (slot, weight) in enumerate(weights):
        left[i] = ristretto.add(left[i], multiply(rho * weight, generator(slot)))
    constant = (z - z * z) * sum(pow(y, i, ORDER) for i in range(1, size + 1))
    p = total(
        [
            bits,
            multiply(rho, target),
            multiply(-z, total(left)),
            multiply(z, total(right)),
            multiply(constant, generator(PRODUCT)),
        ]
    )
    check_product(reader, p, left, right, generator(PRODUCT), y)


def weights_to(width: int) -> list[int]:
    """Return weights whose subsets have exactly the sums 0 to `width`."""
    powers = [1 << bit for bit in range(width.bit_length() - 1)]
    return [*powers, width - sum(powers)]


def _start(context: bytes, kind: bytes) -> Transcript:
    transcript = Transcript(b"smpc-dp/1/proof")
    transcript.append(b"context", context)
    transcript.append(b"kind", kind)
    return transcript


def _signed(value: int) -> bytes:
    return value.to_bytes(16, "little", signed=True)


Bound = int | Sequence[int]


def verify_range(context: bytes, commitment: bytes, length: int, lo: Bound, hi: Bound, proof: bytes) -> None:
    """Raise Refused unless a proof shows each committed coordinate in [lo, hi], or in its own range."""
    lows, highs = ([side] if isinstance(side, int) else list(side) for side in (lo, hi))
    transcript = _start(context, b"range" if len(lows) == 1 else b"box")
    transcript.append_uint(b"length", length)
    transcript.append(b"low", b"".join(map(_signed, lows)))
    transcript.append(b"high", b"".join(map(_signed, highs)))
    transcript.append(b"values", commitment)
    if len(lows) == 1:
        lows, highs = lows * length, highs * length
    reader = _Reader(transcript, proof)
    bits = reader.point(b"bits")
    target = total([decode_point(commitment), committed([-low for low in lows], 0)])
    weights = [
        (("value", c), weight)
        for c, (low, high) in enumerate(zip(lows, highs, strict=True))
        for weight in weights_to(high - low)
    ]
    check_bits(reader, weights, bits, target)
    reader.end()


def verify_noise(
    context: bytes,
    secret_commitment: bytes,
    noise_commitment: bytes,
    length: int,
    bits: int,
    coins: bytes,
    proof: bytes,
) -> None:
    """Raise Refused unless a proof shows that committed noise is that of the secret bits and the coins."""
    coin = [coins[i // 8] >> i % 8 & 1 for i in range(length * bits)]
    transcript = _start(context, b"noise")
    transcript.append_uint(b"length", length)
    transcript.append_uint(b"bits-each", bits)
    transcript.append(b"coins", bytes(coin))
    transcript.append(b"bits", secret_commitment)
    transcript.append(b"values", noise_commitment)
    reader = _Reader(transcript, proof)
    offsets = [bits // 2 - sum(coin[c * bits : (c + 1) * bits]) for c in range(length)]
    target = total([decode_point(noise_commitment), committed(offsets, 0)])
    weights = [(("value", i // bits), 1 - 2 * b) for i, b in enumerate(coin)]
    check_bits(reader, weights, decode_point(secret_commitment), target)
    reader.end()


def range_proof_bytes(digits: int) -> int:
    """Return the length in bytes of a range proof about `digits` binary digits."""
    return 32 * (2 * (digits - 1).bit_length() + 6)


def noise_proof_bytes(bits: int) -> int:
    """Return the length in bytes of a noise proof about `bits` bits of all coordinates."""
    return 32 * (2 * (bits - 1).bit_length() + 5)


def norm_proof_bytes(length: int, bound_squared: int) -> int:
    """Return the length in bytes of a proof that a vector's L2 norm is bounded."""
    digits = length * (2 * isqrt(bound_squared)).bit_length() + bound_squared.bit_length()
    return 32 * (2 * (length - 1).bit_length() + 2 * (digits - 1).bit_length() + 13)


def verify_norm(context: bytes, commitment: bytes, length: int, bound_squared: int, proof: bytes) -> None:
    """Raise Refused unless a proof shows that the squares of a committed vector sum to at most the bound."""
    transcript = _start(context, b"norm")
    transcript.append_uint(b"length", length)
    transcript.append(b"bound", _signed(bound_squared))
    transcript.append(b"values", commitment)
    reader = _Reader(transcript, proof)
    v = decode_point(commitment)
    squares, of_norm = reader.point(b"squares"), reader.point(b"norm")
    y, z, rho, tau = (_challenge(transcript, label) for label in (b"y", b"z", b"rho", b"tau"))
    size = _power_of_two(length)
    shifts = [z * pow(y, c, ORDER) for c in range(1, size + 1)]
    left = [
        ristretto.add(generator(("left", c)), multiply(rho, generator(("value", c)))) for c in range(size)
    ]
    right = [generator(("right", c)) for c in range(size)]
    base = multiply(tau, generator(NORM))
    p = total(
        [
            squares,
            multiply(rho, v),
            multiply(tau, of_norm),
            *[multiply(-shift, point) for shift, point in zip(shifts, left, strict=True)],
            *[multiply(shift, point) for shift, point in zip(shifts, right, strict=True)],
            multiply(-sum(shift * shift for shift in shifts), base),
        ]
    )
    check_product(reader, p, left, right, base, 1)
    bits = reader.point(b"bits")
    root = isqrt(bound_squared)
    target = total(
        [
            v,
            committed([root] * length, 0),
            multiply(bound_squared, generator(NORM)),
            multiply(-1, of_norm),
        ]
    )
    weights = [(("value", c), weight) for c in range(length) for weight in weights_to(2 * root)]
    weights += [(NORM, weight) for weight in weights_to(bound_squared)]
    check_bits(reader, weights, bits, target)
    reader.end()
