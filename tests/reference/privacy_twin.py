"""Privacy by brute force: mass functions to 50 digits, every outcome summed, nothing shared with the
library."""

from __future__ import annotations

from fractions import Fraction

import mpmath

DIGITS = 50
Masses = dict[int, mpmath.mpf]


def normalised(weights: Masses) -> Masses:
    total = mpmath.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


def discrete_gaussian(variance: Fraction, reach: int) -> Masses:
    v = mpmath.mpf(variance.numerator) / variance.denominator
    return normalised({x: mpmath.exp(-x * x / (2 * v)) for x in range(-reach, reach + 1)})


def discrete_laplace(scale: Fraction, reach: int) -> Masses:
    s = mpmath.mpf(scale.numerator) / scale.denominator
    return normalised({x: mpmath.exp(-abs(x) / s) for x in range(-reach, reach + 1)})


def poisson(mean: mpmath.mpf, reach: int) -> Masses:
    return {x: mpmath.exp(-mean) * mean**x / mpmath.factorial(x) for x in range(reach + 1)}


def skellam(variance: Fraction, reach: int) -> Masses:
    """By its definition, as the difference of two Poisson variables."""
    half = mpmath.mpf(variance.numerator) / variance.denominator / 2
    one = poisson(half, 2 * reach)
    return convolved(one, {-x: mass for x, mass in one.items()})


def binomial(trials: int) -> Masses:
    return {x - trials // 2: mpmath.binomial(trials, x) / mpmath.mpf(2) ** trials for x in range(trials + 1)}


def convolved(one: Masses, other: Masses) -> Masses:
    total: Masses = {}
    for x, p in one.items():
        for y, q in other.items():
            total[x + y] = total.get(x + y, mpmath.mpf(0)) + p * q
    return total


def summed(one: Masses, shares: int) -> Masses:
    total = one
    for _ in range(shares - 1):
        total = convolved(total, one)
    return total


def delta(masses: Masses, shift: int, epsilon: float) -> mpmath.mpf:
    """The hockey-stick divergence of the masses from themselves moved by `shift`, the worse of both
    orders."""
    power = mpmath.exp(mpmath.mpf(epsilon))
    moved = {x + shift: mass for x, mass in masses.items()}
    zero = mpmath.mpf(0)
    outcomes = set(masses) | set(moved)
    return max(
        mpmath.fsum(max(zero, p.get(x, zero) - power * q.get(x, zero)) for x in outcomes)
        for p, q in ((masses, moved), (moved, masses))
    )


def renyi(masses: Masses, shift: int, order: int) -> mpmath.mpf:
    """The Rényi divergence of an integer order, over the outcomes that both have."""
    terms = [
        mass**order * masses[x - shift] ** (1 - order) for x, mass in masses.items() if x - shift in masses
    ]
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)
