"""Intervals from noisy sums: normal quantiles, Fieller's ratios, and arithmetic of intervals.

What is shown because its count is large has the law of a noise that is known to be on one side: intervals of
such counts and ratios have their level given that they are shown. Those of hidden counts hold over all
releases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.report.texts import LEAST_P_VALUE

# So many deviations above the threshold of what is shown, the condition changes no digit of normal noise, and
# of Laplace noise so many above the threshold and half of the interval.
_CLEAR, _CLEAR_LAPLACE = 10.0, 25.0
_GRID = 4000
# How close a crossing is found, as a part of the range that is searched.
_CLOSE = 2.0**-45

# Nodes of the mixture that a sum of shares of Laplace noise is, and how far it reaches.
_NODES = 400
_WIDTH, _TAIL, _GREATEST = 12.0, 46.0, 400.0
# The same of each of two such sums: that one is small is rarely what matters of both.
_NODES_OF_TWO, _TAIL_OF_TWO = 150, 25.0

# Of sums of noises: the period and the step of the sum that approximates an integral, where it ends at the
# latest or its terms are negligible, and the least probability that it gives.
_PERIOD, _FARTHEST, _NEGLIGIBLE, _LEAST_OUTSIDE = 120.0, 4000.0, -34.0, LEAST_P_VALUE
_STEP = 2 * math.pi / _PERIOD
# The probability beyond which the tails of a sum of noises are not used.
_KNOWN_OUTSIDE = 1e-8
# Ratios for which the noise of a ratio is tried.
_RATIOS = 9

INFINITE = (-math.inf, math.inf)
# Eigenvalues below this part of the greatest one may be rounding errors.
_ROUNDING = 1e-12
Interval = tuple[float, float]
Point = tuple[float, float]


def is_positive_definite(matrix: NDArray[np.float64]) -> bool:
    """Tell whether the least eigenvalue of a symmetric matrix is above 0 beyond rounding errors."""
    if not np.isfinite(matrix).all():
        return False
    values = np.linalg.eigvalsh(matrix)
    return float(values[0]) > _ROUNDING * float(values[-1])


def normal_quantile(outside: float) -> float:
    """Return z such that a standard normal is outside [-z, z] with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtri

    return float(-ndtri(outside / 2)) * (1 + 1e-12)


@dataclass(frozen=True)
class ErrorDistribution:
    """Distribution of a noise over its standard deviation: normal, or a sum of Laplace noise shares.

    `shape`: shares in the sum over those that are one Laplace noise together; None: normal. A sum of them is
    a normal number times the root of a gamma number of this shape. `parts`: the deviations of independent
    noises of this law, of which it is the sum.
    """

    shape: float | None = None
    parts: tuple[float, ...] = (1.0,)

    @functools.cached_property
    def _mixture(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Components of the Laplace law as a normal mixture: inverse deviations and log weights."""
        from scipy.special import gammaln, logsumexp

        shape = self.shape or 1.0
        root = _WIDTH * math.sqrt(shape)
        tail, nodes = (_TAIL, _NODES) if len(self.parts) == 1 else (_TAIL_OF_TWO, _NODES_OF_TWO)
        lowest = math.log(shape) - root / shape - tail / shape
        logs = np.linspace(lowest, math.log(shape + root + _GREATEST), nodes)
        each = shape * logs - np.exp(logs) - gammaln(shape)
        variances, weights = np.zeros(1), np.zeros(1)
        for part in self.parts:
            variances = np.add.outer(variances, part**2 / shape * np.exp(logs)).ravel()
            weights = np.add.outer(weights, each).ravel()
        return 1 / np.sqrt(variances), np.asarray(weights - logsumexp(weights))

    @property
    def is_normal(self) -> bool:
        """Whether the noise is normal, and not of Laplace shares."""
        return self.shape is None

    @property
    def reach(self) -> float:
        """The number of deviations up to which tail probabilities are known, here infinite."""
        return math.inf

    @property
    def excess_kurtosis(self) -> float:
        """The excess kurtosis of the noise, 0 for normal noise."""
        return 0.0 if self.shape is None else 3 / self.shape * sum(part**4 for part in self.parts)

    def log_below(self, value: float) -> float:
        """Return the log of the probability that the standardized noise is at most this value."""
        # Not at the top: every session imports this module, and few need it.
        from scipy.special import log_ndtr

        if self.shape is None:
            return float(log_ndtr(value))
        precisions, weights = self._mixture
        parts = weights + log_ndtr(value * precisions)
        # by hand: logsumexp takes several times as long, and a table calls this for each cell
        most = max(float(parts.max()), -1e300)
        total = float(np.exp(parts - most).sum())
        return most + math.log(total) if total else -math.inf

    def quantile(self, outside: float) -> float:
        """Return z such that the standardized noise is outside [-z, z] with this probability."""
        return normal_quantile(outside) if self.shape is None else _quantile(self, outside)


@functools.lru_cache(maxsize=64)
def _quantile(distribution: ErrorDistribution, outside: float) -> float:
    """Return, cached, z such that Laplace-type noise is outside [-z, z] with this probability."""
    wanted = math.log(outside / 2)
    return -_crossing(distribution.log_below, wanted, 2 * wanted - 10.0, 0.0) * (1 + 1e-9)


NORMAL = ErrorDistribution()


def widest_quantile(distribution: ErrorDistribution, outside: float) -> float:
    """Return the greater quantile of a noise and of a normal one, for sums whose weights are not known.

    Up to a probability of a twentieth weighted sums of such noises have none beyond it (tests try weights).
    """
    return max(distribution.quantile(outside), normal_quantile(outside))


Part = tuple[float, ErrorDistribution]
"""A deviation, and the law of an independent noise over its deviation."""


def sum_quantile(parts: Sequence[Part], outside: float) -> float:
    """Return z beyond which, in deviations, a sum of independent noises is with this probability, or less."""
    normal, laplace = _over_whole(parts)
    if not laplace:
        return normal_quantile(outside)
    if len(laplace) == 1 and not normal:
        return ErrorDistribution(laplace[0][1]).quantile(outside)
    return _sum_quantile(normal, laplace, outside)


def sum_outside(parts: Sequence[Part], z: float) -> float:
    """Return the probability that a sum of noises is beyond z deviations of 0; with Laplace shares >= 1e-10.

    Of sums with Laplace noise it is `_LEAST_OUTSIDE` at least.
    """
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtr

    normal, laplace = _over_whole(parts)
    if not laplace:
        return float(2 * ndtr(-z))
    if z >= _PERIOD / 2:
        return _LEAST_OUTSIDE
    return min(max(1 - _sum_of(normal, laplace).within(z), _LEAST_OUTSIDE), 1.0)


def _over_whole(parts: Sequence[Part]) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the normal part's deviation over the sum's, and each Laplace part's with its gamma shape."""
    used = [(abs(deviation * part), one) for deviation, one in parts if deviation for part in one.parts]
    whole = math.hypot(*(deviation for deviation, _ in used))
    normal = math.hypot(*(deviation for deviation, one in used if one.shape is None)) / whole
    return normal, tuple(
        sorted((deviation / whole, one.shape) for deviation, one in used if one.shape is not None)
    )


class _Sum:
    """Numerical distribution of a sum of normal and Laplace-type noises of total variance 1.

    Its characteristic function is real, and the probability is an integral of it; a sum at the middles of
    equal steps errs by the probability of what is a period away.
    """

    def __init__(self, normal: float, laplace: tuple[tuple[float, float], ...]) -> None:

        def log_transform(at: NDArray[np.float64]) -> NDArray[np.float64]:
            result = np.asarray(-(normal**2) * at**2 / 2)
            for weight, shape in laplace:
                result -= shape * np.log1p(at**2 * (weight**2 / (2 * shape)))
            return result

        reach = 8.0
        while reach < _FARTHEST and float(log_transform(np.array([reach]))[0]) > _NEGLIGIBLE:
            reach *= 1.5
        self._at: NDArray[np.float64] = (np.arange(math.ceil(reach / _STEP), dtype=np.float64) + 0.5) * _STEP
        self._weighted = (2 * _STEP / math.pi) * np.exp(log_transform(self._at)) / self._at

    def within(self, z: float) -> float:
        """Return the probability that the sum of noises is within z standard deviations of 0."""
        return float(np.sin(z * self._at) @ self._weighted)


@functools.lru_cache(maxsize=4096)
def _sum_quantile(normal: float, laplace: tuple[tuple[float, float], ...], outside: float) -> float:
    """Return z that a mixed sum exceeds in size with probability `outside`; if tiny, by Chernoff's bound."""
    if outside < _LEAST_OUTSIDE:
        weights, shapes = np.array(laplace).T
        return _chernoff(normal, weights, shapes, outside)
    return _crossing(_sum_of(normal, laplace).within, 1 - outside, 0.0, _PERIOD / 2) * (1 + 1e-6)


@functools.lru_cache(maxsize=64)
def _sum_of(normal: float, laplace: tuple[tuple[float, float], ...]) -> _Sum:
    """Return, cached, the numerical distribution of a sum of normal and Laplace-type noises."""
    return _Sum(normal, laplace)


def _chernoff(
    normal: float, weights: NDArray[np.float64], shapes: NDArray[np.float64], outside: float
) -> float:
    """Return z that a sum of noises exceeds in size with chance `outside` at most, by Chernoff's bound."""
    most = float((np.sqrt(2 * shapes) / weights).min())
    at = most * np.linspace(0.01, 0.99, 99)
    moments = normal**2 * at**2 / 2 - np.log1p(-np.multiply.outer(at**2, weights**2 / (2 * shapes))) @ shapes
    return float(((moments - math.log(outside / 2)) / at).min())


@dataclass(frozen=True)
class SumDistribution:
    """Distribution, over its deviation, of a sum of independent normal and Laplace-type noises.

    Its probabilities are integrals, which are as exact as the numbers of the machine.
    """

    normal: float
    laplace: tuple[tuple[float, float], ...]

    def quantile(self, outside: float) -> float:
        """Return z such that the standardized noise is outside [-z, z] with this probability."""
        return _sum_quantile(self.normal, self.laplace, outside)

    def log_below(self, value: float) -> float:
        """Return log P(standardized noise <= value), accurate within `reach` deviations of 0."""
        within = _sum_of(self.normal, self.laplace).within(min(abs(value), _PERIOD / 2))
        within = math.copysign(within, value)
        return math.log(max((1 + within) / 2, _LEAST_OUTSIDE / 2))

    @property
    def is_normal(self) -> bool:
        """Whether the noise is normal, always False for this class."""
        return False

    @property
    def reach(self) -> float:
        """The number of deviations from 0 up to which tail probabilities are accurate."""
        return self.quantile(_KNOWN_OUTSIDE)


def distribution_of(parts: Sequence[Part]) -> ErrorDistribution | SumDistribution:
    """Return the standardized distribution of a sum of independent noises; the normal one for none."""
    if all(one.is_normal for _, one in parts):
        return NORMAL
    return SumDistribution(*_over_whole(parts))


Distributions = tuple[ErrorDistribution, ErrorDistribution]


@functools.lru_cache(maxsize=256)
def ratio_quantile(upper: float, lower: float, distributions: Distributions, outside: float) -> float:
    """Return the greatest quantile, over t in [-1, 1], of the standardized noise of S - t N, for S / N."""
    if distributions[0].shape is None:
        return normal_quantile(outside)
    ratios = np.linspace(0.0, 1.0, _RATIOS).tolist()
    return max(
        sum_quantile([(upper, distributions[0]), (one * lower, distributions[1])], outside) for one in ratios
    )


def around(value: float, deviation: float, z: float) -> Interval:
    """Return the interval from z deviations below a value to z deviations above."""
    return value - z * deviation, value + z * deviation


def fieller(top: float, top_deviation: float, below: float, below_deviation: float, z: float) -> Interval:
    """Return Fieller's interval of a ratio of two noisy sums; all numbers if the denominator may be 0.

    Exact for independent normal noise: the true ratio t makes top - t below a centred normal number. Where
    the denominator is within its noise, or negative, the set is not bounded, and all numbers are returned.
    """
    lead = below**2 - (z * below_deviation) ** 2
    if below <= 0 or lead <= 0:
        return INFINITE
    inner = (z * below * top_deviation) ** 2 + (z * top * below_deviation) ** 2
    inner -= (z * z * top_deviation * below_deviation) ** 2
    spread = math.sqrt(max(inner, 0.0))
    return (top * below - spread) / lead, (top * below + spread) / lead


def share_interval(part: tuple[float, float], rest: tuple[float, float], z: float) -> Interval:
    """Return the interval of part / (part + rest), from two independent noisy counts and deviations.

    By `fieller` for the odds, or for the odds of the rest where that is the smaller count.
    """
    (above, above_deviation), (below, below_deviation) = part, rest
    if above <= below:
        low, high = fieller(above, above_deviation, below, below_deviation, z)
        return _share(low), _share(high)
    low, high = fieller(below, below_deviation, above, above_deviation, z)
    return 1 - _share(high), 1 - _share(low)


def _share(odds: float) -> float:
    """Return the share that odds stand for, 0 for negative odds."""
    if odds == math.inf:
        return 1.0
    return odds / (1 + odds) if odds > 0 else 0.0


def within(interval: Interval, low: float, high: float) -> Interval:
    """Return an interval clipped to [low, high], the range of possible values."""
    return min(max(interval[0], low), high), max(min(interval[1], high), low)


def squared(interval: Interval) -> Interval:
    """Return the interval of the squares of all numbers in an interval."""
    low, high = sorted((interval[0] ** 2, interval[1] ** 2))
    return (0.0 if interval[0] <= 0 <= interval[1] else low), high


def times(first: Interval, second: Interval) -> Interval:
    """Return the interval of the products of numbers from two finite intervals."""
    ends = [a * b for a in first for b in second]
    return min(ends), max(ends)


def minus(first: Interval, second: Interval) -> Interval:
    """Return the interval of the differences of numbers from two intervals, first less second."""
    return first[0] - second[1], first[1] - second[0]


def scaled(interval: Interval, factor: float, offset: float = 0.0) -> Interval:
    """Return the interval of offset + factor * x for x in an interval, with a positive factor."""
    return offset + factor * interval[0], offset + factor * interval[1]


def shown_count(
    value: float,
    deviation: float,
    least: float,
    outside: float,
    distribution: ErrorDistribution | SumDistribution = NORMAL,
) -> Interval:
    """Return a count's interval, given that a noisy count is shown only if it is `least` or more.

    The lower end is exact given that; the upper one errs above.
    """
    z = distribution.quantile(outside)
    low, high = around(value, deviation, z)
    clear = _CLEAR if distribution.is_normal else z + _CLEAR_LAPLACE
    if deviation == 0 or value >= least + clear * deviation:
        return max(low, 0.0), max(high, 0.0)

    def above(true: float) -> float:
        return distribution.log_below((true - value) / deviation) - distribution.log_below(
            (true - least) / deviation
        )

    lowest = max(value - distribution.reach * deviation, 0.0)
    low = _crossing(above, math.log(outside / 2), lowest, max(value, 0.0))
    # below what is known any count may be
    low = 0.0 if low == lowest else low
    return low, max(high, low)


def hidden_count(
    value: float,
    deviation: float,
    outside: float,
    distribution: ErrorDistribution | SumDistribution = NORMAL,
) -> Interval:
    """Return the interval from 0 to an upper bound of a count that is hidden as its noisy value is small.

    Its level is over all releases, those included in which the count is shown: given that it is hidden,
    nothing bounds a count, or, for noisy values near the threshold, only numbers far above the noise.
    """
    return 0.0, max(value, 0.0) + distribution.quantile(outside) * deviation


def _crossing(increasing: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return where an increasing function reaches a value, `low` or `high` if it does so outside them.

    By inverse quadratic interpolation where three points allow it, otherwise by halves [Chandrupatla 1997].
    """
    new, old = (low, increasing(low) - wanted), (high, increasing(high) - wanted)
    if new[1] >= 0 or old[1] < 0:
        return low if new[1] >= 0 else high
    close, part = _CLOSE * (high - low), 0.5
    while (width := abs(old[0] - new[0])) > 2 * close:
        point = new[0] + min(max(part, close / width), 1 - close / width) * (old[0] - new[0])
        value = increasing(point) - wanted
        if (value >= 0) == (new[1] >= 0):
            before = new
        else:
            before, old = old, new
        new = point, value
        part = _interpolated(new, old, before)
    return new[0] if new[1] >= 0 else old[0]


def _interpolated(new: Point, old: Point, before: Point) -> float:
    """Return the fraction of the way between two points where the inverse quadratic has its zero."""
    (a, f_a), (b, f_b), (c, f_c) = new, old, before
    if not math.isfinite(f_b) or not math.isfinite(f_c) or f_b == f_c:
        return 0.5
    way, rise = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
    if rise**2 >= way or (1 - rise) ** 2 >= 1 - way:
        return 0.5
    return f_a / (f_b - f_a) * f_c / (f_b - f_c) + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)


def shown_ratio(
    top: tuple[float, float],
    below: tuple[float, float],
    least: float,
    outside: float,
    distributions: Distributions = (NORMAL, NORMAL),
) -> Interval:
    """Return an interval of a ratio, within [-1, 1], of noisy sums, shown only if the lower is over `least`.

    Each sum is a value with the deviation of its noise. With t the true ratio, S the upper and N the lower
    sum, W = S - tN is a centred normal number that is independent of U = tS/sigma_S^2 + N/sigma_N^2. Given U,
    the condition is a bound on W, so W is a truncated normal number: those t are taken for which it is not in
    its tails. Exact for normal noise, but for the gaps between those t.

    For Laplace noise, by `distributions` of both sums, the quantile of W depends on t, and the greatest one
    is taken. Where the condition matters, the interval is the ratio of those of both sums at half of the
    probability.
    """
    (upper, upper_error), (lower, lower_error) = top, below
    if lower <= max(least, 0.0):
        return INFINITE
    if lower_error == 0 or lower >= least + _CLEAR * lower_error:
        z = ratio_quantile(upper_error, lower_error, distributions, outside)
        return fieller(upper, upper_error, lower, lower_error, z)
    if distributions[0].shape is not None:
        ends = around(upper, upper_error, distributions[0].quantile(outside / 2))
        low, high = shown_count(lower, lower_error, least, outside / 2, distributions[1])
        if low <= 0:
            return -1.0, 1.0
        return within(
            (ends[0] / (high if ends[0] > 0 else low), ends[1] / (low if ends[1] > 0 else high)), -1, 1
        )
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import log_ndtr

    ratios: NDArray[np.float64] = np.linspace(-1.0, 1.0, _GRID + 1)
    spread = np.hypot(upper_error, ratios * lower_error)
    residual = (upper - ratios * lower) / spread
    # lower > least is W < bound for t > 0, and W > bound for t < 0
    room = (lower - least) * spread / lower_error**2
    sign = np.where(ratios < 0, -1.0, 1.0)
    with np.errstate(divide="ignore"):
        bound = sign * residual + np.where(ratios == 0, np.inf, room / np.abs(ratios))
    tail = np.exp(log_ndtr(sign * residual) - log_ndtr(bound))
    inside = np.flatnonzero((tail >= outside / 2) & (tail <= 1 - outside / 2))
    own = int(np.clip(round((upper / lower + 1) * _GRID / 2), 0, _GRID))
    first, last = min(own, *inside.tolist(), own), max(own, *inside.tolist(), own)
    return float(ratios[max(first - 1, 0)]), float(ratios[min(last + 1, _GRID)])
