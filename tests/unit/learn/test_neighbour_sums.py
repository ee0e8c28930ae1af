"""Personalised models by secure sums of neighbours: the same models, what is charged, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import Averaged, PlainAverager
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.errors import ConfigCheck, ConfigError

SETTINGS: dict[str, Any] = {
    "learner": "personalized",
    "features": 2,
    "sizes": [20] * 5,
    "ticks": 12,
    "record_bound": 1.0,
    "seed": 1,
}


def tables() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [np.column_stack([rng.uniform(-0.5, 0.5, (20, 2)), rng.integers(0, 2, 20)]) for _ in range(5)]


@pytest.mark.parametrize("fidelity", ["plain", "ideal", "machines"])
def test_exact_sums_give_the_models_of_broadcasts(fidelity: Any) -> None:
    """With every message too, for "machines"."""
    shown = simulate.learn(SETTINGS, tables())
    summed = simulate.learn(SETTINGS | {"sum_bound": 50.0}, tables(), fidelity=fidelity)
    assert np.allclose(summed.values, shown.values, atol=1e-7)
    assert summed.confidential is True
    assert "exact sums give them away" in summed.claim
    assert summed.done.sum() == 12


def test_models_are_clipped_to_the_bound_in_sums() -> None:
    summed = simulate.learn(SETTINGS | {"sum_bound": 1e-6}, tables(), fidelity="plain")
    alone = simulate.learn(SETTINGS | {"sum_bound": 1e-9}, tables(), fidelity="plain")
    assert np.allclose(summed.values, alone.values, atol=1e-5)
    assert not np.allclose(summed.values, simulate.learn(SETTINGS, tables()).values, atol=1e-3)


def test_each_sum_is_charged_to_every_neighbour_for_all_of_its_data() -> None:
    given = SETTINGS | {"sum_bound": 1.0, "epsilon": 50.0, "delta": 1e-6}
    checked, issues = check_learn(given, 5)
    assert issues == []
    assert checked is not None
    required = checked.learner.requirements(5)
    assert required.exchange is None
    assert required.average is not None
    # On the complete graph a party is in the sums of all ticks.
    assert required.average.participations.tolist() == [12] * 5
    assert required.average.sizes == {5}
    learned = simulate.learn(given, tables(), seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.protects) == (50.0, "party")
    assert "its own model is NOT covered" in learned.claim


def test_exact_sums_give_models_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the complete graph, to whoever sees the sums alone: each has one model that is not known yet."""
    seen: list[np.ndarray] = []
    average = PlainAverager.average

    async def watched(*given: Any, **named: Any) -> Averaged:
        averaged = await average(*given, **named)
        seen.append(averaged.values[0] * 5)
        return averaged

    monkeypatch.setattr(PlainAverager, "average", watched)
    summed = simulate.learn(SETTINGS | {"sum_bound": 50.0}, tables(), fidelity="plain")
    checked, _ = check_learn(SETTINGS | {"sum_bound": 50.0}, 5)
    wakes = checked.learner.wakes.tolist()  # type: ignore[union-attr]
    # All start at zero. A sum has the model of the party that updated last, and models solved for before.
    solved, changed = np.zeros((5, 3)), None
    for party, mean in zip(wakes, seen, strict=True):
        if changed not in (None, party):
            solved[changed] = 0
            solved[changed] = 4 * mean - (solved.sum(axis=0) - solved[party])
        changed = party
    others = [party for party in range(5) if party != wakes[-1]]
    assert np.abs(summed.values).max() > 0.01
    assert np.allclose(solved[others], summed.values[others], atol=1e-9)


@pytest.mark.parametrize(
    ("given", "where", "check"),
    [
        ({"topology": "ring"}, "topology", ConfigCheck.UNSUPPORTED),
        ({"epsilon": 1.0, "delta": 1e-6, "clip": 1.0}, "clip", ConfigCheck.CONFLICT),
        ({"epsilon": 1.0, "delta": 1e-6, "split": "late"}, "split", ConfigCheck.CONFLICT),
    ],
)
def test_what_does_not_go_with_sums_is_refused(given: dict[str, Any], where: str, check: ConfigCheck) -> None:
    _, issues = check_learn(SETTINGS | {"sum_bound": 1.0} | given, 5)
    assert [(issue.where, issue.check) for issue in issues] == [(where, check)]


def test_a_table_of_another_size_is_refused() -> None:
    data = tables()
    data[3] = data[3][:-1]
    with pytest.raises(ConfigError, match="party 3 has 19 records, not 20"):
        simulate.learn(SETTINGS | {"sum_bound": 1.0}, data)


def broadcast(neighbours: int, steps: int, r: float) -> float:
    """Return the deviation of a mean of broadcast models at mu = 1, from the covariance of their noise.

    Each release has noise of its own, which stays in the model: m_t = r m_(t-1) + x_t + noise. A record moves
    each x_t by 1, and the release is as informative as x_t + noise: T of them.
    """
    one = math.sqrt(steps)
    return one * math.sqrt(sum(r ** (2 * lag) for lag in range(10_000)) / neighbours)


def summed(neighbours: int, steps: int, r: float) -> float:
    """Return the deviation of a mean from a sum at mu = 1: a record moves a model by the sum of r^j.

    A model is in `neighbours` sums at each of T steps, and a mean is a sum over the number of neighbours.
    """
    moved = sum(r**lag for lag in range(10_000))
    return math.sqrt(neighbours * steps) * moved / neighbours


@pytest.mark.parametrize(("r", "shown", "hidden"), [(0.0, 1.41, 1.41), (0.9, 3.24, 14.1)])
def test_sums_hide_models_and_do_not_lower_noise(r: float, shown: float, hidden: float) -> None:
    """k = 10, T = 20; the formulas of docs/proofs/personalized.md against sums over lags."""
    k, steps = 10, 20
    by_broadcast, by_sums = math.sqrt(steps / (k * (1 - r**2))), math.sqrt(steps / k) / (1 - r)
    assert broadcast(k, steps, r) == pytest.approx(by_broadcast, rel=1e-9)
    assert summed(k, steps, r) == pytest.approx(by_sums, rel=1e-9)
    assert by_broadcast == pytest.approx(shown, rel=3e-3)
    assert by_sums == pytest.approx(hidden, rel=4e-3)
