"""What notebooks show of a statistic of pairs."""

from __future__ import annotations

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau


def test_an_estimate_draws_its_interval_and_says_its_privacy() -> None:
    records = [(float(one), float(one * one)) for one in range(8)]
    result = simulate.pairwise(kendall_tau(Field(0, 100), Field(0, 100)), records, epsilon=8.0)
    page = result._repr_html_()
    assert page.count('<circle class="dot series-1"') == 1
    assert "The estimate with its 95% interval" in page
    assert "privacy: epsilon 8, delta 0 of each honest party" in page
    assert "What this does not protect" in page
