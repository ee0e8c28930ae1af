"""The exact trade-off of a Gaussian mechanism, and its calibration [Balle and Wang, ICML 2018].

`mu` is the L2 distance of the two means over the standard deviation. A mechanism is (epsilon, delta)-DP if
and only if delta is at least `gaussian_delta(epsilon, mu)` for the largest mu over neighbouring inputs
(their Theorem 8), for every epsilon >= 0. Floating point: delta is rounded up, epsilon up and mu down, by
more than the error of the evaluation, so each stated guarantee holds.
"""

from __future__ import annotations

import math

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import checks_numbers
from smpc_dp.privacy.search import bisect

# The evaluation below loses a few units in the last place of numbers up to about 700 in the exponent.
_MARGIN = 1e-9
# Below this, delta is reported as this: smaller differences are lost to the evaluation.
LEAST_DELTA = 1e-300
GREATEST_MU = 1e3


def _check(**values: float) -> None:
    """Raise ConfigError for named values that are negative or not finite."""
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"{name} is {value}: it must be a finite number, 0 or more", ConfigCheck.RANGE)


@checks_numbers
def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the exact delta at epsilon of a Gaussian mechanism of mean shift mu (in sigmas), rounded up.

    Raises ConfigError for values that are not finite or out of range. [Balle and Wang 2018, Theorem 8]
    """
    _check(epsilon=epsilon, mu=mu)
    if mu > GREATEST_MU:
        raise ConfigError(f"mu is {mu}: at most {GREATEST_MU:g} standard deviations", ConfigCheck.RANGE)
    if mu == 0:
        return 0.0
    if epsilon == 0:
        return min(1.0, math.erf(mu / math.sqrt(8)) * (1 + _MARGIN))
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import log_ndtr

    # delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), in logarithms
    high = float(log_ndtr(mu / 2 - epsilon / mu))
    low = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if high < math.log(LEAST_DELTA):
        return LEAST_DELTA
    error = 1e-14 * (1 + abs(low) + abs(high) + (epsilon / mu) ** 2)
    log_delta = high + math.log(-math.expm1(min(low - high, 0.0) - error))
    return min(1.0, max(LEAST_DELTA, math.exp(log_delta) * (1 + _MARGIN)))


@checks_numbers
def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the exact epsilon at delta of a Gaussian mechanism of mean shift mu (in sigmas), rounded up."""
    _check_delta(delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    return bisect(lambda epsilon: gaussian_delta(epsilon, mu) > delta, low, high)[1]


@checks_numbers
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the greatest mean shift, in sigmas, of a Gaussian mechanism that is (epsilon, delta)-DP.

    Noise of standard deviation `sensitivity / gaussian_mu(epsilon, delta)` is the least that suffices. Raises
    ConfigError unless epsilon >= 0 and 0 < delta < 1. [Balle and Wang 2018, Algorithm 1]
    """
    _check_delta(delta)
    low, high = 0.0, 1.0
    while high < GREATEST_MU and gaussian_delta(epsilon, high) <= delta:
        low, high = high, min(2 * high, GREATEST_MU)
    return bisect(lambda mu: gaussian_delta(epsilon, mu) <= delta, low, high)[0]


def _check_delta(delta: float) -> None:
    """Raise ConfigError unless delta is above 0 and below 1."""
    if not LEAST_DELTA < delta < 1:
        raise ConfigError(f"delta is {delta}: it must be between 0 and 1, both excluded", ConfigCheck.RANGE)
