"""Privacy curves delta(epsilon), rounded up, and their composition by `dp-accounting`.

A curve is given for epsilon >= 0 and bounds the hockey-stick divergence in both directions; below 0 it is
continued by delta(-e) = 1 - exp(-e) + exp(-e) delta(e), the divergence of a pair that is as bad both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]

# The grid of a discretised curve: even steps near 0, then steps that grow by this factor.
_EVEN, _GROWTH = 1_000, 1.005
# Even steps of the first curve of a composition, of its epsilon, and of any curve at most.
_POINTS, _OF_EPSILON, _MOST_POINTS = 2_000, 6_000, 4_000_000
# So many terms do with these; more take finer steps, up to so many times.
_COARSE_TERMS, _FINEST = 500, 16.0
# Groups of counts in a binomial mean; each counts as its largest.
_GROUPS = 32
# What a curve may still have where it is cut off; it becomes probability of an infinite loss.
_CUT = 1e-15


def hockey_stick(epsilon: ArrayLike, mu: ArrayLike) -> Floats:
    """Return exact deltas of Gaussian mechanisms for arrays of epsilon and mean shift mu, rounded up.

    [Balle and Wang 2018, Theorem 8], as `gaussian.gaussian_delta` for arrays.
    """
    e, shift = np.broadcast_arrays(np.asarray(epsilon, np.float64), np.asarray(mu, np.float64))
    safe = np.maximum(shift, 1e-150)
    ratio = np.minimum(e / safe, 1e7)  # beyond, delta is 0 in floating point
    high = log_ndtr(safe / 2 - ratio)
    low = e + log_ndtr(-safe / 2 - ratio)
    error = 1e-14 * (1 + np.abs(low) + np.abs(high) + ratio**2)
    delta = np.exp(high) * -np.expm1(np.minimum(low - high, 0.0) - error) * (1 + 1e-9)
    bounded: Floats = np.where(shift > 0, np.clip(delta, 0.0, 1.0), 0.0)
    return bounded


def sampled(rate: float, plain: Curve) -> Curve:
    """Return the privacy curve (delta by epsilon) of a release with secret participation at `rate`.

    `plain` is the curve if it takes part for certain.
    delta(log(1 + q (e^e - 1))) = q delta_plain(e), where it is as bad if another takes part instead
    [Balle, Barthe, Gaboardi 2018, Theorem 2 for this case]; see docs/proofs/planners.md.
    """

    def curve(epsilon: Floats) -> Floats:
        bound: Floats = rate * plain(np.log1p(np.expm1(epsilon) / rate))
        return bound

    return curve


def sampled_gaussian(rate: float, mu: float) -> Curve:
    """Return the privacy curve of a Gaussian release of shift mu with secret participation at `rate`.

    Whoever else would take part moves the mean by no more.
    """
    return sampled(rate, lambda epsilon: hockey_stick(epsilon, np.float64(mu)))


def upper_count(trials: int, chance: float, tail: float) -> tuple[int, float]:
    """Return a count that a binomial variable exceeds with chance about `tail` at most, and that chance.

    The probability is at most about `tail`.
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    most = int(binom.isf(tail, trials, chance)) + 1
    return most, float(binom.sf(most, trials, chance))


def group_counts(trials: int, chance: float) -> tuple[NDArray[np.int64], Floats, float]:
    """Return binomial counts grouped upwards, their probabilities, and the probability left out.

    Each count stands for itself and those down to the one before.
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    low = max(0, int(binom.ppf(_CUT, trials, chance)) - 1)
    most = min(trials, int(binom.isf(_CUT, trials, chance)) + 1)
    counts = np.unique(np.linspace(low, most, min(_GROUPS, most - low + 1)).astype(np.int64))
    weights = np.diff(binom.cdf(counts, trials, chance), prepend=0.0)
    return counts, weights, float(binom.sf(most, trials, chance))


def seen_gaussians(chances: int, rate: float, mu: float) -> Curve:
    """Return the privacy curve of Binomial(chances, rate) many Gaussian releases, their number seen."""
    counts, weights, beyond = group_counts(chances, rate)

    def curve(epsilon: Floats) -> Floats:
        each = hockey_stick(np.asarray(epsilon)[:, None], mu * np.sqrt(counts)[None, :])
        bound: Floats = np.minimum(1.0, each @ weights * (1 + 1e-12) + beyond)
        return bound

    return curve


def _curve_end(curve: Curve) -> float:
    """Return the epsilon, within a factor of 1.25, at which a privacy curve is nearly 0."""
    end = 1e-5
    while float(curve(np.array([end]))[0]) > _CUT and end < 600:
        end *= 1.25
    return end


def _interval(epsilon: float, parts: list[tuple[Curve, int]]) -> float:
    """Return the grid interval of privacy loss for composing these counted privacy curves."""
    ends = [_curve_end(curve) for curve, _ in parts]
    # What rounding adds to the variance of the sum grows with the number of terms and the step squared.
    finer = min(_FINEST, max(1.0, math.sqrt(parts[0][1] / _COARSE_TERMS)))
    return max(ends[0] / (_POINTS * finer), epsilon / (_OF_EPSILON * finer), max(ends) / _MOST_POINTS)


def loss_distribution(curve: Curve, interval: float) -> Any:
    """Return a discrete privacy loss distribution at least as bad as a privacy curve.

    By connecting the dots [Doroshenko et al. 2022].
    """
    last = max(1, math.ceil(_curve_end(curve) / interval))
    steps = np.arange(min(last, _EVEN) + 1)
    if last > _EVEN:
        more = math.ceil(math.log(last / _EVEN) / math.log(_GROWTH)) + 1
        steps = np.unique(np.append(steps, np.ceil(np.geomspace(_EVEN, last, more)).astype(np.int64)))
    above = np.minimum.accumulate(curve(interval * steps.astype(np.float64)))
    below = np.exp(-interval * steps[:0:-1])
    deltas = np.concatenate((1 - below + below * above[:0:-1], above))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(
        interval,
        np.concatenate((-steps[:0:-1], steps)),
        np.clip(np.minimum.accumulate(deltas), 0.0, 1.0),
    )
    return PrivacyLossDistribution(pmf.to_dense_pmf())


def composed_delta(epsilon: float, parts: list[tuple[Curve, int]]) -> float:
    """Return delta at epsilon of the composition of privacy curves, each repeated, rounded up."""
    interval = _interval(epsilon, parts)
    total: Any = None
    for curve, times in parts:
        single = loss_distribution(curve, interval)
        with np.errstate(over="ignore"):  # in the search for a Chernoff bound
            several = single.self_compose(times) if times > 1 else single
        total = several if total is None else total.compose(several)
    # The convolutions are in floating point; their error is far below this.
    return min(1.0, float(total.get_delta_for_epsilon(epsilon)) * (1 + 1e-9) + 1e-12)
