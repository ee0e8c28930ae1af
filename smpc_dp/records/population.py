"""What answers say about a population that the rows are independent draws of, with the noise in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smpc_dp.records.intervals import (
    INFINITE,
    NORMAL,
    ErrorDistribution,
    Interval,
    Part,
    around,
    normal_quantile,
    ratio_quantile,
    share_interval,
    sum_outside,
    sum_quantile,
)

# Sampling errors of variances, covariances and correlations that have no fourth moments.
NORMAL_THEORY = "sampling error for normal values"


@dataclass(frozen=True)
class Sampling:
    """Inference from one noisy number on the population: sampling error, interval for both errors, p-value.

    Attributes:
        error: the standard error of the rows as a sample, apart from the noise; None where it is not known.
        ends: the interval for noise and sampling together; None where there is none.
        p_value: of a test, the noise included: the probability of what is seen, or of more, where the
            population has no difference or no association.
    """

    error: float | None = None
    ends: Interval | None = None
    p_value: float | None = None


def sampling(value: float, ends: Interval, error: float | None, outside: float) -> Sampling | None:
    """Return a population's interval, from that of the noise and a sampling error; None without an error.

    The distances of both from the value are added in squares [Zou and Donner 2008], which is exact where both
    errors are normal.
    """
    if error is None:
        return None
    reach = normal_quantile(outside) * error
    return Sampling(error, _moved(value, [(value - ends[0], ends[1] - value), (reach, reach)]))


def first_order(
    value: float,
    noise: float | None,
    error: float | None,
    outside: float,
    parts: Sequence[Part] = (),
) -> Sampling | None:
    """Return a population's interval from the standard errors of noise and sampling; None if one is None.

    For answers whose interval of the noise is wider than its level needs. `parts`: the independent noises
    that `noise` consists of, with their laws; normal without them.
    """
    if noise is None or error is None:
        return None
    z = sum_quantile([*parts, (error, NORMAL)], outside) if parts else normal_quantile(outside)
    return Sampling(error, around(value, math.hypot(noise, error), z))


def on_scale(
    value: float,
    noise: float | None,
    error: float | None,
    outside: float,
    scale: tuple[Callable[[float], float], Callable[[float], float], float],
    parts: Sequence[Part] = (),
) -> Sampling | None:
    """Return a population's interval on a transformed scale; None without both standard errors.

    `parts` as of `first_order`.
    """
    if noise is None or error is None:
        return None
    forth, back, slope = scale
    z = sum_quantile([*parts, (error, NORMAL)], outside) if parts else normal_quantile(outside)
    low, high = around(forth(value), slope * math.hypot(noise, error), z)
    return Sampling(error, (back(low), back(high)))


def _moved(value: float, reaches: Sequence[Interval]) -> Interval:
    """Return an interval around a value whose reaches down and up combine several in root sum of squares."""
    down, up = (math.hypot(*(max(each[end], 0.0) for each in reaches)) for end in (0, 1))
    return value - down, value + up


def difference(first: float, first_ends: Interval, second: float, second_ends: Interval) -> Interval:
    """Return the interval of a difference of two independent numbers, from both numbers' intervals."""
    return _moved(
        first - second,
        [(first - first_ends[0], first_ends[1] - first), (second_ends[1] - second, second - second_ends[0])],
    )


def two_sided(deviations: float, freedom: float = math.inf) -> float:
    """Return the two-sided p-value of a standard normal statistic, or of Student's t."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtr, stdtr

    if math.isinf(freedom):
        return float(2 * ndtr(-abs(deviations)))
    return float(2 * stdtr(freedom, -abs(deviations)))


def student_quantile(freedom: float, outside: float) -> float:
    """Return t such that Student's t is outside [-t, t] with this probability."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import stdtrit

    return normal_quantile(outside) if math.isinf(freedom) else float(-stdtrit(freedom, outside / 2))


def chi_square_tail(value: float, freedom: float) -> float:
    """Return the probability that a chi-square variable exceeds a value."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import gammaincc

    return float(gammaincc(freedom / 2, max(value, 0.0) / 2))


@dataclass(frozen=True)
class Share:
    """Estimated proportion of rows with an event, from noisy counts with and without it.

    Attributes:
        events, rest: the noisy counts; noise: the deviation of each.
        distribution: of each noise over its deviation.
    """

    events: float
    rest: float
    noise: float
    distribution: ErrorDistribution = NORMAL

    @property
    def rows(self) -> float:
        """The noisy number of rows, with and without an event."""
        return self.events + self.rest

    @property
    def value(self) -> float:
        """The estimated proportion, cut to [0, 1]."""
        return min(max(self.events / self.rows, 0.0), 1.0)

    @property
    def square(self) -> float:
        """The binomial variance of the proportion over samples of rows."""
        return self.value * (1 - self.value) / self.rows

    @property
    def noise_error(self) -> float:
        """The standard error that the noise brings to the proportion, to first order."""
        return self.noise * math.hypot(self.value, 1 - self.value) / self.rows

    def noise_ends(self, outside: float) -> Interval:
        """Return the interval of the proportion among the given rows, for the noise alone."""
        z = ratio_quantile(self.noise, self.noise, (self.distribution, self.distribution), outside)
        return share_interval((self.events, self.noise), (self.rest, self.noise), z)

    def population_ends(self, outside: float) -> Interval:
        """Return the interval of the population's proportion: Wilson's, widened by that of the noise."""
        z, rows = normal_quantile(outside), self.rows
        middle = (self.value + z * z / (2 * rows)) / (1 + z * z / rows)
        half = z * math.sqrt(self.square + z * z / (4 * rows * rows)) / (1 + z * z / rows)
        low, high = self.noise_ends(outside)
        value = self.value
        ends = _moved(value, [(value - low, high - value), (value - middle + half, middle + half - value)])
        return max(ends[0], 0.0), min(ends[1], 1.0)


def equal_shares_p_value(first: Share, second: Share) -> float | None:
    """Return the p-value of two proportions' equality, noise included; None without any error.

    At the pooled share p the difference is the sum of (1 - p) events/n - p rest/n of both, with signs: linear
    in the four counts, whose noises have their own laws.
    """
    rows = first.rows + second.rows
    share = min(max((first.events + second.events) / rows, 0.0), 1.0)
    value, parts = 0.0, []
    for sign, one in ((1, first), (-1, second)):
        value += sign * ((1 - share) * one.events - share * one.rest) / one.rows
        parts.append((math.sqrt(share * (1 - share) / one.rows), NORMAL))
        parts += [(part * one.noise / one.rows, one.distribution) for part in (share, 1 - share)]
    return p_value(value, parts)


def p_value(value: float, parts: Sequence[Part]) -> float | None:
    """Return the two-sided p-value of a sum of independent errors being so large; None without any error."""
    whole = math.hypot(*(deviation for deviation, _ in parts))
    return sum_outside(parts, abs(value) / whole) if whole else None


def transformed(ends: Interval, scale: Callable[[float], float]) -> Interval:
    """Return an interval's ends on an increasing scale, infinite where the scale is not defined."""
    return _or_infinite(scale, ends[0], -math.inf), _or_infinite(scale, ends[1], math.inf)


def _or_infinite(scale: Callable[[float], float], value: float, otherwise: float) -> float:
    """Return a function's value, or `otherwise` where the function raises an arithmetic error."""
    try:
        return scale(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        return otherwise


def ratio(first: float, first_ends: Interval, second: float, second_ends: Interval) -> Interval:
    """Return the interval of a ratio of two independent positive numbers, by logarithms; else all numbers."""
    if min(first, second) <= 0:
        return INFINITE
    low, high = difference(
        math.log(first),
        transformed(first_ends, math.log),
        math.log(second),
        transformed(second_ends, math.log),
    )
    return math.exp(low), math.exp(high) if high < 700 else math.inf
