"""Diffusion with correlated noise: the descent, what a record moves, bad settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.pairing_schedule import graph_of
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy import factorisation
from smpc_dp.privacy.gaussian import gaussian_mu

SIZES = [30, 24, 41, 30, 27]
SETTINGS: dict[str, Any] = {
    "learner": "diffusion",
    "features": 2,
    "steps": 20,
    "noise": "correlated",
    "epsilon": 3.0,
    "delta": 1e-6,
    "sizes": SIZES,
    "batches": 4,
    "rate": 0.5,
    "ridge": 0.1,
}


def tables() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    result = []
    for size in SIZES:
        points = rng.uniform(-1, 1, (size, 2))
        result.append(np.c_[points, points @ [2.0, -1.0] > 0])
    return result


def reference(data: list[np.ndarray]) -> np.ndarray:
    """Return the models without noise, by loops."""
    weights, models = graph_of("ring", 5).metropolis().toarray(), np.zeros((5, 3))
    for step in range(20):
        moved = models * (1 - 0.5 * 0.1)
        for party, table in enumerate(data):
            for row in table[step % 4 :: 4]:
                point = np.append(row[:2], 1.0)
                gradient = (1 / (1 + np.exp(-point @ models[party])) - row[2]) * point
                gradient /= max(1.0, float(np.linalg.norm(gradient)))
                moved[party] -= 0.5 * 4 / len(table) * gradient
        models = weights @ moved
    return models


def test_without_noise_it_is_descent_on_batches_in_cyclic_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorisation, "discrete_gaussian", lambda *given: np.zeros(given[1], np.int64))
    learned = simulate.learn(SETTINGS, tables())
    assert np.allclose(learned.values, reference(tables()), atol=1e-3)
    assert learned.confidential is False


def test_it_carries_the_guarantee_of_a_record_and_the_ledger_the_whole_run() -> None:
    learned = simulate.learn(SETTINGS, tables(), seed_for_simulation=1)
    claim = learned.guarantee
    assert claim is not None
    assert (claim.epsilon, claim.delta, claim.protects, claim.relation) == (
        3.0,
        1e-6,
        "record",
        "substitution",
    )
    checked, _ = check_learn(SETTINGS, 5)
    assert checked is not None
    event = checked.learner.requirements(5).own
    assert event is not None
    assert event.unit == "record"
    assert event.descriptions[0].mu == pytest.approx(gaussian_mu(3.0, 1e-6), rel=1e-6)  # type: ignore[union-attr]


def test_parties_with_more_records_need_less_noise() -> None:
    checked, _ = check_learn(SETTINGS, 5)
    noise = checked.learner.correlated  # type: ignore[union-attr]
    scales = [one.variances[0] ** 0.5 * size for one, size in zip(noise, SIZES, strict=True)]
    assert np.allclose(np.array(scales, float) / float(scales[0]), 1, rtol=1e-4)
    assert len({one.bits for one in noise}) == 1


@pytest.mark.parametrize(
    ("given", "where", "check"),
    [
        ({"delta": None}, "delta", ConfigCheck.MISSING),
        ({"epsilon": None}, "epsilon", ConfigCheck.MISSING),
        ({"sizes": [30] * 4}, "sizes", ConfigCheck.SHAPE),
        ({"batches": 25}, "batches", ConfigCheck.RANGE),
        ({"model": "softmax"}, "model", ConfigCheck.CHOICE),
        ({"publish": 1.0}, "publish", ConfigCheck.UNSUPPORTED),
        ({"steps": 1_001}, "steps", ConfigCheck.RANGE),
        ({"rate": 1.0, "ridge": 1.0}, "rate", ConfigCheck.RANGE),
        ({"epsilon": 1e-6, "delta": 1e-9}, "epsilon", ConfigCheck.INFEASIBLE),
        ({"noise": "iid", "sizes": None, "batches": None}, "delta", ConfigCheck.UNSUPPORTED),
        ({"noise": "iid", "delta": None, "batches": None}, "sizes", ConfigCheck.UNSUPPORTED),
        ({"noise": "homomorphic", "delta": None, "sizes": None}, "batches", ConfigCheck.UNSUPPORTED),
    ],
)
def test_bad_settings_are_named(given: dict[str, Any], where: str, check: ConfigCheck) -> None:
    settings = {name: value for name, value in (SETTINGS | given).items() if value is not None}
    _, issues = check_learn(settings, 5)
    assert [(issue.where, issue.check) for issue in issues] == [(where, check)]


def test_a_table_of_another_size_is_refused() -> None:
    data = tables()
    data[1] = data[1][:-1]
    with pytest.raises(ConfigError, match="party 1 has 23 records, not 24"):
        simulate.learn(SETTINGS, data)
