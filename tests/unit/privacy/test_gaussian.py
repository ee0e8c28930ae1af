"""The exact trade-off of a Gaussian mechanism, against 60 digits of mpmath."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.gaussian import LEAST_DELTA, gaussian_delta, gaussian_epsilon, gaussian_mu
from tests.examples import examples


def exact(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@settings(max_examples=examples(300))
@given(st.floats(0, 50), st.floats(-4, 2).map(lambda x: 10.0**x))
def test_delta_is_never_below_the_truth_and_close_to_it(epsilon: float, mu: float) -> None:
    ours, truth = gaussian_delta(epsilon, mu), exact(epsilon, mu)
    assert ours >= min(truth, 1)
    if truth > 1e-280:
        assert ours <= truth * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-5, 0.1])
def test_calibration_holds_and_nothing_larger_does(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert exact(epsilon, mu) <= delta
    assert exact(epsilon, mu * (1 + 1e-6)) > delta
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, abs=1e-6)


def test_published_value() -> None:
    # sigma for sensitivity 1 at (1, 1e-5): 3.7304 by Balle and Wang's own program, against 4.845 classically
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.7304, abs=5e-4)
    assert math.sqrt(2 * math.log(1.25 / 1e-5)) == pytest.approx(4.845, abs=1e-3)


def test_no_shift_and_hopeless_evaluation() -> None:
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(50.0, 1e-3) == LEAST_DELTA
    assert gaussian_delta(1.0, 1e-300) == LEAST_DELTA


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_values_are_named(bad: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        gaussian_delta(bad, 1.0)
    with pytest.raises(ConfigError, match="mu"):
        gaussian_delta(1.0, bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-6, math.nan])
def test_bad_delta_is_named(bad: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        gaussian_mu(1.0, bad)
    with pytest.raises(ConfigError, match="delta"):
        gaussian_epsilon(bad, 1.0)
