"""Composition theorems by the names that papers use, to compare with their figures; the ledger uses none.

`Composition` is never worse than these. Each takes one (epsilon, delta) for every mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.decimals import summed
from smpc_dp.privacy.guarantee import check_budget


def simple_composition(parameters: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return total (epsilon, delta) of mechanisms by basic composition: the sums, as exact decimals.

    [Dwork and Roth 2014, Theorem 3.16; Bellet 2021, Theorem A.2]
    """
    _check(parameters)
    return summed((e, 1) for e, _ in parameters), min(1.0, summed((d, 1) for _, d in parameters))


def advanced_composition(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Return total (epsilon, delta) of `count` equal mechanisms by advanced composition, `slack` in delta.

    [Dwork, Rothblum, Vadhan 2010; Dwork and Roth 2014, Theorem 3.20; Bellet 2021, Theorem A.3]
    """
    _check([(epsilon, delta)])
    _check_slack(slack, positive=True)
    _check_count(count)
    total = math.sqrt(2 * count * math.log(1 / slack)) * epsilon + count * epsilon * math.expm1(epsilon)
    return total, min(1.0, summed([(delta, int(count)), (slack, 1)]))


def kairouz_oh_viswanath(parameters: Sequence[tuple[float, float]], slack: float) -> tuple[float, float]:
    """Return total (epsilon, delta) by the heterogeneous theorem of Kairouz, Oh and Viswanath.

    [Kairouz, Oh, Viswanath 2015, Theorem 3.5; with all delta_i = 0: Bellet et al. 2018, Theorem 1]
    """
    _check(parameters)
    _check_slack(slack, positive=False)
    total = summed((e, 1) for e, _ in parameters)
    delta = -math.expm1(math.log1p(-slack) + math.fsum(math.log1p(-d) for _, d in parameters))
    if slack == 0:
        return total, delta
    squares = math.fsum(e * e for e, _ in parameters)
    drift = math.fsum(e * math.tanh(e / 2) for e, _ in parameters)
    second = drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack))
    third = drift + math.sqrt(2 * squares * math.log(1 / slack))
    return min(total, second, third), delta


def optimal_composition(epsilon: float, count: int, total: float) -> float:
    """Return delta at total epsilon `total` of the worst composition of `count` epsilon-DP mechanisms.

    That is the hockey-stick divergence of Binomial(count, p) and Binomial(count, 1 - p), p = e^epsilon / (1 +
    e^epsilon): the loss of randomised response. Exact but for a margin of 1e-6 of the result.
    [Kairouz, Oh, Viswanath 2015, Theorem 3.3]
    """
    # Not at the top: it takes long to load.
    from scipy.stats import binom

    _check([(epsilon, 0.0)])
    check_budget(total, 0.0)
    _check_count(count)
    if summed([(epsilon, int(count))]) <= total:
        return 0.0
    p = 1 / (1 + math.exp(-epsilon))
    # The loss of j truths is (2 j - count) epsilon.
    most = math.floor((count + total / epsilon) / 2)
    first, second = float(binom.sf(most, count, p)), float(binom.sf(most, count, 1 - p))
    return min(1.0, max(0.0, first - math.exp(total) * second) + 1e-6 * first)


def _check(parameters: Sequence[tuple[float, float]]) -> None:
    """Raise ConfigError unless each (epsilon, delta) is a valid pair of privacy parameters."""
    for epsilon, delta in parameters:
        check_budget(epsilon, delta)


def _check_count(count: int) -> None:
    """Raise ConfigError unless a number of mechanisms is an integer of 1 or more."""
    if not isinstance(count, int | np.integer) or count < 1:
        raise ConfigError(f"count must be a whole number of 1 or more, is {count!r:.80}", ConfigCheck.RANGE)


def _check_slack(slack: float, *, positive: bool) -> None:
    """Raise ConfigError unless slack, a part of delta, is >= 0 (> 0 if `positive`) and below 1."""
    if not isinstance(slack, Real) or not 0 <= slack < 1 or (positive and slack == 0):
        raise ConfigError(
            f"slack must be {'above' if positive else 'at least'} 0 and below 1, is {slack!r:.80}",
            ConfigCheck.RANGE,
        )
