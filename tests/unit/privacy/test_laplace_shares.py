"""Shares of discrete Laplace noise: their law, exactly, and what is known of their sums."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, nbinom

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.mechanisms import DistributedSum
from smpc_dp.privacy.mechanisms.laplace_shares import LaplaceShare, least_scale
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.sampling import NoiseSource

ONE = Sensitivity.on_integers("add-remove", l1=2.0)
FALSE_ALARM = 1e-6


def masses(scale: float, shape: float, reach: int) -> NDArray[np.float64]:
    """Return the masses on -reach..reach of a difference of negative binomials, by their convolution."""
    one = nbinom.pmf(np.arange(60 * reach), shape, -np.expm1(-1 / scale))
    return np.array([float(one[abs(k) :] @ one[: len(one) - abs(k)]) for k in range(-reach, reach + 1)])


@pytest.mark.parametrize(
    ("scale", "parts", "shares"), [(2, 3, 1), (2, 3, 3), (5, 4, 4), (2, 2, 5), (3, 1, 1)]
)
def test_a_sum_of_shares_has_its_law(scale: int, parts: int, shares: int) -> None:
    """A part of a share, all of them, or more: chi-square at 1e-6."""
    share = LaplaceShare(ONE, Fraction(scale), parts)
    source = NoiseSource.keyed(hashlib.sha256(f"{scale} {parts} {shares}".encode()).digest(), b"law")
    count, reach = 100_000, 4 * scale
    drawn = np.sum([share.noise(source, count) for _ in range(shares)], axis=0)
    expected = masses(scale, shares / parts, reach)
    if shares == parts:
        whole = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
        q = np.exp(-1 / scale)
        assert expected == pytest.approx(whole * (1 - q) / (1 + q), rel=1e-9)
    seen = np.array([np.sum(drawn == k) for k in range(-reach, reach + 1)])
    rest = count - seen.sum()
    fit = chisquare([*seen, rest], [*(count * expected), count * (1 - expected.sum())])
    assert fit.pvalue > FALSE_ALARM


def test_the_counted_shares_are_one_discrete_laplace_noise_and_fewer_are_nothing() -> None:
    share = LaplaceShare(ONE, least_scale(2.0, 0.5), 3)
    assert share.scale == 4
    assert DistributedSum(share, 5, 1, 1).delta(0.5) == 0.0
    assert DistributedSum(share, 5).delta(0.5) == 0.0
    assert DistributedSum(share, 5, 1, 1).delta(0.4) > 0.0
    with pytest.raises(ConfigError, match="nothing is known of 2 shares"):
        DistributedSum(share, 5, 2, 1).event()
