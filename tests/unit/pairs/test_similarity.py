"""Private similarities: the circuit of a cosine, its range, its noise, neighbours, refusals."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp import simulate
from smpc_dp.capabilities.pairs.active.role import evaluation_failure
from smpc_dp.capabilities.pairs.garbled.evaluation import Evaluation
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel, evaluate
from smpc_dp.capabilities.pairs.kernels.cosine import cosine, unit_codes
from smpc_dp.capabilities.pairs.requests.similarity import compare
from smpc_dp.capabilities.pairs.statistics.similarity import Similarities, plan_similarities
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition


@pytest.mark.parametrize(("length", "levels"), [(1, 1), (3, 7), (5, 20)])
def test_the_circuit_is_the_cosine_cut_to_its_range_whatever_the_bits(length: int, levels: int) -> None:
    """Codes that encode no vector too: a dishonest partner puts in what it likes."""
    kernel = cosine(length, levels)
    rng, most = np.random.default_rng(length), 1 << kernel.fields[0].bits
    codes = rng.integers(0, most, (2, 60, length))
    codes[:, 0], codes[:, 1] = 0, most - 1
    out = evaluate(compile_kernel(kernel, None), codes[0], codes[1])
    exact = ((codes[0] - levels) * (codes[1] - levels)).sum(axis=1) + levels**2
    expected = np.clip(exact, 0, 2 * levels**2)
    assert (exact != expected).any() or length == 1
    np.testing.assert_array_equal(out.astype(np.int64), expected)
    np.testing.assert_array_equal(kernel.integer(codes[0], codes[1]), expected)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 60))
def test_vectors_have_at_most_norm_1_on_the_grid(seed: int, length: int, levels: int) -> None:
    """So no cosine of honest parties is cut, and a party's vector moves a score by 2 at most."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(4, length)) * 10.0 ** rng.integers(-200, 200)
    vectors[0] = 0
    codes = unit_codes(vectors, levels) - levels
    assert ((codes**2).sum(axis=1) <= levels**2).all()
    assert not codes[0].any()
    products = codes @ codes.T
    assert np.abs(products).max() <= levels**2
    np.testing.assert_allclose(
        cosine(length, levels).decode(cosine(length, levels).integer(codes[1] + levels, codes[2] + levels)),
        products[1, 2] / levels**2,
        atol=1e-12,
    )


def test_the_comparisons_of_a_party_cost_its_epsilon_together() -> None:
    """5 parties: each of 4 comparisons has a quarter, by the exact distribution of the noise."""
    plan = plan_similarities(3, 5, 4.0)
    masses = [float(mass) for mass in plan.noise.masses()]  # type: ignore[attr-defined]
    cycle, steps = len(masses), plan.kernel.steps
    worst = max(
        abs(np.log(masses[(out - first) % cycle] / masses[(out - second) % cycle]))
        for out in range(cycle)
        for first, second in ((0, steps), (steps, 0), (0, 1))
    )
    assert 0.9 < worst <= 1.0 + 1e-9
    assert plan.guarantee.protects == "party"
    assert (plan.event().unit, plan.event().relation) == ("party", "substitution")
    assert Composition([plan.event()]).epsilon(0.0) == pytest.approx(4.0)
    # For 100 parties 99 charges: the noise of a score is far above what is compared.
    assert plan_similarities(3, 100, 40.0).deviation > 5


def test_scores_are_the_cosines_with_the_planned_noise() -> None:
    """780 scores of 40 parties; the chi-squared's six deviations for Laplace noise, seed fixed."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(40, 4))
    plan = plan_similarities(4, 40, 60.0, 20)
    scores = simulate.similarities(vectors, 60.0, levels=20, seed_for_simulation=1)
    np.testing.assert_array_equal(scores, scores.T)
    assert np.isnan(scores.diagonal()).all()
    codes = unit_codes(vectors, 20) - 20
    first, second = np.triu_indices(40, 1)
    noise = scores[first, second] - (codes @ codes.T)[first, second] / 400
    assert abs(noise.mean()) < 6 * plan.deviation / 780**0.5
    # The fourth moment of Laplace is 6 times the squared variance.
    assert abs(noise.var() / plan.deviation**2 - 1) < 6 * (5 / 780) ** 0.5


async def test_a_comparison_whose_check_fails_costs_no_other_its_score() -> None:
    """With security "malicious" the error is no fault of a party; that comparison alone is left out."""

    async def evaluate(*_: object, peer: str, **terms: object) -> Evaluation:
        assert terms["security"] == "malicious"
        if peer == "mallory":
            raise evaluation_failure()
        await asyncio.sleep(0)
        return cast("Evaluation", SimpleNamespace(value=(0,)))

    names = ("alice", "bob", "mallory")
    result = await compare(
        "alice",
        names,
        evaluate,
        lambda _: None,
        None,
        [1.0, 0.0],
        9.0,
        4,
        covert=0,
        malicious=True,
    )
    assert list(result.scores) == ["bob"]
    assert result.failed == {"mallory": str(evaluation_failure())}


def test_neighbours_are_the_greatest_scores() -> None:
    plan = plan_similarities(2, 4, 4.0)
    learned = Similarities({"a": 0.1, "b": 1.4, "c": -2.0}, {}, plan.guarantee, plan.deviation)
    assert learned.nearest(2) == ("b", "a")
    assert learned.nearest() == ("b", "a", "c")


@pytest.mark.parametrize(
    ("vectors", "epsilon", "levels", "where"),
    [
        (np.ones((3, 2)), 0.0, 7, "epsilon"),
        (np.ones((1, 2)), 1.0, 7, "parties"),
        (np.ones(3), 1.0, 7, "vectors"),
        (np.full((3, 2), np.nan), 1.0, 7, "vector"),
        (np.ones((3, 2)), 1.0, 0, "levels"),
        (np.ones((3, 49)), 1.0, 7, "levels: 7 for 49 entries.*at least 8"),
    ],
)
def test_bad_arguments_are_named(vectors: np.ndarray, epsilon: float, levels: int, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        simulate.similarities(vectors, epsilon, levels=levels)
