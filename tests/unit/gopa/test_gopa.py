"""GOPA's noise: what cancels, what stays, how much of it, and what the plan promises for it."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.gopa.params import GopaParameters, check_parameters
from smpc_dp.capabilities.gopa.plan import SessionNoise, plan_session
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector, fixed_point_sum
from smpc_dp.engine.phases.draws import draw_neighbours
from smpc_dp.errors import ConfigError, TimeoutFault
from smpc_dp.privacy.gaussian import gaussian_delta
from smpc_dp.privacy.gopa import exact_privacy, honest_graph
from smpc_dp.privacy.secagg_plan import SecAggPlan, plan_secagg
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.examples import examples

GIVEN = {"length": 3, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}


def planned(parties: int, **more: object) -> GopaParameters:
    parameters, faults = check_parameters(GIVEN | more, parties)
    assert parameters is not None, faults
    return parameters


@pytest.fixture
def no_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(_parameters: GopaParameters, _ring_vector: RingVector, _randomness: Randomness) -> None:
        return

    monkeypatch.setattr(GopaParameters, "add_noise", silence)


@pytest.mark.usefixtures("no_own_noise")
@pytest.mark.parametrize(("on_dropout", "dropout"), [("keep", 0.0), ("roll-back", 0.0), ("roll-back", 0.2)])
def test_pairwise_noise_cancels_to_the_last_bit(on_dropout: str, dropout: float) -> None:
    values = np.random.default_rng(1).random((10, 3))
    result = simulate.average(
        values,
        lower=0.0,
        upper=1.0,
        precision=2.0**-20,
        method="gopa",
        epsilon=1.0,
        delta=1e-6,
        on_dropout=on_dropout,
        dropout=dropout,
        planned_dropout=0.2,
        seed_for_simulation=7,
    )
    assert (len(result.absent) > 0) == (dropout > 0)
    inside = [values[int(name.removeprefix("party-")) - 1] for name in result.survivors]
    encoding = planned(10, precision=2.0**-20).encoding
    np.testing.assert_array_equal(result.fixed_point, fixed_point_sum(encoding, inside))


def test_noise_of_the_average_is_as_stated() -> None:
    """30 runs of 20 coordinates: the mean square has 600 degrees of freedom; 5 deviations: 6e-7."""
    values = np.full((6, 20), 0.5)
    squares = []
    for seed in range(30):
        result = simulate.average(
            values,
            lower=0.0,
            upper=1.0,
            method="gopa",
            epsilon=1.0,
            delta=1e-6,
            corrupt=0.0,
            planned_dropout=0.2,
            seed_for_simulation=seed,
        )
        squares.append(((result.value - 0.5) / result.standard_error) ** 2)
    assert abs(np.mean(squares) - 1) < 5 * math.sqrt(2 / 600)


def session_of(plan: SecAggPlan, epsilon: float, delta: float) -> SessionNoise:
    _, noise = plan_session(plan, diameter=1e6, length=1, epsilon=epsilon, delta=delta, roll_back=False)
    return noise


def dense_theta(honest: int, own: float, pair: float) -> float:
    laplacian: NDArray[np.float64] = honest * np.eye(honest) - np.ones((honest, honest))
    return float(np.linalg.inv(own * np.eye(honest) + pair * laplacian).diagonal().max())


@settings(max_examples=examples(60))
@given(
    st.integers(5, 64),
    st.sampled_from([0.0, 0.1, 0.2]),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.floats(0.05, 8),
    st.sampled_from([1e-9, 1e-6, 1e-3]),
)
def test_plan_keeps_what_it_promises(
    parties: int, dropout: float, corrupt: float, epsilon: float, delta: float
) -> None:
    try:
        plan = plan_secagg(parties, dropout=dropout, corrupt=corrupt)
        planned = session_of(plan, epsilon, delta)
    except ConfigError:
        return
    lost = plan.max_dropouts + max(plan.max_corrupt, 1)
    assert planned.honest == parties - lost
    # What the grid costs is some forty squared steps of the own noise.
    theta = dense_theta(parties - lost, planned.own_variance - 100, planned.pair_variance)
    assert gaussian_delta(epsilon, 1e6 * math.sqrt(theta)) <= delta * (1 + 1e-3)
    assert 1e6 * math.sqrt(theta) <= planned.mu * (1 + 1e-6)
    assert gaussian_delta(epsilon, planned.mu) <= delta
    # Fewer parties lost than planned for: only better.
    assert dense_theta(parties - lost + 1, planned.own_variance, planned.pair_variance) < theta
    # Within five per cent of the curator's variance over the honest parties.
    assert planned.own_variance * planned.honest <= 1.05 * planned.curator_deviation**2


@pytest.mark.parametrize(
    ("dropout", "corrupt", "roll_back"), [(0.0, 0.1, False), (0.02, 0.1, False), (0.02, 0.05, True)]
)
def test_sparse_plan_keeps_what_it_promises_on_drawn_graphs(
    dropout: float, corrupt: float, roll_back: bool
) -> None:
    """What is proven for all graphs but a few must hold for one that is drawn, and leave room there."""
    parties, epsilon, delta = 200, 1.0, 1e-6
    base = plan_secagg(parties, dropout=dropout, corrupt=corrupt)
    plan, noise = plan_session(
        base, diameter=1e7, length=1, epsilon=epsilon, delta=delta, roll_back=roll_back
    )
    assert plan.degree < parties / 2
    assert plan.mask_degree == pytest.approx(2 * plan.degree - plan.degree**2 / (parties - 1))
    assert plan.quorum == base.quorum
    assert not roll_back or plan.sufficient
    source = SeededRandomnessForSimulation(1, "graph")
    drawn = [draw_neighbours(party, parties, plan.degree, source) for party in range(1, parties + 1)]
    honest = parties - plan.max_corrupt
    edges = {tuple(sorted((u, v - 1))) for u in range(honest) for v in drawn[u] if v <= honest}
    graph = honest_graph(honest, np.array(sorted(edges)))
    result = exact_privacy(
        graph,
        sigma_eta=noise.own_variance**0.5,
        sigma_delta=noise.pair_variance**0.5,
        diameter=1e7,
        max_dropouts=plan.max_dropouts,
        step=1.0,
    )
    assert result.mu() <= noise.mu
    assert result.delta(epsilon) < delta


@pytest.mark.parametrize(
    ("parties", "dropout", "keep", "roll_back"),
    [(100, 0.01, 99, 37), (1000, 0.01, 55, 46), (1000, 0.1, 133, 138)],
)
def test_degrees_are_those_of_the_page(parties: int, dropout: float, keep: int, roll_back: int) -> None:
    """[docs/proofs/gopa-plan.md, "Sessions"]"""
    result = {
        mode: planned(parties, dropout=dropout, on_dropout=mode).plan.degree for mode in ("keep", "roll-back")
    }
    assert result == {"keep": keep, "roll-back": roll_back}


def test_shares_that_open_both_are_part_of_delta() -> None:
    """Too many corrupt holders give a self-mask and pairwise terms: where that can happen, delta has it."""
    base = plan_secagg(500, dropout=0.02, corrupt=0.1)

    def session(delta: float, roll_back: bool) -> tuple[SecAggPlan, SessionNoise]:
        return plan_session(base, diameter=1e7, length=1, epsilon=1.0, delta=delta, roll_back=roll_back)

    plan, noise = session(1e-11, roll_back=True)
    assert plan.holders_log2 is not None
    both = 2.0**plan.holders_log2
    assert both > 1e-13
    assert noise.slack > both
    assert gaussian_delta(1.0, noise.mu) + both <= 1e-11
    assert session(1e-11, roll_back=False)[1].slack < both
    for delta in (1e-12, 1e-13):
        with pytest.raises(ConfigError, match="security: bad draws of neighbours have 7e-13 of delta"):
            session(delta, roll_back=True)


@pytest.mark.parametrize("roll_back", [False, True])
@pytest.mark.parametrize(("parties", "dropout"), [(66, 0.2), (100, 0.3), (150, 0.4)])
def test_where_nothing_is_proven_of_a_sparse_graph_it_is_complete(
    parties: int, dropout: float, roll_back: bool
) -> None:
    """The claim without a chance of a bad graph is that of the complete one, so that must be the graph."""
    base = plan_secagg(parties, dropout=dropout)
    assert not base.complete
    plan, noise = plan_session(base, diameter=1e6, length=1, epsilon=1.0, delta=1e-6, roll_back=roll_back)
    assert (plan.degree, plan.complete, noise.slack) == (parties - 1, True, 0.0)
    assert "whichever they are" in noise.assumption


def test_result_says_what_it_costs() -> None:
    result = simulate.average(
        np.full((10, 2), 0.25), lower=0.0, upper=1.0, method="gopa", epsilon=2.0, delta=1e-5
    )
    assert (result.privacy.epsilon, result.privacy.delta) == (2.0, 1e-5)
    shown = result.to_json()
    assert shown["standard_error"] == result.standard_error > 0
    assert shown["curator_standard_error"] == result.curator_standard_error > 0
    assert shown["residual_pairs"] == 0


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"epsilon": 0.0}, "epsilon", "above 0 and below 1000"),
        ({"epsilon": "much"}, "epsilon", "must be a number"),
        ({"epsilon": True}, "epsilon", "must be a number"),
        ({"delta": 1.0}, "delta", "above 0 and below 1"),
        ({"delta": None}, "delta", "is missing"),
        ({"on_dropout": "panic"}, "on_dropout", "'keep' or 'roll-back'"),
        ({"max_weight": 3, "kind": "integer", "precision": None}, "kind", "a weighted average is no integer"),
        ({"mechanism": "skellam"}, "mechanism", "cannot be combined with protocol 'gopa'"),
        ({"upper": 0.0}, "lower", "must be below upper"),
        ({"nonsense": 1}, "nonsense", "unknown parameter of gopa"),
        ({"precision": 0.5, "epsilon": 60.0}, "precision", "too coarse"),
        ({"precision": 1e-17}, "precision", "2^44 steps"),
    ],
)
def test_bad_parameters_are_named(change: dict[str, object], where: str, reason: str) -> None:
    parameters, faults = check_parameters(GIVEN | change, 10)
    assert parameters is None
    assert any(fault.where == where and reason in fault.reason for fault in faults), faults


def test_too_few_users_are_told_at_planning() -> None:
    plan = msgspec.structs.replace(plan_secagg(10), max_dropouts=8)
    with pytest.raises(ConfigError, match="1 bring noise that counts, 2 are due"):
        session_of(plan, 1.0, 1e-6)


def test_simulation_refuses_what_does_not_fit() -> None:
    values = np.zeros((5, 1))
    with pytest.raises(ConfigError, match="weights"):
        simulate.average(
            values, lower=0, upper=1, method="gopa", epsilon=1, delta=1e-6, weights=[1] * 5, verifiable=True
        )
    with pytest.raises(ConfigError, match="delta"):
        simulate.average(values, lower=0, upper=1, epsilon=1.0)
    with pytest.raises(ConfigError, match="epsilon"):
        simulate.average(values, lower=0, upper=1, method="gopa", delta=1e-6)


def test_more_losses_than_planned_stop_a_simulation() -> None:
    with pytest.raises((ConfigError, TimeoutFault)):
        simulate.average(
            np.zeros((10, 1)), lower=0, upper=1, method="gopa", epsilon=1, delta=1e-6, dropout=0.3
        )
