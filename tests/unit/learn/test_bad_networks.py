"""Bad input of learners of own, central and shared models: each fault names its field, party and bound."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from smpc_dp import simulate
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.errors import ConfigError

SIZES = [4, 4, 4]
LINEAR: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": SIZES,
    "ticks": 40,
    "record_bound": 1.0,
    "topology": [[0, 1], [1, 2]],
    "weights": [1.0, 0.5],
}
BOOSTED = {name: of for name, of in LINEAR.items() if name != "record_bound"} | {
    "learner": "personalized-boosting",
    "beta": 1.0,
    "stumps": 2,
    "lower": -1.0,
    "upper": 1.0,
}
OWNERS: dict[str, Any] = {
    "learner": "data-owners",
    "features": 2,
    "sizes": SIZES[1:],
    "ticks": 40,
    "clip": 1.0,
    "epsilons": [1.0, 2.0],
    "delta": 1e-6,
    "rate": 0.1,
}
SHARED: dict[str, Any] = {
    "learner": "local-global",
    "features": 2,
    "rounds": 2,
    "batch": 2,
    "record_bound": 1.0,
    "rate": 0.1,
}


@pytest.mark.parametrize("given", [LINEAR, BOOSTED], ids=["linear", "boosted"])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"weights": [1.0, -0.5]}, "weights: element 1 must be a number above 0, .* is -0.5"),
        ({"weights": [1.0, float("nan")]}, "weights: must be .* finite, is .* nan"),
        ({"weights": [1.0]}, "weights: 1 for 2 edges"),
        # A graph of edges has one weight for both directions: another one is a second edge.
        (
            {"topology": [[0, 1], [1, 2], [2, 1]], "weights": [1.0, 0.5, 0.7]},
            r"topology: has the edge \[1, 2\] twice",
        ),
        ({"topology": [[0, 1]], "weights": [1.0]}, "topology: the graph is disconnected: .* parties: 2"),
        ({"topology": [[0, 1], [1, 2], [2, 2]], "weights": [1.0] * 3}, r"topology\[2\]: 2, 2 is a loop"),
        ({"sizes": [0, 0, 0]}, "sizes: must be 0 or more, and not all 0"),
        ({"sizes": [4, -1, 4]}, "sizes: element 1 must be an integer from 0 .* is -1"),
        ({"sizes": [4, 4]}, "sizes: 2 for 3 parties"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon: must be a number above 0, .* is -1.0"),
        ({"epsilon": 1.0}, "delta"),
    ],
)
def test_graphs_parties_and_budgets(given: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    _check(given | change, fault)


@pytest.mark.parametrize(
    ("given", "change", "fault"),
    [
        (OWNERS, {"sizes": [4, 0]}, "sizes: element 1 must be an integer from 1 .* is 0"),
        (OWNERS, {"epsilons": [1.0]}, "epsilons: 1 for 2 owners"),
        (OWNERS, {"epsilons": [1.0, -2.0]}, "epsilons: element 1 must be a number above 0, .* is -2.0"),
        (OWNERS, {"answers": 0}, "answers: must be an integer from 1 .* is 0"),
        (SHARED, {"policy": "deep-q"}, "policy: must be 'public' or 'threshold', is 'deep-q'"),
        (SHARED, {"rate": 9.0}, r"rate: must be at most 1/\(2μ\) = 1, is 9"),
        (SHARED, {"epsilon": 1.0}, "delta"),
    ],
)
def test_owners_and_policies(given: dict[str, Any], change: dict[str, Any], fault: str) -> None:
    _check(given | change, fault)


def _check(parameters: dict[str, Any], fault: str) -> None:
    checked, issues = check_learn(parameters, 3)
    assert checked is None
    assert any(re.match(fault, str(issue)) for issue in issues), issues


def test_parties_with_other_numbers_of_records_than_agreed() -> None:
    """Without records, where some were agreed, too."""
    rng = np.random.default_rng(1)
    data = [np.c_[rng.uniform(-0.5, 0.5, (4, 2)), rng.integers(0, 2, 4)] for _ in SIZES]
    data[1] = data[1][:0]
    for given in (LINEAR, BOOSTED):
        with pytest.raises(ConfigError, match=r"sizes: party 1 has 0 records, not 4"):
            simulate.learn(given, data, fidelity="plain")
    with pytest.raises(ConfigError, match=r"sizes: party 1 has 0 records, not 4"):
        simulate.learn(OWNERS, [data[1], *data[1:]], fidelity="plain", seed_for_simulation=1)
    with pytest.raises(ConfigError, match="party 1: has no points"):
        simulate.learn(SHARED, data, fidelity="plain")


@pytest.mark.parametrize(
    ("entry", "value", "fault"),
    [
        ((1, 2), -0.5, "finite and not negative, is -0.5 between parties 1 and 2"),
        ((2, 1), np.inf, "finite and not negative, is inf between parties 2 and 1"),
        ((0, 2), 0.7, "finite and the same both ways, is 0.7 between parties 0 and 2"),
        ((1, 1), 0.7, "finite and 0 between a party and itself, is 0.7 between parties 1 and 1"),
    ],
)
def test_matrices_of_weights(entry: tuple[int, int], value: float, fault: str) -> None:
    weights = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
    weights[entry] = value
    with pytest.raises(ConfigError) as raised:
        PersonalizedObjective(sparse.csr_array(weights), np.array(SIZES), 1.0, np.ones(3), 1.0)
    assert str(raised.value) == f"weights: must be {fault}"
