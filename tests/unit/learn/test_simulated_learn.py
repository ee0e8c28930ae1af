"""Simulations of learners by the sessions of all parties: steps, seeds, errors, and what they are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import Step
from smpc_dp.errors import ConfigError, PrivacyError

PARTIES = 6
RNG = np.random.default_rng(4)
TABLES = [np.column_stack([RNG.uniform(-1, 1, (4, 2)), np.arange(4) % 2]) for _ in range(PARTIES)]
EXACT: dict[str, Any] = {
    "learner": "block-gossip",
    "features": 2,
    "steps": 4,
    "group": 3,
    "metric_every": 2,
    "seed": 2,
}
REPORTS = {
    "learner": "gossip-reports",
    "statistic": "variance",
    "lower": 0.0,
    "upper": 1.0,
    "bins": 5,
    "epsilon": 1.0,
    "ticks": 12,
}
POINTS = [np.array([[0.25 * party]]) for party in range(4)]
OWN = {"learner": "sgd", "model": "own", "length": 2, "steps": 2, "rate": 0.5, "clip": 1.0}


@pytest.mark.parametrize("fidelity", ["plain", "ideal", "machines"])
async def test_a_simulation_runs_where_an_event_loop_does(fidelity: Any) -> None:
    """As in a notebook."""
    learned = simulate.learn(EXACT, TABLES, fidelity=fidelity)
    assert learned.done.tolist() == learned.steps.tolist()


def test_each_step_is_reported_once_whoever_is_in_it() -> None:
    seen: list[Step] = []
    sent = simulate.learn(EXACT, TABLES, fidelity="machines", on_step=seen.append)
    plain = simulate.learn(EXACT, TABLES, fidelity="plain")
    assert [(step.number, step.failures) for step in seen] == [(number, ()) for number in range(1, 5)]
    np.testing.assert_allclose(sent.metrics, plain.metrics, atol=1e-3)
    assert [(step.number, step.metric) for step in seen if step.metric is not None] == [*sent.metrics]
    np.testing.assert_allclose(sent.values, plain.values, atol=1e-3)
    assert sent.done.tolist() == plain.done.tolist() == sent.steps.tolist()


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("given", "tables"),
    [(REPORTS, POINTS), (EXACT | {"epsilon": 4.0, "delta": 1e-5}, TABLES)],
    ids=["learner", "averages"],
)
def test_the_seed_determines_the_noise_of_every_member(given: dict[str, Any], tables: list[Any]) -> None:
    """That of the learner itself, and of groups' averages."""
    first, again, other = (
        simulate.learn(given, tables, fidelity="machines", seed_for_simulation=seed).values
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_check_learn_made_is_run_as_it_is() -> None:
    """Also with settings changed since, and of tuples and keys without a value."""
    given = {
        "learner": "gossip-clear",
        "statistic": "variance",
        "lower": 0.0,
        "upper": 1.0,
        "ticks": 20,
        "topology": ((0, 1), (1, 2), (2, 3), (3, 0)),
        "positives": None,
    }
    tables = [np.array([[party / 4]]) for party in range(4)]
    checked, _ = check_learn(given, 4)
    assert checked is not None
    changed = replace(checked, learner=msgspec.structs.replace(checked.learner, seed=7))  # type: ignore[type-var]
    ideal = simulate.learn(changed, tables, fidelity="ideal").values
    sent = simulate.learn(changed, tables, fidelity="machines").values
    other = simulate.learn(checked, tables, fidelity="machines").values
    np.testing.assert_array_equal(sent, ideal)
    assert (other != sent).any()
    np.testing.assert_array_equal(other, simulate.learn(given, tables, fidelity="machines").values)


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (np.nan, PrivacyError, "party-00006"),
        (ValueError("a gradient of its own"), ValueError, "^a gradient of its own$"),
    ],
    ids=["value", "exception"],
)
def test_the_error_of_a_party_is_the_simulations(error: Any, raised: type[Exception], text: str) -> None:
    """Not what the others have of it: that a party is missing."""

    def gradient(model: Any, data: float) -> Any:
        if data < PARTIES - 1:
            return model + data
        if isinstance(error, Exception):
            raise error
        return model + error

    with pytest.raises(raised, match=text):
        simulate.learn(OWN, range(PARTIES), model=np.zeros(2), gradient=gradient, fidelity="machines")


def test_the_first_error_is_raised() -> None:
    """A descent that diverges at one party ends the walk of the others, whose fault it is not."""
    far = {"learner": "dual-averaging", "record_bound": 1e6, "features": 2, "ticks": 60, "seed": 3}
    far |= {"regulariser": "none", "rate": 1e6}
    data = [np.array([[1e5, 1e5 * party, party % 2]]) for party in range(4)]
    with pytest.raises(ConfigError, match="the run diverges"):
        simulate.learn(far, data, fidelity="machines")
