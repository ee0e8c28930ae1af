"""What a party that knows its own share of the noise learns from a sum, by exact distributions.

No code of the accountant is used. The view of party j is the sum less its own share. For one coordinate on a
coarse grid the distribution of the other shares is a convolution of discrete Gaussians, computed here over
all points of non-negligible mass.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.learn.methods import AveragerTable
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.secagg.noisy import NoisySumParameters

DELTA = 1e-6
STEPS = 16
GIVEN = {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 1 / STEPS, "epsilon": 1.0, "delta": DELTA}


def shares(variance: float, count: int) -> NDArray[np.float64]:
    """Return the masses of the sum of so many discrete Gaussian shares, on -R..R."""
    reach = math.ceil(14 * math.sqrt(variance))
    points = np.arange(-reach, reach + 1)
    one = np.exp(-(points**2) / (2 * variance))
    one /= one.sum()
    whole = np.ones(1)
    for _ in range(count):
        whole = np.convolve(whole, one)
    return whole


def true_epsilon(masses: NDArray[np.float64], shift: int) -> float:
    """Return the least epsilon at DELTA between a distribution and itself moved by `shift`."""
    one, other = np.pad(masses, (0, shift)), np.pad(masses, (shift, 0))

    def delta(epsilon: float) -> float:
        return max(
            float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((one, other), (other, one))
        )

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high


def planned(protocol: str, parties: int, **more: object) -> SumParameters:
    parameters, faults = checker_of(protocol, session_protocol(protocol).version)(GIVEN | more, parties)
    assert parameters is not None, faults
    assert isinstance(parameters, SumParameters)
    return parameters


@pytest.mark.parametrize("parties", [3, 4, 9])
@pytest.mark.parametrize(("more", "corrupt"), [({"corrupt": 0.0}, 0), ({}, 1)], ids=["nobody", "by default"])
def test_a_party_that_knows_its_own_share_sees_no_more_than_epsilon(
    parties: int, more: dict[str, object], corrupt: int
) -> None:
    """Whether it is one that colludes with the aggregator or not."""
    parameters = planned("secagg", parties, dropout=0.0, **more)
    assert isinstance(parameters, NoisySumParameters)
    plan = parameters.plan
    assert (plan.max_corrupt, plan.max_dropouts) == (corrupt, 0)
    assert plan.min_honest_in_sum == parties - corrupt
    view = true_epsilon(shares(float(parameters.variance), parties - 1), STEPS)
    assert 0.98 < view <= 1.0


@pytest.mark.parametrize(("counted", "seen"), [(9, 1.07), (4, 1.17), (3, 1.24)])
def test_with_all_shares_counted_the_view_costs_more(counted: int, seen: float) -> None:
    """What a plan would claim that counts the share of the party that looks: the reference tells it apart."""
    low, high = 1.0, 1e6
    for _ in range(50):
        middle = math.sqrt(low * high)
        enough = true_epsilon(shares(middle, counted), STEPS) <= 1.0
        low, high = (low, middle) if enough else (middle, high)
    assert true_epsilon(shares(high, counted - 1), STEPS) == pytest.approx(seen, abs=0.01)


@pytest.mark.parametrize(("parties", "more"), [(10, {}), (12, {"corrupt": 0.25}), (10, {"dropout": 0.2})])
def test_colluding_parties_are_the_ones_that_look(parties: int, more: dict[str, object]) -> None:
    parameters = planned("secagg", parties, **more)
    assert isinstance(parameters, NoisySumParameters)
    plan = parameters.plan
    assert plan.max_corrupt >= 1
    unknown = plan.min_honest_in_sum
    assert true_epsilon(shares(float(parameters.variance), unknown), STEPS) <= 1.0


@pytest.mark.parametrize("corrupt", [0.0, 0.25])
@pytest.mark.parametrize(
    "more", [{"on_dropout": "keep"}, {"on_dropout": "roll-back"}, {"verifiable": True, "precision": 0.25}]
)
def test_gopa_counts_one_user_less_too(corrupt: float, more: dict[str, object]) -> None:
    """The total alone: all pairwise terms cancel, and own noise of the parties that do not look is left."""
    parameters = planned("gopa", 8, corrupt=corrupt, dropout=0.125, **more)
    assert isinstance(parameters, GopaParameters)
    unknown = 8 - 1 - max(parameters.plan.max_corrupt, 1)
    assert parameters.session.honest == unknown
    steps = parameters.encoding.highest - parameters.encoding.lowest
    assert true_epsilon(shares(float(parameters.session.own_variance), unknown), steps) <= 1.0


@pytest.mark.parametrize("topology", ["relay", "direct"])
def test_gopa_of_either_topology_counts_the_same(topology: str) -> None:
    parameters = planned("gopa", 5, topology=topology, corrupt=0.0, dropout=0.0)
    assert isinstance(parameters, GopaParameters)
    assert parameters.session.honest == 4


@pytest.mark.parametrize(("method", "size", "unknown"), [("secagg", 5, 4), ("gopa", 5, 4), ("local", 5, 1)])
def test_groups_of_learners_count_one_member_less(method: str, size: int, unknown: int) -> None:
    table = AveragerTable(method=method, colluders=0)  # type: ignore[arg-type]
    parameters = table.plan(size, 1, 8.0, 1.0, DELTA)
    assert isinstance(parameters, SumParameters)
    noise = parameters.noise(size, 0)
    assert noise is not None
    assert noise.honest == unknown
    variance = (noise.total / parameters.encoding.step) ** 2 / size
    # On a coarser grid, for the reference; the noise is wide enough for that.
    coarse = parameters.encoding.diameter / STEPS
    assert true_epsilon(shares(variance / coarse**2, unknown), STEPS) <= 1.0 + 1e-3


def test_a_pair_that_shares_the_noise_claims_nothing_against_each_other() -> None:
    parameters = AveragerTable(method="pair", colluders=0).plan(2, 1, 1.0, 1.0, DELTA)
    assert isinstance(parameters, SumParameters)
    guarantee = parameters.privacy(2).guarantee
    assert guarantee is not None
    assert "against everybody who is not in the exchange" in guarantee.assumption
