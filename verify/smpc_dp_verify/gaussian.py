"""Privacy of a Gaussian shift [Balle, Wang 2018, Theorem 8]."""

from __future__ import annotations

import math

# By this part delta is rounded up, and logarithms by this part of their size: plans depend on the digits of
# shifts that this moves.
MARGIN, ROUNDING = 1e-9, 1e-14


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta at any epsilon of two Gaussians that are `mu` standard deviations apart, rounded up."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    first, second = tail(epsilon / mu - mu / 2), tail(epsilon / mu + mu / 2)
    if not first * second:
        return min(1.0, first * (1 + MARGIN))
    high, low = math.log(first), epsilon + math.log(second)
    error = ROUNDING * (1 + abs(low) + abs(high) + (epsilon / mu) ** 2)
    return min(1.0, first * -math.expm1(min(low - high, 0.0) - error) * (1 + MARGIN))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the greatest shift mu, in standard deviations, that a Gaussian hides with (ε, δ)-privacy.

    Raises ValueError unless delta is below 1: any shift has a delta of 1 at most.
    """
    if not delta < 1:
        raise ValueError("delta")
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return low


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon, at this delta, of a Gaussian that is shifted by mu deviations.

    Raises ValueError unless delta is 0 at least.
    """
    if not delta >= 0:
        raise ValueError("delta")
    low, high = 0.0, 1.0
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(middle, mu) <= delta else (middle, high)
    return high
