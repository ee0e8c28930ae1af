"""The plain averager and exchange against loops, and what they refuse."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scipy import sparse

from smpc_dp.capabilities.learn.averager import PlainAverager, PlainExchange
from smpc_dp.errors import ConfigError


def test_groups_are_averaged_alone() -> None:
    vector = np.arange(10.0).reshape(5, 2)
    weight = np.array([1.0, 3, 1, 1, 2])
    group = np.array([4, 4, -1, 0, 0])
    got = asyncio.run(PlainAverager(5).average(vector, weight, group))
    first, second = (vector[0] + 3 * vector[1]) / 4, (vector[3] + 2 * vector[4]) / 3
    np.testing.assert_allclose(got.values, [first, first, vector[2], second, second])
    np.testing.assert_array_equal(got.weights, [4, 4, 0, 3, 3])


def test_one_group_of_all_by_default() -> None:
    vector = np.arange(6.0).reshape(3, 2)
    got = asyncio.run(PlainAverager(3).average(vector))
    np.testing.assert_allclose(got.values, np.tile(vector.mean(axis=0), (3, 1)))


def test_partners_swap_and_neighbours_mix() -> None:
    vector = np.arange(6.0).reshape(3, 2)
    exchange = PlainExchange(3)
    np.testing.assert_array_equal(
        asyncio.run(exchange.exchange(vector, np.array([2, 1, 0]))), vector[[2, 1, 0]]
    )
    weights = sparse.csr_array(np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0.25, 0.75]]))
    np.testing.assert_allclose(asyncio.run(exchange.mix(vector, weights)), weights.toarray() @ vector)


@pytest.mark.parametrize(
    ("vector", "weight", "group", "named"),
    [
        (np.zeros((2, 2)), None, None, "shape"),
        (np.full((3, 2), np.nan), None, None, "party 0"),
        (np.zeros((3, 2)), np.array([1.0, -1, 1]), None, "weight"),
        (np.zeros((3, 2)), np.array([0.0, 0, 1]), np.array([0, 0, 1]), "group 0"),
        (np.zeros((3, 2)), None, np.array([0, -2, 1]), "group"),
        (np.zeros((3, 2)), None, np.array([0, 1]), "group"),
    ],
)
def test_bad_input_is_refused(
    vector: np.ndarray, weight: np.ndarray | None, group: np.ndarray | None, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        asyncio.run(PlainAverager(3).average(vector, weight, group))


@pytest.mark.parametrize("partner", [[1, 2, 0], [0, 1, 3], [0, 1], [0.0, 1, 2]])
def test_partners_must_pair(partner: list[int]) -> None:
    with pytest.raises(ConfigError, match="partner"):
        asyncio.run(PlainExchange(3).exchange(np.zeros((3, 1)), np.array(partner)))
