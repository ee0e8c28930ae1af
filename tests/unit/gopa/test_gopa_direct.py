"""`simulate.average` without an aggregator: as noisy as stated, lost parties named, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.gopa.direct_evidence import coordinator_of
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigError
from smpc_dp.session.memory.members import simulated_session
from smpc_dp.simulate.average import _draw_kills


def average(values: NDArray[np.float64], seed: int, **more: object) -> Result:
    given: dict[str, object] = {"lower": 0.0, "upper": 1.0, "method": "gopa", "epsilon": 1.0, "delta": 1e-6}
    given |= {"topology": "direct", "corrupt": 0.0, "planned_dropout": 0.25, "seed_for_simulation": seed}
    return simulate.average(values, **given | more)  # type: ignore[arg-type]


def test_noise_of_the_average_is_as_stated() -> None:
    """30 runs of 20 coordinates: the mean square has 600 degrees of freedom; 5 deviations: 6e-7."""
    values = np.full((6, 20), 0.5)
    squares = [((r.value - 0.5) / r.standard_error) ** 2 for r in (average(values, s) for s in range(30))]
    assert abs(np.mean(squares) - 1) < 5 * math.sqrt(2 / 600)


@pytest.mark.long
def test_noise_that_lost_users_leave_is_counted() -> None:
    """The same with two of eight lost, each at a step that the seed picks; all residual noise is stated."""
    values, squares, residual = np.full((8, 10), 0.5), [], 0
    for seed in range(60):
        result = average(values, seed, dropout=0.25)
        assert result.noise is not None
        assert len(result.absent) <= 2
        residual += result.noise.residual_pairs > 0
        squares.append(((result.value - 0.5) / result.standard_error) ** 2)
    assert residual > 5
    # Residual terms are one draw for each pair, so each coordinate of a run is a sample of its own.
    assert abs(np.mean(squares) - 1) < 5 * math.sqrt(2 / 600)


def test_everybody_coordinates_in_turn() -> None:
    assert [coordinator_of(request, 3) for request in range(1, 8)] == [1, 2, 3, 1, 2, 3, 1]


def test_a_coordinator_is_never_killed() -> None:
    """One of the other three parties is."""
    parameters = {"length": 1, "lower": 0, "upper": 1, "precision": 1e-3, "epsilon": 8.0, "delta": 1e-3}
    direct = {"topology": "direct", "dropout": 0.25, "corrupt": 0.0}
    simulated = simulated_session("gopa", parameters | direct, 4)
    coordinator = simulated.parties[coordinator_of(1, 4) - 1]
    killed: set[str] = set()
    for seed in range(20):
        leader, kills = _draw_kills(simulated, 0.25, seed)
        assert leader == coordinator
        assert len(kills) == 1
        killed |= kills.keys()
    assert killed == {*simulated.parties} - {coordinator}


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"topology": "star"}, "topology"),
        ({"on_dropout": "roll-back"}, "on_dropout"),
        ({"method": "secagg", "topology": "direct"}, "topology"),
    ],
)
def test_what_is_refused(more: dict[str, object], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        average(np.zeros((6, 1)), 1, **more)
    assert where in {fault.where for fault in caught.value.issues}
