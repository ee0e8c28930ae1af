"""The exact samplers of protocols/sampling/README.md, slow and obvious: integers and fractions, one by one.

Nothing is shared with the core but the block cipher and the specification. Every comparison with an
irrational number is made with bounds that are tightened until they decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from Crypto.Hash import TupleHash256
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from mpmath import mp, mpf

BLOCK_SAMPLES = 4096
WORD = 64

# Bounds on 2^bits times a number, and the number itself where it is rational and small enough to write down.
Bounds = Callable[[int, int], tuple[int, int]]


class Words:
    """The 64-bit words of block `block` of the stream under `key`."""

    def __init__(self, key: bytes, block: int) -> None:
        self._cipher = Cipher(AES256(key), ECB()).encryptor()  # noqa: S305 - counter blocks are made here
        self._block = block
        self.read = 0

    def next(self) -> int:
        counter = self._block.to_bytes(8, "big") + (self.read // 2).to_bytes(8, "big")
        half = self.read % 2 * 8
        self.read += 1
        return int.from_bytes(self._cipher.update(counter)[half : half + 8], "little")


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers around 2^bits exp(-x), for x >= 0."""
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:
        return 0, 1
    halvings = max(0, math.floor(x).bit_length() + 1)
    precision = bits + halvings + 64
    y = (x.numerator << precision) // (x.denominator << halvings)
    term = total = 1 << precision
    n = 0
    while term:
        n += 1
        term = -term * y // (n << precision)
        total += term
    for _ in range(halvings):
        total = total * total >> precision
    # Each of at most `precision` terms, and each squaring, loses a few units; squarings double the loss.
    slack = 1 << (halvings + 32)
    shift = precision - bits
    return max(0, (total - slack) >> shift), ((total + slack) >> shift) + 1


@dataclass(frozen=True)
class NoiseDistribution:
    """A log-concave distribution on the integers: mass f with f(mode) = 1, and what its strips are cut by."""

    mode: int
    spread: int
    bounds: Callable[[int, int], tuple[int, int]]
    exact: Callable[[int], Fraction | None]


def gaussian(variance: Fraction) -> NoiseDistribution:
    def exponent(k: int) -> Fraction:
        return k * k / (2 * variance)

    return _exponential(exponent, math.floor(variance))


def laplace(scale: Fraction) -> NoiseDistribution:
    return _exponential(lambda k: abs(k) / scale, math.floor(scale * scale))


def geometric(x: Fraction) -> NoiseDistribution:
    distribution = _exponential(lambda k: k * x, math.floor(1 / (x * x)))
    return NoiseDistribution(
        0,
        distribution.spread,
        lambda k, bits: (0, 0) if k < 0 else distribution.bounds(k, bits),
        lambda k: Fraction(0) if k < 0 else distribution.exact(k),
    )


def _exponential(exponent: Callable[[int], Fraction], spread: int) -> NoiseDistribution:
    return NoiseDistribution(
        0, spread, lambda k, bits: exp_bounds(exponent(k), bits), lambda k: Fraction(1) if k == 0 else None
    )


# Beyond this many factors a ratio of factorials is bounded by mpmath instead of being written down.
_FACTORS = 600


def poisson(mean: Fraction) -> NoiseDistribution:
    mode = math.floor(mean)

    def exact(k: int) -> Fraction | None:
        if k < 0:
            return Fraction(0)
        if abs(k - mode) > _FACTORS:
            return None
        down, up = sorted((k, mode))
        ratio = Fraction(mean ** (up - down), math.prod(range(down + 1, up + 1)))
        return ratio if k >= mode else 1 / ratio

    def logarithm(k: int) -> mpf:
        log_mean = mp.log(mpf(mean.numerator) / mpf(mean.denominator))
        return (k - mode) * log_mean - mp.loggamma(k + 1) + mp.loggamma(mode + 1)

    return NoiseDistribution(mode, mode, _by_logarithm(logarithm, exact), exact)


def binomial(trials: int, p: Fraction) -> NoiseDistribution:
    mode = min(trials, math.floor((trials + 1) * p))

    def exact(k: int) -> Fraction | None:
        if not 0 <= k <= trials:
            return Fraction(0)
        if abs(k - mode) > _FACTORS:
            return None
        if k == mode:
            return Fraction(1)
        down, up = sorted((k, mode))
        above = math.prod(range(trials - up + 1, trials - down + 1))
        ratio = Fraction(above, math.prod(range(down + 1, up + 1))) * (p / (1 - p)) ** (up - down)
        return ratio if k >= mode else 1 / ratio

    def logarithm(k: int) -> mpf:
        odds = p / (1 - p)
        return (
            (k - mode) * mp.log(mpf(odds.numerator) / mpf(odds.denominator))
            + (mp.loggamma(mode + 1) - mp.loggamma(k + 1))
            + (mp.loggamma(trials - mode + 1) - mp.loggamma(trials - k + 1))
        )

    return NoiseDistribution(mode, math.floor(trials * p * (1 - p)), _by_logarithm(logarithm, exact), exact)


def _by_logarithm(logarithm: Callable[[int], mpf], exact: Callable[[int], Fraction | None]) -> Bounds:
    def bounds(k: int, bits: int) -> tuple[int, int]:
        known = exact(k)
        if known is not None:
            low, rest = divmod(known.numerator << bits, known.denominator)
            return low, low + bool(rest)
        # The logarithms of factorials of numbers below 2^110 are below 2^120.
        with mp.workprec(bits + 240):
            near = int(mp.floor(mp.ldexp(mp.exp(logarithm(k)), bits + 16)))
        return max(0, (near - 1) >> 16), ((near + 2) >> 16) + 1

    return bounds


def compare(distribution: NoiseDistribution, k: int, factor: Fraction) -> int:
    """The floor of `factor` times f(k)."""
    known = distribution.exact(k)
    if known is not None:
        return math.floor(factor * known)
    bits = 128 + factor.numerator.bit_length()
    while True:
        low, high = (
            math.floor(Fraction(bound, 1 << bits) * factor) for bound in distribution.bounds(k, bits)
        )
        if low == high:
            return low
        bits *= 2


@dataclass(frozen=True)
class Segment:
    """A strip, or the tail of a side; `first` is its value nearest to the mode."""

    first: int
    step: int
    height: int
    weight: int
    tail_bits: int | None


@dataclass(frozen=True)
class Table:
    """The segments of a distribution and the scale of their heights."""

    distribution: NoiseDistribution
    bits: int
    segments: tuple[Segment, ...]
    scale: Fraction


def table(distribution: NoiseDistribution) -> Table:
    """[protocols/sampling/README.md, "The table"]."""
    bits = max(0, (distribution.spread.bit_length() - 1) // 2 - 4) if distribution.spread else 0
    width = 1 << bits
    # (first value, direction, height, how many strips its weight counts for, bits of a piece of the tail)
    rough: list[tuple[int, int, int, int, int | None]] = []
    for start, step in ((distribution.mode, 1), (distribution.mode - 1, -1)):
        offset = 0
        while True:
            height = compare(distribution, start + step * offset, Fraction(1 << 32)) + 1
            if height <= 1 << 12:
                break
            rough.append((start + step * offset, step, height, 1, None))
            offset += width
        tail_bits = bits
        while 20 << tail_bits < offset + 1:
            tail_bits += 1
        rough.append((start + step * offset, step, height, 2 << (tail_bits - bits), tail_bits))
    total = sum(height * times for _, _, height, times, _ in rough)
    room = (1 << 32) - sum(times for _, _, _, times, _ in rough)
    segments = []
    for first, step, height, times, tail in rough:
        scaled = height * room // total + 1
        segments.append(Segment(first, step, scaled, scaled * times, tail))
    return Table(distribution, bits, tuple(segments), Fraction(room << 32, total))


def below(words: Words, distribution: NoiseDistribution, k: int, factor: Fraction) -> bool:
    """Whether a uniform real, read word by word, is below `factor` times f(k)."""
    read = number = 0
    while True:
        number = number << WORD | words.next()
        read += WORD
        known = distribution.exact(k)
        if known is not None:
            edge = known * factor * (1 << read)
            if number >= edge:
                return False
            if number + 1 <= edge:
                return True
            continue
        # f(k) is irrational, or so long a fraction that no word meets it.
        floor = compare(distribution, k, factor * (1 << read))
        if number != floor:
            return number < floor


def draw(words: Words, t: Table) -> int:
    """One sample. [protocols/sampling/README.md, "One sample"]"""
    while True:
        word = words.next()
        choice = word >> 32
        for segment in t.segments:
            if choice < segment.weight:
                break
            choice -= segment.weight
        else:
            continue
        height = Fraction(segment.height)
        if segment.tail_bits is None:
            if t.bits > 32:
                word = words.next()
            offset = word & ((1 << t.bits) - 1)
        else:
            piece = 0
            while not (word := words.next()):
                piece += WORD
            piece += WORD - word.bit_length()
            offset = (piece << segment.tail_bits) + (words.next() & ((1 << segment.tail_bits) - 1))
            height /= 1 << piece
        k = segment.first + segment.step * offset
        if below(words, t.distribution, k, t.scale / height):
            return k


def samples(key: bytes, count: int, one: Callable[[Words], int]) -> list[int]:
    """`count` samples of the call whose key is `key`: BLOCK_SAMPLES from each block."""
    drawn: list[int] = []
    for block in range(-(-count // BLOCK_SAMPLES)):
        drawn += block_samples(key, block, min(BLOCK_SAMPLES, count - len(drawn)), one)
    return drawn


def block_samples(key: bytes, block: int, count: int, one: Callable[[Words], int]) -> list[int]:
    """The first `count` samples of one block."""
    words = Words(key, block)
    return [one(words) for _ in range(count)]


def source_key(key: bytes, *context: bytes) -> bytes:
    """[protocols/sampling/README.md, "Keys"]"""
    return _tuple_hash("smpc-dp/1/noise-source", key, *context)


def call_key(source: bytes, call: int, distribution: str, *parameters: Fraction) -> bytes:
    """[protocols/sampling/README.md, "Keys"]"""
    terms = [term for value in parameters for term in (value.numerator, value.denominator)]
    encoded = [term.to_bytes((term.bit_length() + 7) // 8, "big") for term in terms]
    return _tuple_hash(
        "smpc-dp/1/noise-call", source, call.to_bytes(8, "big"), distribution.encode(), *encoded
    )


def _tuple_hash(label: str, *parts: bytes) -> bytes:
    hasher = TupleHash256.new(digest_bytes=32, custom=label.encode())
    for part in parts:
        hasher.update(part)
    return hasher.digest()


DISTRIBUTIONS: dict[str, Callable[[Fraction], NoiseDistribution]] = {
    "geometric": geometric,
    "discrete-laplace": laplace,
    "discrete-gaussian": gaussian,
}


def draw_distribution(
    source: bytes, call: int, count: int, name: str, *parameters: Fraction | int
) -> list[int]:
    """What call number `call` of the source with key `source` returns."""
    values = [Fraction(value) for value in parameters]
    key = call_key(source, call, name, *values)
    if name == "bernoulli-exp":
        (x,) = values
        if not x:
            return [1] * count
        distribution = _exponential(lambda k: k * x, 1)
        return samples(key, count, lambda words: int(below(words, distribution, 1, Fraction(1))))
    if name == "skellam":
        of_poisson = table(poisson(values[0] / 2))
        return samples(key, count, lambda words: draw(words, of_poisson) - draw(words, of_poisson))
    if name == "binomial":
        trials, p = int(values[0]), values[1]
        if not trials or p in (0, 1):
            return [int(trials * p)] * count
        t = table(binomial(trials, p))
    else:
        t = table(DISTRIBUTIONS[name](*values))
    return samples(key, count, lambda words: draw(words, t))
