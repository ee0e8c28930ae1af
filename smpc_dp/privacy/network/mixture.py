"""Gaussian releases with a random shift that the observer knows: delta = E[delta_G(epsilon; mu sqrt(S))].

Given the path of a token, the view of an observer is a Gaussian mechanism of squared shift mu^2 S. Its delta
is the mean over the distribution of S, which is computed here on a grid: every value is rounded up to the
grid, and the mass beyond its end counts as delta = 1.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from smpc_dp.privacy.network.curves import Floats, hockey_stick

# Groups of a binomial count.
_GROUPS = 32


class ShiftDistribution(NamedTuple):
    """Distribution of a random squared shift of a Gaussian mechanism, on a grid, with the mass beyond."""

    mass: Floats
    step: float
    beyond: float

    def delta(self, epsilon: float, mu: float) -> float:
        """Return delta at epsilon of Gaussian releases with this random squared shift, in units of mu^2."""
        held = np.flatnonzero(self.mass > 0)
        deltas = hockey_stick(epsilon, mu * np.sqrt(held * self.step))
        return min(1.0, float(self.mass[held] @ deltas) * (1 + 1e-9) + self.beyond)

    def coarser(self, size: int) -> ShiftDistribution:
        """Return the distribution on a grid of `size` cells, a divisor of the present number, rounded up."""
        factor = len(self.mass) // size
        if factor == 1:
            return self
        # Cell j takes what lies in (j - 1, j] of the coarser steps; the last ones go beyond.
        padded = np.concatenate([np.zeros(factor - 1), self.mass, [0.0]])
        cells = padded.reshape(-1, factor).sum(axis=1)
        return ShiftDistribution(cells[:size], self.step * factor, self.beyond + float(cells[size:].sum()))

    def mean(self) -> float:
        """Return the mean of the variable, without the mass beyond the grid."""
        return float(self.mass @ np.arange(len(self.mass))) * self.step


def tabulate(values: Floats, weights: Floats, step: float, size: int) -> ShiftDistribution:
    """Return the distribution of one weighted variable with its values rounded up to a grid."""
    index = np.ceil(np.maximum(values, 0.0) / step * (1 - 1e-12)).astype(np.int64)
    inside = index < size
    mass = np.bincount(index[inside], weights=weights[inside], minlength=size).astype(np.float64)
    return ShiftDistribution(mass, step, float(weights[~inside].sum()))


def summed(distribution: ShiftDistribution, times: int, tail: float) -> ShiftDistribution:
    """Return the distribution of a sum of `times` independent copies, by FFT; `tail` bounds the mass lost.

    The convolution is circular: mass beyond the grid's end comes back at its beginning, at most `tail` of it.
    """
    size = len(distribution.mass)
    if times == 0:
        mass = np.zeros(size)
        mass[0] = 1.0
        return ShiftDistribution(mass, distribution.step, 0.0)
    power = np.fft.irfft(np.fft.rfft(distribution.mass) ** times, n=size)
    # The transforms err by a few units of 2^-53 in the mean square, spread over all entries.
    rounding = 4e-16 * times * math.sqrt(size)
    return ShiftDistribution(
        np.maximum(power, 0.0), distribution.step, min(1.0, times * distribution.beyond + tail + rounding)
    )


def grid_end(values: Floats, weights: Floats, times: int, tail: float) -> float:
    """Return a point that a sum of `times` copies exceeds with probability at most `tail` (Chernoff)."""
    best = times * float(values.max())
    for slope in np.geomspace(0.05, 400.0, 60):
        top = float(slope * values.max())
        log_moment = top + math.log(float(weights @ np.exp(slope * values - top)))
        best = min(best, (times * log_moment - math.log(tail)) / slope)
    return best


def with_direct(
    rest: ShiftDistribution, chances: int, rate: float, cap: int, tail: float
) -> ShiftDistribution:
    """Return an upper distribution of min(B, cap) + chances - B copies of `rest`, B ~ Bin(chances, rate).

    B is grouped: a group has its largest min(B, cap) and its most copies.
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    size, step = len(rest.mass), rest.step
    low = max(0, int(binom.ppf(tail, chances, rate)) - 1)
    most = min(chances, int(binom.isf(tail, chances, rate)) + 1)
    starts = np.unique(np.append(0, np.linspace(low, most + 1, min(_GROUPS, most + 1 - low) + 1).astype(int)))
    total, beyond = np.zeros(size), float(binom.sf(most, chances, rate))
    for first, following in pairwise(starts.tolist()):
        chance = float(binom.cdf(following - 1, chances, rate) - binom.cdf(first - 1, chances, rate))
        several = summed(rest, chances - first, tail)
        shift = math.ceil(min(following - 1, cap) / step)
        retained = max(0, size - shift)
        total[shift:] += chance * several.mass[:retained]
        beyond += chance * (several.beyond + float(several.mass[retained:].sum()))
    return ShiftDistribution(total, step, min(1.0, beyond))
