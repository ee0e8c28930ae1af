"""Gossip ADMM goes to the minimiser of coordinate descent, one pair of neighbours at a time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scipy import sparse

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective, descend
from smpc_dp.capabilities.learn.models import Model, RecordGradients
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp_lab.bench.gossip_admm import GossipAdmm
from smpc_dp_lab.bench.linear_tasks import Problem

SIZES = np.array([8, 3, 12, 5])


def tasks() -> tuple[PersonalizedObjective, Problem, RecordGradients]:
    rng = np.random.default_rng(2)
    weights = np.zeros((4, 4))
    for a, b, weight in ((0, 1, 1.0), (1, 2, 0.4), (2, 3, 2.0), (3, 0, 0.7)):
        weights[a, b] = weights[b, a] = weight
    objective = PersonalizedObjective(sparse.csr_array(weights), SIZES, 0.8, 1 / SIZES, 3 / 4)
    features, labels = rng.uniform(-1, 1, (4, 12, 2)), rng.choice([-1.0, 1.0], (4, 12))
    here = np.arange(12) < SIZES[:, None]
    data = [np.c_[features[party, : SIZES[party]], labels[party, : SIZES[party]] > 0] for party in range(4)]
    model = Model("logistic", 2)
    ones = np.concatenate([features, np.ones((4, 12, 1))], axis=2)
    records = Problem(ones, labels * here, SIZES, objective.weights, (ones, labels))
    return objective, records, RecordGradients(model, model.points(data), 1.0)


@pytest.mark.long
@pytest.mark.parametrize("penalty", [0.3, 1.0])
def test_it_has_the_minimiser_of_coordinate_descent(penalty: float) -> None:
    objective, records, gradients = tasks()
    wakes = PublicDraws(1).below(4, 3_000)
    best = asyncio.run(descend(PlainExchange(4), objective, gradients, 3, wakes, 40))
    admm = GossipAdmm(records, objective, np.zeros((4, 3)), penalty, 1)
    early = np.abs(admm.run(20) - best).max()
    found = admm.run(1_500)
    np.testing.assert_allclose(found, best, atol=1e-4)
    assert early > 1e-3
