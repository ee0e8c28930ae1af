"""Privacy of a Gaussian shift [Balle, Wang 2018, Theorem 8]."""

from __future__ import annotations

import math

# By this part delta is rounded up.
MARGIN = 1e-9


def _delta(epsilon: float, mu: float) -> float:
    """Return delta at epsilon of two unit Gaussians whose means are `mu` apart, rounded up."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    second = tail(epsilon / mu + mu / 2)
    moved = math.exp(min(epsilon + math.log(second), 0.0)) if second else 0.0
    return min(1.0, (tail(epsilon / mu - mu / 2) - moved) * (1 + MARGIN))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the greatest shift mu, in standard deviations, that a Gaussian hides with (ε, δ)-privacy."""
    low, high = 0.0, 1.0
    while _delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(epsilon, middle) <= delta else (low, middle)
    return low


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon, at this delta, of a Gaussian that is shifted by mu deviations."""
    low, high = 0.0, 1.0
    if _delta(0.0, mu) <= delta:
        return 0.0
    while _delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(middle, mu) <= delta else (middle, high)
    return high
