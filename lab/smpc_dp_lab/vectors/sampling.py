"""Test vectors of the samplers, published in `protocols/sampling/vectors`, one file per distribution.

Each case is the beginning and the digest of a long call on a keyed source. `protocols/sampling/README.md`
specifies how the values follow from the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

from smpc_dp.crypto.noise import NoiseSource

KEY = bytes(range(32))
CONTEXT = (b"vectors", b"")
SHOWN = 12
LENGTH = 9000
"""Values that the digest covers: more than two blocks."""

JsonObject = dict[str, object]

DISTRIBUTIONS: dict[str, tuple[tuple[Fraction, ...], ...]] = {
    "bernoulli-exp": tuple((Fraction(x),) for x in ("0", "1/2", "1", "7/100", "40")),
    "geometric": tuple((Fraction(x),) for x in ("3", "1/2", "1/100", f"1/{1 << 50}")),
    "discrete-laplace": tuple((Fraction(s),) for s in ("1/3", "1", "70/3", f"{1 << 30}", f"{1 << 50}")),
    "discrete-gaussian": tuple(
        (Fraction(v),) for v in ("1/100", "1/3", "10000", f"{1 << 60}", f"{(1 << 80) + 1}/3", f"{1 << 100}")
    ),
    "skellam": tuple((Fraction(v),) for v in ("1/2", "400", "4999/3", f"{1 << 40}", f"{1 << 100}")),
    "binomial": tuple(
        (Fraction(n), Fraction(p))
        for n, p in (("0", "1/2"), ("9", "1"), ("9", "1/3"), ("100000", "1/2"), (f"{1 << 62}", "2/7"))
    ),
}


def generate() -> dict[str, JsonObject]:
    """Return the content of every published file by its name; the same on every host."""
    return {
        distribution: _of_distribution(distribution, cases) for distribution, cases in DISTRIBUTIONS.items()
    }


def _of_distribution(distribution: str, cases: Sequence[tuple[Fraction, ...]]) -> JsonObject:
    source = NoiseSource.keyed(KEY, *CONTEXT)
    return {
        "law": distribution,
        "key": KEY.hex(),
        "context": [part.hex() for part in CONTEXT],
        "cases": [_case(source, distribution, parameters) for parameters in cases],
    }


def _case(source: NoiseSource, distribution: str, parameters: tuple[Fraction, ...]) -> JsonObject:
    call = source.calls
    drawn = source.draw(distribution, LENGTH, parameters, 1)
    return {
        "call": call,
        "parameters": [f"{value.numerator}/{value.denominator}" for value in parameters],
        "count": LENGTH,
        "first": [str(value) for value in drawn[:SHOWN].tolist()],
        "sha256": hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest(),
    }
