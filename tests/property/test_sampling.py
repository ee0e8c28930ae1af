"""The core's samplers and their slow twin return the same values from the same key, extremes included."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smpc_dp.privacy import sampling
from smpc_dp.privacy.sampling import NoiseSource
from tests.examples import examples
from tests.reference import sampling_twin as twin

KEYS = st.binary(min_size=32, max_size=32)
COUNTS = st.integers(0, 40)
LONG = Fraction((1 << 256) - 1, (1 << 256) - 189)


def rationals(low: Fraction, high: Fraction) -> st.SearchStrategy[Fraction]:
    """Rationals of every magnitude between two, with short and with long terms."""
    steps = st.integers(low.denominator.bit_length() * -1 - 1, high.numerator.bit_length())
    factors = st.one_of(st.just(Fraction(1)), st.fractions(1, 2, max_denominator=1 << 60), st.just(LONG))

    def scaled(step: int, factor: Fraction) -> Fraction:
        return min(high, max(low, factor * Fraction(2) ** step)).limit_denominator(1 << 200)

    return st.builds(scaled, steps, factors).filter(lambda value: low <= value <= high)


WIDE = rationals(Fraction(1, 1 << 60), Fraction(1 << 100))


def check(
    function: Callable[..., Any], name: str, key: bytes, count: int, *parameters: Fraction | int
) -> None:
    source = NoiseSource.keyed(key, b"property")
    expected = twin.source_key(key, b"property")
    for call in range(2):
        drawn = function(source, count, *parameters).tolist()
        assert drawn == twin.draw_distribution(expected, call, count, name, *parameters)


@given(KEYS, COUNTS, WIDE)
@example(bytes(32), 4200, Fraction(10_000))
@example(bytes(32), 300, Fraction(1 << 100))
@example(bytes(32), 300, Fraction(1 << 60))
@example(bytes(32), 300, Fraction(1, 1 << 200))
@example(bytes(32), 300, LONG)
@settings(max_examples=examples(60))
def test_discrete_gaussian(key: bytes, count: int, variance: Fraction) -> None:
    check(sampling.discrete_gaussian, "discrete-gaussian", key, count, variance)


@given(KEYS, COUNTS, rationals(Fraction(1, 1 << 60), Fraction(1 << 50)))
@example(bytes(32), 300, Fraction(1 << 50))
@settings(max_examples=examples(40))
def test_discrete_laplace(key: bytes, count: int, scale: Fraction) -> None:
    check(sampling.discrete_laplace, "discrete-laplace", key, count, scale)


@given(KEYS, COUNTS, rationals(Fraction(1, 1 << 50), Fraction(1 << 80)))
@example(bytes(32), 300, Fraction(1, 1 << 50))
@settings(max_examples=examples(40))
def test_geometric(key: bytes, count: int, x: Fraction) -> None:
    check(sampling.geometric, "geometric", key, count, x)


@given(KEYS, COUNTS, rationals(Fraction(1, 1 << 90), Fraction(1 << 90)))
@example(bytes(32), 300, Fraction(0))
@settings(max_examples=examples(60))
def test_bernoulli_exp(key: bytes, count: int, x: Fraction) -> None:
    check(sampling.bernoulli_exp, "bernoulli-exp", key, count, x)


@given(KEYS, COUNTS, WIDE)
@example(bytes(32), 300, Fraction(128))
@example(bytes(32), 300, Fraction(130))
@example(bytes(32), 300, Fraction(2046))
@example(bytes(32), 300, Fraction(2048))
@example(bytes(32), 300, Fraction(1 << 100))
@settings(max_examples=examples(30))
def test_skellam(key: bytes, count: int, variance: Fraction) -> None:
    check(sampling.skellam, "skellam", key, count, variance)


@given(
    KEYS,
    COUNTS,
    st.one_of(st.integers(0, 200), st.integers(0, 1 << 62)),
    st.one_of(st.fractions(0, 1), rationals(Fraction(1, 1 << 80), Fraction(1))),
)
@example(bytes(32), 300, 1, Fraction(1, 2))
@example(bytes(32), 300, 1 << 62, Fraction(1, 2))
@example(bytes(32), 300, 1 << 62, Fraction(1, 1 << 62))
@example(bytes(32), 300, 1 << 62, 1 - Fraction(1, 1 << 62))
@settings(max_examples=examples(40))
def test_binomial(key: bytes, count: int, trials: int, p: Fraction) -> None:
    check(sampling.binomial, "binomial", key, count, trials, p)


@pytest.mark.parametrize("spread", [1023, 1024, 4095, 4096, (1 << 74) - 1, 1 << 74])
def test_where_strips_change_their_width(spread: int) -> None:
    check(sampling.discrete_gaussian, "discrete-gaussian", bytes(32), 200, Fraction(spread))
