"""Central DP-SGD composed a second time, by one power of an FFT of losses on an even grid.

Losses are rounded to the nearest point of the grid, so this estimates delta instead of bounding it; the
error falls with the square of the step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from smpc_dp.privacy.network.complete import hidden_delta

Floats = NDArray[np.float64]
PARTIES, STEPS, DELTA = 2_000, 20_000, 1e-6
RATE = 1 / PARTIES
CELLS = 1 << 21


def composed(tail: Callable[[Floats], Floats], step: float, epsilon: float) -> float:
    """Return delta at epsilon of STEPS releases whose loss is above l with probability tail(l)."""
    indices = np.arange(CELLS) - CELLS // 4
    edges = (np.append(indices, indices[-1] + 1) - 0.5) * step
    masses = -np.diff(tail(edges))
    spectrum = np.fft.rfft(np.roll(masses, -(CELLS // 4)))
    whole = np.roll(np.fft.irfft(spectrum**STEPS, CELLS), CELLS // 4)
    losses = indices * step
    above = losses > epsilon
    return float(whole[above] @ -np.expm1(epsilon - losses[above]))


def both_ways(sigma: float) -> Callable[[Floats], Floats]:
    """The worse of both directions of one step, at every epsilon: P(L > e) = delta(e) + e^e Q(L > e)."""
    mu = 2 / sigma

    def tail(loss: Floats) -> Floats:
        e = np.abs(loss)
        other = np.log1p(np.expm1(e) / RATE)
        under_q = norm.cdf(-mu / 2 - other / mu)
        delta = RATE * (norm.cdf(mu / 2 - other / mu) - np.exp(other) * under_q)
        # P(L < -e) = Q(L > e).
        return np.asarray(np.where(loss >= 0, delta + np.exp(e) * under_q, 1 - under_q))

    return tail


def one_way(sigma: float) -> Callable[[Floats], Floats]:
    """All others send the opposite of what the party sends in one world, and it sends that in the other."""
    mu = 2 / sigma

    def tail(loss: Floats) -> Floats:
        inside = np.maximum(np.expm1(loss) / RATE + 1, 1e-300)
        least = np.log(inside) / mu + mu / 2
        return np.asarray((1 - RATE) * norm.sf(least) + RATE * norm.sf(least - mu))

    return tail


def test_central_sigma_at_epsilon_1_is_1_470() -> None:
    assert composed(both_ways(1.4690), 2e-5, 1.0) > DELTA
    assert composed(both_ways(1.4702), 2e-5, 1.0) < DELTA
    # The accountant rounds up, by less than the fourth digit of sigma.
    assert hidden_delta(1.0, 2 / 1.4705, STEPS, PARTIES) <= DELTA
    assert hidden_delta(1.0, 2 / 1.4690, STEPS, PARTIES) > DELTA


@pytest.mark.long
def test_central_sigma_at_epsilon_10_is_0_852_and_0_830_is_not_private() -> None:
    assert composed(both_ways(0.8515), 2e-5, 10.0) > DELTA
    assert composed(both_ways(0.8521), 2e-5, 10.0) < DELTA
    assert hidden_delta(10.0, 2 / 0.8521, STEPS, PARTIES) <= DELTA
    # A lower bound for any accountant: one pair of inputs that the claim covers.
    assert 1.9e-6 < composed(one_way(0.830), 2e-5, 10.0) < 2.0e-6
    assert composed(one_way(0.839), 2e-5, 10.0) > DELTA > composed(one_way(0.841), 2e-5, 10.0)
