"""The secure sum with shares of noise: how much noise there is, and what is claimed for it."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.methods import AveragerTable
from smpc_dp.engine.phases.parameters import SumParameters, Total
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.secagg.noisy import NoisySumParameters, mechanism_of

GIVEN = {"length": 2, "lower": 0.0, "upper": 1.0, "precision": 2.0**-16, "epsilon": 1.0, "delta": 1e-6}


def planned(parties: int, **more: object) -> NoisySumParameters:
    parameters, faults = checker_of("secagg", 2)(GIVEN | more, parties)
    assert isinstance(parameters, NoisySumParameters), faults
    return parameters


@pytest.mark.parametrize("mechanism", ["discrete-gaussian", "skellam"])
@pytest.mark.parametrize("parties", [5, 40, 200])
def test_the_honest_shares_alone_are_enough(mechanism: str, parties: int) -> None:
    parameters = planned(parties, mechanism=mechanism)
    whole = mechanism_of(parameters)
    plan = parameters.plan
    # Of five parties none is planned to be corrupt, and the one that looks knows its own share.
    assert (plan.max_corrupt == 0) == (parties == 5)
    assert whole.honest == parameters.honest == plan.min_honest_in_sum - (parties == 5)
    assert whole.delta(1.0) <= 1e-6
    # and not wasteful: nine tenths of the noise would not do
    less = mechanism_of(with_variance(parameters, parameters.variance * 9 / 10))
    assert less.delta(1.0) > 1e-6


def test_the_complete_graph_counts_every_honest_share_that_stays() -> None:
    sparse, complete = planned(200), planned(200, complete_graph=True)
    assert not sparse.plan.complete
    assert complete.plan.complete
    assert complete.honest == 200 - 20 - 20 > sparse.honest
    assert mechanism_of(complete).delta(1.0) <= 1e-6
    assert complete.noise(200, 0).total < 0.9 * sparse.noise(200, 0).total
    parameters, faults = checker_of("secagg", 2)({**GIVEN, "complete_graph": True}, 201)
    assert parameters is None
    assert [(fault.where, "at most 200 parties" in fault.reason) for fault in faults] == [
        ("complete_graph", True)
    ]


def with_variance(parameters: NoisySumParameters, variance: Fraction) -> NoisySumParameters:

    return msgspec.structs.replace(parameters, variance=variance)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("mechanism", "total"),
    [
        # The default, and what differs from it in both.
        ("discrete-gaussian", "checked"),
        ("discrete-gaussian", "unchecked"),
        ("skellam", "unchecked"),
        ("skellam", "checked"),
    ],
)
def test_noise_of_the_sum_is_as_stated(mechanism: str, total: Total) -> None:
    """10 runs of 60 coordinates: 600 degrees of freedom; five deviations of the mean square: 2e-6.

    The noise of a party that is lost before it masks is not in the sum, although where totals are checked it
    has committed to it.
    """
    values = np.full((6, 60), 0.25)
    squares = []
    for seed in range(10):
        result = simulate.average(
            values,
            lower=0.0,
            upper=1.0,
            precision=2.0**-16,
            epsilon=1.0,
            delta=1e-6,
            mechanism=mechanism,
            total=total,
            planned_dropout=0.2,
            dropout=0.2,
            seed_for_simulation=seed,
        )
        assert result.evidence.checked is (True if total == "checked" else None)
        squares.append(((result.value - 0.25) / result.standard_error) ** 2)
        assert (result.privacy.epsilon, result.privacy.delta) == (1.0, 1e-6)
    assert abs(np.mean(squares) - 1) < 5 * math.sqrt(2 / 600)


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"mechanism": "laplace"}, "mechanism", "must be 'discrete-gaussian' or 'skellam'"),
        ({"epsilon": None}, "epsilon", "is missing"),
        ({"delta": 0.0}, "delta", "at least 1e-11, below 1"),
        ({"max_weight": -2}, "max_weight", "at least 0"),
        ({"verifiable": True}, "verifiable", "a parameter of protocol 'gopa'"),
        ({"precision": 1e-17}, "precision", "1e15 steps"),
    ],
)
def test_bad_parameters_are_named(change: dict[str, object], where: str, reason: str) -> None:
    parameters, faults = checker_of("secagg", 2)(GIVEN | change, 10)
    assert parameters is None
    assert any(fault.where == where and reason in fault.reason for fault in faults), faults


def test_the_default_precision_is_a_fine_part_of_the_range() -> None:
    given = {key: value for key, value in GIVEN.items() if key != "precision"}
    for upper, width in ((1.0, 1), ([1.0, 16.0], 16)):
        parameters, faults = checker_of("secagg", 2)({**given, "upper": upper}, 10)
        assert isinstance(parameters, NoisySumParameters), faults
        assert parameters.encoding.step == 2.0**-20 * width


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        ("secagg", {}),
        ("gopa", {}),
        ("gopa", {"topology": "direct"}),
        ("gopa", {"verifiable": True, "precision": 0.25}),
    ],
)
def test_results_say_that_the_whole_party_is_protected(protocol: str, more: dict[str, object]) -> None:
    version = session_protocol(protocol).version
    parameters, faults = checker_of(protocol, version)(GIVEN | {"dropout": 0.0} | more, 5)
    assert isinstance(parameters, SumParameters), faults
    claim = parameters.privacy(5).claim
    assert claim.count("the whole party is protected as one, and not each record or person") == 1


@pytest.mark.parametrize("method", ["local", "mpyc"])
def test_averages_of_learners_say_it_too(method: str) -> None:
    parameters = AveragerTable(method=method).plan(5, 2, 1.0, 1.0, 1e-6)  # type: ignore[arg-type]
    claim = parameters.privacy_of_all.claim
    assert "the whole party is protected as one, and not each record or person" in claim
