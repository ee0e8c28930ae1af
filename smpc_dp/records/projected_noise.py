"""Bounds the norm of a projection of independent Laplace-type noises, whichever the projection is.

docs/proofs/records.md: given the variances G of the normal numbers that the noises are, the squared norm is
beyond q with a probability of which a symmetric convex function of eigenvalues is an upper bound. Its mean is
greatest for a projection onto coordinates.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.search import bisect

Floats = NDArray[np.float64]
# Points of the law of a weighted mean of variances, their end, and nodes of the quadrature over weights.
_POINTS, _END, _NODES = 300, 64.0, 40
# Where the bound turns into a line, over the last one, steps of the search for its slope over the
# first knot, and what a slope between these steps may be above those at them.
_KNOTS, _SLOPES, _ABOVE = np.linspace(0.05, 1.0, 20), np.geomspace(1e-3, 1e5, 2000), 1 + 1e-4
_HALVINGS = 50


@functools.lru_cache(maxsize=256)
def projected_square(dimensions: int, outside: float) -> float:
    """Return what the squared norm of a projection of Laplace-type noises seldom exceeds.

    Args:
        dimensions: of the space that independent noises of variance 1 are projected onto, 1 or more. Each
            noise is a sum of shares of at least one discrete Laplace noise.
        outside: the probability that it is exceeded with at most, for every such projection.
    """
    # Of one square W, P(W > w) = exp(-sqrt(2 w)); the mean of a sum in its upper tail is at most the sum of
    # those of each, and no quantile is greater [convex order].
    log = -math.log(outside)
    apart = dimensions * (log**2 + 2 * log + 2) / 2
    points, masses = _weighted_mean(dimensions)
    return bisect(
        lambda square: _beyond(dimensions, square, points, masses) > outside, 0.0, apart, _HALVINGS
    )[1]


def _beyond(dimensions: int, square: float, points: Floats, masses: Floats) -> float:
    """Return an upper bound on the probability that the squared norm is beyond `square`.

    That is the least mean of convex functions which are not below the probability given a weighted mean of
    variances: they follow it up to a knot, and are a line from there on.
    """
    knots, starts, slopes = (each[:, None] for each in _lines(dimensions))
    parts = points / square
    lines = starts + slopes * (parts - knots)
    return float((np.where(parts <= knots, _given(dimensions, parts), lines) @ masses).min())


def _given(dimensions: int, parts: Floats) -> Floats:
    """Return the probability that chi-square is beyond a bound, given variances over this bound."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import gammaincc

    with np.errstate(divide="ignore"):
        return np.asarray(gammaincc(dimensions / 2, 1 / (2 * parts)), np.float64)


@functools.lru_cache(maxsize=64)
def _lines(dimensions: int) -> tuple[Floats, Floats, Floats]:
    """Return knots up to which `_given` is convex, its values there, and slopes of lines above the rest."""
    # its second derivative has the sign of 1/(p + 2) less the knot
    knots = _KNOTS / (dimensions + 2)
    starts, steps = _given(dimensions, knots), _SLOPES * knots[0]
    above = (_given(dimensions, knots[:, None] + steps) - starts[:, None]) / steps
    return knots, starts, _ABOVE * above.max(axis=1)


@functools.lru_cache(maxsize=64)
def _weighted_mean(dimensions: int) -> tuple[Floats, Floats]:
    """Return points and masses of sum u_k^2 G_k, u being uniform on a sphere and G exponential numbers.

    Masses between points are divided among both neighbours so that their mean stays: the means of convex
    functions are not smaller by that.
    """
    points: Floats = _END * np.linspace(0.0, 1.0, _POINTS) ** 1.5
    if dimensions == 1:
        return points, _masses(points, np.exp(-points))
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import roots_jacobi

    _, before = _weighted_mean(dimensions - 1)
    # the weight of all but the last variance is a Beta((p - 1)/2, 1/2) number
    nodes, shares = roots_jacobi(_NODES, -0.5, (dimensions - 3) / 2)
    excess = np.zeros(_POINTS)
    for weight, share in zip((nodes + 1) / 2, shares / shares.sum(), strict=True):
        below = points[:, None] - weight * points
        tail = (1 - weight) * np.exp(-np.maximum(below, 0.0) / (1 - weight))
        excess += share * ((tail - np.minimum(below, 0.0)) @ before)
    return points, _masses(points, excess)


def _masses(points: Floats, excess: Floats) -> Floats:
    """Return the masses at points of a law whose mean excess over each point is given."""
    slopes = np.diff(excess) / np.diff(points)
    return np.maximum(np.diff(np.concatenate(([-1.0], slopes, [0.0]))), 0.0)
