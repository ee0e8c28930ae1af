"""Averages of groups: planned noise, the ideal functionality against the machines, accounting."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.learn.averager import PlainAverager
from smpc_dp.capabilities.learn.exchanges import plan_messages
from smpc_dp.capabilities.learn.methods import (
    AveragerTable,
    Method,
    PlannedAverages,
    plan_private,
    plan_public,
)
from smpc_dp.capabilities.learn.requirements import PrivateAverages, PrivateMessages, PublicAverages
from smpc_dp.capabilities.learn.simulation.averagers import (
    IdealAverager,
    IdealExchange,
    grid_rows,
)
from smpc_dp.capabilities.learn.written import METHODS
from smpc_dp.engine.phases.parameters import MAX_CHECKED
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.sampling import NoiseSource
from tests.learners import ProtocolAverager

GROUP = np.array([0, 1, 0, 1, -1, 0, 1, 1, 0])


def test_each_method_has_a_protocol() -> None:
    assert {*METHODS} == {*get_args(Method)}
    assert all(AveragerTable(method=method).averaging is not None for method in get_args(Method))


def private(table: AveragerTable, sizes: set[int], count: int = 3, length: int = 2) -> PlannedAverages:
    required = PrivateAverages(length, 1.0, frozenset(sizes), np.full(9, count), 2.0, 1e-5)
    return plan_private(table, required, 9)


def vectors(seed: int, length: int = 2) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(9, length))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


@pytest.mark.parametrize("method", ["secagg", "local", "mpyc"])
def test_exact_averages_are_the_same_bits_as_the_machines(method: str) -> None:
    table = AveragerTable(method=method)  # type: ignore[arg-type]
    averaging = plan_public(table, PublicAverages(3, 10.0, frozenset({4})))
    vector = 3 * vectors(1, 3)
    ideal = asyncio.run(IdealAverager(9, averaging).average(vector, group=GROUP))
    machine = asyncio.run(ProtocolAverager(9, averaging, 1).average(vector, group=GROUP))
    plain = asyncio.run(PlainAverager(9).average(vector, group=GROUP))
    np.testing.assert_array_equal(ideal.values, machine.values)
    np.testing.assert_array_equal(ideal.weights, machine.weights)
    np.testing.assert_allclose(ideal.values, plain.values, atol=1e-10)
    np.testing.assert_array_equal(ideal.values[4], vector[4])
    assert ideal.guarantee is None


@pytest.mark.parametrize("method", ["secagg", "mpyc"])
def test_exact_averages_of_bounds_are_within_the_bounds(method: str) -> None:
    """A tenth is no point of the grid: the nearest one is above it."""
    table = AveragerTable(method=method)  # type: ignore[arg-type]
    averaging = plan_public(table, PublicAverages(2, 0.1, frozenset({4})))
    grid = averaging.encoding(4)
    assert grid.highest * grid.step > 0.1
    vector = np.full((9, 2), [0.1, -0.1])
    for averager in (IdealAverager(9, averaging), ProtocolAverager(9, averaging, 1)):
        for _ in range(2):
            vector = asyncio.run(averager.average(vector, group=GROUP)).values
            assert np.abs(vector).max() == 0.1


@pytest.mark.parametrize(
    "table",
    [
        AveragerTable(),
        AveragerTable(mechanism="skellam"),
        AveragerTable(method="gopa"),
        AveragerTable(method="gopa", colluders=0),
        AveragerTable(method="local"),
    ],
    ids=["secagg", "skellam", "gopa", "gopa-0", "local"],
)
def test_noisy_averages_have_the_law_of_the_machines(table: AveragerTable) -> None:
    """Both samples' variance within 5 standard errors of the planned one: false alarms below 1e-5 in all."""
    averaging = private(table, {4}, count=4, length=60)
    parameters = averaging.plan(4)
    vector = vectors(2, 60)
    exact = asyncio.run(PlainAverager(9).average(vector, group=GROUP)).values
    planned = parameters.noise(4, 0)
    assert planned is not None
    for averager in (IdealAverager(9, averaging), ProtocolAverager(9, averaging, 7)):
        runs = [asyncio.run(averager.average(vector, group=GROUP)) for _ in range(4)]
        noise = np.concatenate([(run.values - exact)[[0, 1]].ravel() for run in runs])
        ratio = noise.var() / (planned.total / 4) ** 2
        assert abs(ratio - 1) < 5 * math.sqrt(2 / len(noise))
        assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(len(noise))


@pytest.mark.parametrize("table", [AveragerTable(), AveragerTable(method="gopa", verifiable=True)])
def test_seeded_noise_is_drawn_again(table: AveragerTable) -> None:
    averaging = private(table, {4})

    def run(key: bytes) -> np.ndarray:
        averager = IdealAverager(9, averaging, NoiseSource.keyed(key, b"test"))
        return asyncio.run(averager.average(vectors(3), group=GROUP)).values

    np.testing.assert_array_equal(run(bytes(32)), run(bytes(32)))
    assert (run(bytes(32)) != run(bytes(31) + b"1")).any()


@pytest.mark.parametrize("method", ["secagg", "gopa"])
def test_noise_is_for_all_participations_together(method: str) -> None:
    table = AveragerTable(method=method)  # type: ignore[arg-type]
    variances = []
    for count in (1, 10, 100):
        averaging = private(table, {3}, count)
        event = averaging.plan(3).event()
        assert 1.98 < Composition([event] * count).epsilon(1e-5) <= 2.0
        noise = averaging.plan(3).noise(3, 0)
        assert noise is not None
        variances.append(noise.total**2)
    # Composition of Gaussian noise: the variance grows with the number of participations.
    assert variances[1] / variances[0] == pytest.approx(10, rel=0.05)
    assert variances[2] / variances[0] == pytest.approx(100, rel=0.05)


def test_only_the_honest_shares_are_counted_on() -> None:
    """s - max(c, 1) members bring what one curator would: the total is that, times s / (s - max(c, 1))."""
    alone = private(AveragerTable(colluders=4), {6}, 1).plan(6).noise(6, 0)
    together = private(AveragerTable(colluders=0), {6}, 1).plan(6).noise(6, 0)
    assert alone is not None
    assert together is not None
    assert (alone.honest, together.honest) == (2, 5)
    assert (alone.total / together.total) ** 2 == pytest.approx(5 / 2, rel=0.02)


def test_large_groups_count_on_all_honest_members_too() -> None:
    required = PrivateAverages(2, 1.0, frozenset({120}), np.full(120, 3), 2.0, 1e-5)
    plan = plan_private(AveragerTable(missing=2), required, 120).plan(120)
    noise = plan.noise(120, 0)
    assert noise is not None
    assert noise.honest == 117
    assert plan.plan.complete


def test_rows_are_rounded_as_one_by_one() -> None:
    encoding = private(AveragerTable(), {3}, length=5).plan(3).encoding
    vector = vectors(5, 5) * np.linspace(0.1, 1, 9)[:, None]
    one = [encoding.encode(row, party="p")[0].view(np.int64) + encoding.lowest for row in vector]
    np.testing.assert_array_equal(grid_rows(encoding, vector), one)
    with pytest.raises(PrivacyError, match="party 8"):
        grid_rows(encoding, vector * 1.01)


@pytest.mark.parametrize(
    ("table", "size", "named"),
    [
        (AveragerTable(colluders=2), 2, "colluders"),
        (AveragerTable(colluders=1), 2, "method"),
        (AveragerTable(method="gopa", mechanism="skellam"), 4, "mechanism"),
        (AveragerTable(verifiable=True), 4, "method"),
        (AveragerTable(method="gopa", verifiable=True, total="unchecked"), 4, "total"),
        (AveragerTable(method="gopa", verifiable=True, total="checked"), 4, "total"),
        (AveragerTable(method="local", total="checked"), 4, "total"),
        (AveragerTable(method="pair", total="checked"), 2, "total"),
        (AveragerTable(method="mpyc", total="checked"), 4, "total"),
    ],
)
def test_groups_that_cannot_be_are_refused(table: AveragerTable, size: int, named: str) -> None:
    assert named in {fault.where.rpartition(".")[2] for fault in table.issues(size)}


@pytest.mark.parametrize(("total", "is_checked"), [(None, True), ("unchecked", False), ("checked", True)])
def test_totals_of_groups_are_checked_unless_that_is_not_wanted(
    total: Literal["checked", "unchecked"] | None, is_checked: bool
) -> None:
    """Of private averages and of exact ones; each claim says so."""
    table = AveragerTable(total=total)
    assert table.issues(4) == table.exact_issues(4) == table.public_issues(4) == []
    for planned in (private(table, {4}), plan_public(table, PublicAverages(2, 1.0, frozenset({4})))):
        assert planned.plan(4).is_checked is is_checked
        assert ("every party checks the total" in planned.claim) is is_checked


def test_totals_of_gopa_are_checked_where_lost_noise_is_taken_out() -> None:
    table = AveragerTable(method="gopa", on_dropout="roll-back", total="checked")
    assert table.issues(4) == []
    planned = private(table, {4})
    assert planned.plan(4).is_checked
    assert "every party checks the total" in planned.claim
    with pytest.raises(ConfigError, match=r"averager \(total\): 'checked' is not for on_dropout = 'keep'"):
        private(AveragerTable(method="gopa", total="checked"), {4})


def test_a_vector_of_a_group_that_is_too_long_to_check_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"averager \(total\): 'checked' is for at most 1,048,576 elements"):
        AveragerTable(total="checked").plan_exact(4, MAX_CHECKED + 1, 1.0)


def test_a_group_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="planned are groups of 3"):
        asyncio.run(IdealAverager(9, private(AveragerTable(), {3})).average(vectors(1), group=GROUP))


def test_weights_are_refused() -> None:
    averager = IdealAverager(9, private(AveragerTable(), {4}))
    with pytest.raises(ConfigError, match="weight"):
        asyncio.run(averager.average(vectors(1), np.arange(1.0, 10), GROUP))


@pytest.mark.parametrize("made", [IdealAverager, ProtocolAverager])
def test_nobody_is_in_more_groups_than_noise_is_planned_for(
    made: Callable[[int, PlannedAverages], IdealAverager | ProtocolAverager],
) -> None:
    averager = made(9, private(AveragerTable(), {3}, count=2))
    zeros = np.zeros((9, 2))
    first, second = (np.isin(np.arange(9), group) - 1 for group in ([0, 1, 2], [2, 3, 4]))
    for _ in range(2):
        asyncio.run(averager.average(zeros, group=first))
    with pytest.raises(PrivacyError, match="party 2: noise is planned for 2"):
        asyncio.run(averager.average(zeros, group=second))
    # Who was refused with party 2 is not counted.
    for _ in range(2):
        asyncio.run(averager.average(zeros, group=np.isin(np.arange(9), [3, 4, 5]) - 1))


def test_nobody_sends_more_than_noise_is_planned_for() -> None:
    exchange = IdealExchange(2, plan_messages(PrivateMessages(1, 1.0, np.array([1, 1]), 1.0, 1e-5), 2))
    swap = np.array([1, 0])
    asyncio.run(exchange.exchange(np.zeros((2, 1)), swap))
    with pytest.raises(PrivacyError, match="party 0: noise is planned for 1"):
        asyncio.run(exchange.exchange(np.zeros((2, 1)), swap))


def test_a_verifiable_group_proves_norms() -> None:
    """With ranges instead, noise would grow with the root of the length."""
    table = AveragerTable(method="gopa", verifiable=True)
    deviations = []
    for length in (2, 20):
        parameters = table.plan(6, length, 1.0, 4.0, 1e-6)
        assert isinstance(parameters, VerifiableParameters)
        assert parameters.bound_squared is not None
        deviations.append(parameters.noise(6, 0).total)
    assert deviations[1] < 1.5 * deviations[0]
