"""What a result shows: five lines at most, a table for notebooks, confidence intervals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.engine.result import Noise, Result
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.receipt import Receipt, Spending

HALVES = np.full((20, 1000), 0.5)
PRIVATE: dict[str, Any] = {
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 2.0,
    "delta": 1e-6,
    "seed_for_simulation": 1,
}


def charged(result: Result) -> Result:
    receipt = Receipt(
        ledger="l",
        party="alice",
        dataset="d",
        number=1,
        run="r",
        digest="d",
        spent=Spending(1.25, 1e-5, 0),
        budget_epsilon=5.0,
        budget_delta=1e-5,
        repeated=False,
    )
    return dataclasses.replace(result, privacy=dataclasses.replace(result.privacy, receipt=receipt))


def test_an_exact_average_is_shown_in_three_lines() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    result = simulate.average(values, lower=-10, upper=10, seed_for_simulation=1)
    assert str(result).splitlines() == [
        "average over 3 of 3 parties: [3.0, 5.0]",
        "nobody was missing",
        "privacy: exact, no differential privacy",
    ]


def test_everything_at_once_is_five_lines() -> None:
    result = charged(simulate.average(HALVES, dropout=0.1, **PRIVATE))
    result = dataclasses.replace(
        result, survivors=("a",) * 18, absent=("<b>", "c"), faults=("c: late",), clipped=3
    )
    first, missing, noise, privacy, ledger = str(result).splitlines()
    assert first.startswith("average over 18 of 20 parties: [")
    assert first.endswith(", … (1000 values)]")
    assert missing == "without: <b>, c; faults: 1; 3 values of this party were clipped"
    assert noise.startswith("noise: ±8.")
    assert noise.endswith(" in each coordinate, with probability 95 %")
    assert privacy == "privacy: epsilon 2, delta 1e-06 of each honest party"
    assert ledger == "ledger of alice: epsilon = 1.25 of 5 spent at delta = 1e-05"
    page = result._repr_html_()
    assert "without: &lt;b&gt;, c; faults: 1<" in page
    assert ledger in page
    assert "<b>" not in page


def test_a_sum_of_no_weight_is_shown() -> None:
    result = simulate.average(
        [[1.0], [1.5], [2.0]], lower=0, upper=4, weights=[1, 1, 1], seed_for_simulation=1
    )
    assert "sum over 3 of 3 parties: [0.0]" in str(
        dataclasses.replace(result, kind="sum", weight=0, value=np.zeros(1))
    )


def test_an_exact_result_has_an_interval_of_no_width() -> None:
    result = simulate.average([[1.0], [1.5], [2.0]], lower=0, upper=4, seed_for_simulation=1)
    interval = result.interval()
    assert interval.lower.tolist() == interval.upper.tolist() == [1.5]
    assert interval.covers.endswith("there is no noise")


@pytest.mark.parametrize("options", [{}, {"mechanism": "skellam"}, {"method": "gopa"}])
def test_an_interval_covers_the_average_as_often_as_it_says(options: dict[str, Any]) -> None:
    result = simulate.average(HALVES, **PRIVATE, **options)
    interval = result.interval(0.9)
    missed = np.count_nonzero((interval.lower > 0.5) | (interval.upper < 0.5))
    # 1000 coordinates, each missed with probability 0.1; five deviations: a false alarm is below 1e-6.
    assert abs(missed - 100) <= 5 * np.sqrt(1000 * 0.1 * 0.9)
    assert interval.level == 0.9
    assert "if every survivor drew its noise" in interval.covers


def test_the_interval_of_a_verifiable_average_is_of_binomial_noise() -> None:
    result = simulate.average(
        np.full((6, 1), 0.5),
        lower=0,
        upper=1,
        method="gopa",
        verifiable=True,
        epsilon=4.0,
        delta=1e-5,
        precision=0.125,
        seed_for_simulation=1,
    )
    assert result.noise is not None
    (own, survivors), _pairs = result.distributions
    assert (type(own).__name__, survivors) == ("BinomialDistribution", 6)
    assert float(own.variance) * 6 * result.step**2 == pytest.approx(result.noise.total**2)


def test_noise_of_which_the_deviation_alone_is_known_has_a_wide_interval() -> None:
    result = simulate.average([[1.0], [1.5], [2.0]], lower=0, upper=4, seed_for_simulation=1)
    interval = dataclasses.replace(result, noise=Noise(3.0, 3.0, 2, 0)).interval(0.75)
    assert (interval.lower[0], interval.upper[0]) == (1.5 - 2.0, 1.5 + 2.0)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, float("nan")])
def test_a_level_outside_of_0_and_1_is_refused(level: float) -> None:
    result = simulate.average([[1.0], [1.5], [2.0]], lower=0, upper=4, seed_for_simulation=1)
    with pytest.raises(ConfigError, match="level: must be between 0 and 1") as error:
        result.interval(level)
    assert error.value.issues[0].check is ConfigCheck.RANGE


def test_an_average_by_a_noisy_weight_has_no_interval() -> None:
    result = simulate.average([[1.0], [1.5], [2.0]], lower=0, upper=4, seed_for_simulation=1)
    result = dataclasses.replace(result, noise=Noise(3.0, 3.0, 2, 0), noisy_weight=True)
    with pytest.raises(ConfigError, match="the weight has noise too"):
        result.interval()
    assert len(str(result).splitlines()) == 3
