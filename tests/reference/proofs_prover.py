"""A prover in plain integers that proves what it is told to, true or not: for negative tests alone.

It takes the committed vectors of `protocols/proofs/README.md` as they are, so that one condition can be
broken at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_verify import ristretto
from smpc_dp_verify.merlin import Transcript
from smpc_dp_verify.proofs import (
    BLINDING,
    NORM,
    PRODUCT,
    Name,
    generator,
    multiply,
    total,
    weights_to,
)
from smpc_dp_verify.ristretto import ORDER, Point


class Prover:
    """One proof: `transcript` so far, and the bytes of the proof."""

    def __init__(self, transcript: Transcript, seed: int = 1) -> None:
        self.transcript = transcript
        self.proof = b""
        self._randomness = SeededRandomnessForSimulation(seed, "prover")

    def random(self) -> int:
        """A uniform scalar."""
        return int.from_bytes(self._randomness.bytes(64), "little") % ORDER

    def send(self, label: bytes, point: Point) -> None:
        """Append a point to transcript and proof."""
        data = ristretto.encode(point)
        self.transcript.append(label, data)
        self.proof += data

    def challenge(self, label: bytes) -> int:
        """Draw a challenge."""
        return int.from_bytes(self.transcript.challenge(label), "little") % ORDER

    def product(
        self,
        a: list[int],
        b: list[int],
        alpha: int,
        left: list[Point],
        right: list[Point],
        product: Point,
        y: int,
    ) -> None:
        """The inner-product argument."""
        kappa, blinding = 1, generator(BLINDING)
        while len(a) > 1:
            n = len(a) // 2
            y_n = pow(y, n, ORDER)
            blinds = self.random(), self.random()

            def weighted(a: list[int], b: list[int]) -> int:
                return sum(pow(y, i, ORDER) * a * b for i, (a, b) in enumerate(zip(a, b, strict=True), 1))

            for label, of_a, of_b, to_left, to_right, shift, scale, blind in (
                (b"L", a[:n], b[n:], left[n:], right[:n], y_n, kappa * y_n, blinds[0]),
                (b"R", a[n:], b[:n], left[:n], right[n:], pow(y_n, -1, ORDER), kappa, blinds[1]),
            ):
                terms = [*map(multiply, of_a, to_left)]
                terms += [multiply(shift * value, point) for value, point in zip(of_b, to_right, strict=True)]
                terms += [multiply(scale * weighted(of_a, of_b), product), multiply(blind, blinding)]
                self.send(label, total(terms))
            c = self.challenge(b"round")
            c_inverse, d = pow(c, -1, ORDER), c * y_n % ORDER
            d_inverse = pow(d, -1, ORDER)
            a = [(lo + c_inverse * hi) % ORDER for lo, hi in zip(a[:n], a[n:], strict=True)]
            b = [(d_inverse * lo + hi) % ORDER for lo, hi in zip(b[:n], b[n:], strict=True)]
            left = [ristretto.add(lo, multiply(c, hi)) for lo, hi in zip(left[:n], left[n:], strict=True)]
            right = [ristretto.add(multiply(d, lo), hi) for lo, hi in zip(right[:n], right[n:], strict=True)]
            alpha += c * blinds[0] + c_inverse * blinds[1]
            kappa = kappa * d % ORDER
        r, s, delta, eta = (self.random() for _ in range(4))
        scale = kappa * y
        mixed = multiply(scale * (r * b[0] + s * a[0]), product)
        self.send(
            b"A", total([multiply(r, left[0]), multiply(s, right[0]), mixed, multiply(delta, blinding)])
        )
        self.send(b"B", total([multiply(scale * r * s, product), multiply(eta, blinding)]))
        e = self.challenge(b"last")
        for answer in (r + e * a[0], s + e * b[0], eta + e * delta + e * e * alpha):
            self.proof += (answer % ORDER).to_bytes(32, "little")

    def bits(
        self,
        weights: Sequence[tuple[Name, int]],
        in_left: Sequence[int],
        in_right: Sequence[int],
        alpha: int,
        gamma: int,
        in_target: Sequence[int] = (),
        free: int = 0,
    ) -> None:
        """The argument about bits; honestly `in_right` is `in_left` less one, and T has no G: `in_target`.

        The last `free` places are left out of what shows that bits are bits.
        """
        y, z, rho = (self.challenge(label) for label in (b"y", b"z", b"rho"))
        size = len(in_left)
        in_target = in_target or [0] * size
        shifts = [z] * (size - free) + [0] * free
        left = [generator(("left", i)) for i in range(size)]
        for i, (slot, weight) in enumerate(weights):
            left[i] = ristretto.add(left[i], multiply(rho * weight, generator(slot)))
        self.product(
            [s + rho * t - shift for s, t, shift in zip(in_left, in_target, shifts, strict=True)],
            [s + shift for s, shift in zip(in_right, shifts, strict=True)],
            alpha + rho * gamma,
            left,
            [generator(("right", i)) for i in range(size)],
            generator(PRODUCT),
            y,
        )


def filled(digits: Sequence[int], fill: int = 0) -> list[int]:
    """Digits up to a power of two of them."""
    return [*digits, *[fill] * ((1 << (len(digits) - 1).bit_length()) - len(digits))]


def commit_bits(in_left: Sequence[int], in_right: Sequence[int], alpha: int) -> Point:
    """A: what should be bits on one side, and them less one on the other."""
    left = [multiply(s, generator(("left", i))) for i, s in enumerate(in_left)]
    right = [multiply(s, generator(("right", i))) for i, s in enumerate(in_right)]
    return total([*left, *right, multiply(alpha, generator(BLINDING))])


def prove_range(
    context: bytes,
    commitment: bytes,
    blinding: int,
    lo: int | Sequence[int],
    hi: int | Sequence[int],
    digits: Sequence[Sequence[int]],
    in_right: Sequence[int] | None = None,
    in_target: Sequence[int] = (),
    free: int = 0,
) -> bytes:
    """Claim that `digits`, one row a coordinate, are the bits of the committed vector less `lo`.

    `lo` and `hi` are both one number, or both one for each coordinate. `in_target` is how often the
    commitment holds each G_i; `free` is as in `Prover.bits`.
    """
    transcript = Transcript(b"smpc-dp/1/proof")
    transcript.append(b"context", context)
    lows, highs = ([side] if isinstance(side, int) else list(side) for side in (lo, hi))
    transcript.append(b"kind", b"range" if isinstance(lo, int) else b"box")
    transcript.append_uint(b"length", len(digits))
    transcript.append(b"low", b"".join(low.to_bytes(16, "little", signed=True) for low in lows))
    transcript.append(b"high", b"".join(high.to_bytes(16, "little", signed=True) for high in highs))
    transcript.append(b"values", commitment)
    prover = Prover(transcript)
    in_left = filled(list(chain.from_iterable(digits)))
    in_right = [s - 1 for s in in_left] if in_right is None else filled(in_right, -1)
    alpha = prover.random()
    prover.send(b"bits", commit_bits(in_left, in_right, alpha))
    widths = [high - low for low, high in zip(lows, highs, strict=True)] * (len(digits) // len(lows))
    weights = [(("value", c), weight) for c, width in enumerate(widths) for weight in weights_to(width)]
    prover.bits(weights, in_left, in_right, alpha, blinding, in_target, free)
    return prover.proof


def prove_noise(
    context: bytes, coins: Sequence[int], secret: Sequence[int], noise: bytes, blinding: int, length: int
) -> tuple[bytes, bytes]:
    """Claim that `noise` commits to what `secret`, bits or not, and `coins` give; returns A and the proof."""
    alpha, each = 12345, len(secret) // length
    secret = filled(secret)
    in_right = [s - 1 for s in secret]
    committed = ristretto.encode(commit_bits(secret, in_right, alpha))
    transcript = Transcript(b"smpc-dp/1/proof")
    transcript.append(b"context", context)
    transcript.append(b"kind", b"noise")
    transcript.append_uint(b"length", length)
    transcript.append_uint(b"bits-each", each)
    transcript.append(b"coins", bytes(coins))
    transcript.append(b"bits", committed)
    transcript.append(b"values", noise)
    prover = Prover(transcript)
    weights = [(("value", i // each), 1 - 2 * coin) for i, coin in enumerate(coins)]
    prover.bits(weights, secret, in_right, alpha, blinding)
    return committed, prover.proof


def prove_norm(
    context: bytes,
    commitment: bytes,
    blinding: int,
    values: Sequence[int],
    length: int,
    bound: int,
    root: int,
    norm: int,
    digits: Sequence[int],
    in_right: Sequence[int],
) -> bytes:
    """Claim that `norm` is the squared norm and `digits` are the bits of coordinates and remainder.

    `values` and `in_right` are what is committed to on the two sides of the inner product; as long as the
    vector filled up to a power of two.
    """
    transcript = Transcript(b"smpc-dp/1/proof")
    transcript.append(b"context", context)
    transcript.append(b"kind", b"norm")
    transcript.append_uint(b"length", length)
    transcript.append(b"bound", bound.to_bytes(16, "little"))
    transcript.append(b"values", commitment)
    prover = Prover(transcript)
    size = len(values)
    sigma, theta = prover.random(), prover.random()
    prover.send(b"squares", commit_bits(values, in_right, sigma))
    prover.send(b"norm", total([multiply(norm, generator(NORM)), multiply(theta, generator(BLINDING))]))
    y, z, rho, tau = (prover.challenge(label) for label in (b"y", b"z", b"rho", b"tau"))
    shifts = [z * pow(y, c, ORDER) for c in range(1, size + 1)]
    left = [
        ristretto.add(generator(("left", c)), multiply(rho, generator(("value", c)))) for c in range(size)
    ]
    prover.product(
        [x - shift for x, shift in zip(values, shifts, strict=True)],
        [x + shift for x, shift in zip(in_right, shifts, strict=True)],
        sigma + rho * blinding + tau * theta,
        left,
        [generator(("right", c)) for c in range(size)],
        multiply(tau, generator(NORM)),
        1,
    )
    alpha = prover.random()
    digits = filled(digits)
    bits_right = [s - 1 for s in digits]
    prover.send(b"bits", commit_bits(digits, bits_right, alpha))
    weights = [(("value", c), weight) for c in range(length) for weight in weights_to(2 * root)]
    weights += [(NORM, weight) for weight in weights_to(bound)]
    prover.bits(weights, digits, bits_right, alpha, blinding - theta)
    return prover.proof
