"""The second auditor finds the estimates of real tables, which the product finds, by its own code."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.engine.registry import checker_of
from smpc_dp.records import moments as first_moments
from smpc_dp.records import population
from smpc_dp.records.noisy import laplace_distribution
from smpc_dp.records.regression import chi_square
from smpc_dp.records.table import read_table
from smpc_dp.records.tree import CountTree
from smpc_dp_verify import population as second_population
from smpc_dp_verify import regression as second
from smpc_dp_verify.distributions import laplace_distribution as second_laplace
from smpc_dp_verify.matrices import eigen, has_small_radius, inverse
from smpc_dp_verify.moments import projected
from smpc_dp_verify.quantiles import Tree
from smpc_dp_verify.result import check_estimates
from smpc_dp_verify.session import Session
from smpc_dp_verify.sum_plan import read_shares
from smpc_dp_verify.sums import read_sums
from smpc_dp_verify.welch import NoisyMean, WelchTest

PARTIES, ROWS = 4, 400
COLUMNS: dict[str, Any] = {
    "age": {"lower": 0, "upper": 100, "step": 0.5, "bins": [40, 65]},
    "bmi": {"lower": 10.0, "upper": 60.0, "missing": False},
    "ill": {"lower": 0, "upper": 1, "step": 1, "missing": False},
    "visits": {"lower": 0, "upper": 20, "step": 1},
    "sex": {"values": ["f", "m"], "other": "f", "missing": False},
    "ward": {"values": ["a", "b", "c"]},
}
ASKED = {
    "pairs": ["covariance(age, bmi, ill) by sex", "correlation(age, bmi, ill)"],
    "groups": ["difference(age) by sex", "risk(ill) by sex", "missing(age) by ward", "missing(ward)"],
    "regression": ["regression(bmi ~ age * sex + ill)", "regression(age ~ bmi + ward) by sex"],
    "robust": [
        "variance(bmi, robust) by sex",
        "covariance(age, ill, robust)",
        "correlation(age, bmi, robust)",
    ],
    "quantiles": ["quantile(age, 0.1, 0.5) by sex", "median(bmi)", "mean(bmi)"],
    "laplace": ["risk(ill) by sex where age >= 40", "missing(age)"],
}


def compare(
    ask: list[str], seed: int, epsilon: float = 3.0, split: str = "range", **display: Any
) -> tuple[int, list[str]]:
    """Compare all estimates of drawn tables; return how many have a value, and what is not compared."""
    records = {"max_rows": ROWS, "rows_expected": PARTIES * ROWS, "columns": COLUMNS}
    given: dict[str, Any] = {"records": records, "ask": ask, "split": split}
    given |= {"epsilon": epsilon, "delta": 1e-6}
    checked: Any = checker_of("secagg", 3)(given, PARTIES)[0]
    names = [f"p{number}" for number in range(PARTIES)]
    shares = read_shares(read_sums(Session(bytes(32), "secagg", 3, given, {}, names, "relay", None)))
    assert shares is not None
    shares.check(f"statistics {checked.planned()}")
    rng, request = np.random.default_rng(seed), checked.request
    deviations = [
        np.full(one.block.cells, np.sqrt(PARTIES * float(request.variance_of(one.block))))
        for one in request.blocks
    ]
    total = np.rint(rng.normal(0, 1, request.length) * np.concatenate(deviations)).astype(np.int64)
    for _ in range(PARTIES):
        age = rng.normal(50, 15, ROWS)
        table = {
            "age": np.where(rng.random(ROWS) < 0.1, np.nan, age),
            "bmi": 25 + 0.1 * (age - 50) + rng.normal(0, 3, ROWS),
            "ill": (rng.random(ROWS) < age / 120).astype(float),
            "visits": rng.poisson(6.0, ROWS),
            "sex": rng.choice(["f", "m"], ROWS),
            "ward": rng.choice(["a", "b", "c", "elsewhere"], ROWS),
        }
        total += request.vector(read_table(table, checked.schema))
    level, hide = display.get("level", 0.95), display.get("hide", 3.0)
    answers = checked.answers(total, range(PARTIES), level=level, simultaneous=False, hide=hide)
    fields = json.loads(msgspec.json.encode(answers.estimates))
    elements = [int(value) - PARTIES * int(checked.encoding.lowest) for value in total]
    made = shares.estimates(elements, int(checked.variance), range(PARTIES), hide, 1 - level)
    assert [one.statistic for one in made] == [one.text for one in checked.request.statistics]
    unclear = [name for one in made for name in check_estimates(one, fields)]
    return sum(each.numbers["value"] is not None for one in made for each in one.each), unclear


@pytest.mark.thin(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ASKED)
def test_both_find_the_estimates_of_pairs_and_groups(name: str, seed: int) -> None:
    noise = (3.0, "balanced") if name == "laplace" else (20.0, "range")
    shown, unclear = compare(ASKED[name], seed, *noise)
    assert shown >= 6
    assert not unclear


def test_p_values_too_small_for_a_number_are_not_compared() -> None:
    """With Laplace noise some programs have 0 where others have the least p-value."""
    noise = second_laplace(1.25)
    means = [NoisyMean(1e5, at * 1e5, 0.01, 1e-6, (1.0, 1.0, 1.0), (noise, noise)) for at in (0.9, -0.9)]
    far = WelchTest(*means).p_value()
    assert far is not None
    assert np.isnan(far)
    # normal noise: all are within 10^-15 of each other
    assert second_population.scale_of_p(2e-39) == second_population.scale_of_p(0.0) == 1e-6
    assert second_population.scale_of_p(0.05) > 0.2


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 21])
def test_both_have_the_same_quantile_of_chi_square(freedom: int) -> None:
    for outside in (0.9, 0.05, 1e-9):
        assert second.chi_square(freedom, outside) == pytest.approx(chi_square(freedom, outside), rel=1e-12)


@pytest.mark.parametrize("freedom", [0.3, 1.0, 57.2, 101.0, 9999.0, 1.1e4, 3e6, 1e12, np.inf])
def test_both_have_the_same_tails_of_students_law(freedom: float) -> None:
    for deviations in (0.0, 0.01, 1.0, 2.0, -5.0, 30.0):
        right = pytest.approx(population.two_sided(deviations, freedom), rel=1e-11)
        assert second_population.two_sided(deviations, freedom) == right


def test_p_values_without_digits_to_compare_are_no_numbers() -> None:
    laplace = second_laplace(1.25)
    parts = [(1.0, laplace), (0.8, laplace)]
    assert second_population.p_value(1.0, []) is None
    far, found = (second_population.p_value(value, parts) for value in (20.0, 3.0))
    assert far is not None
    assert np.isnan(far)
    first = laplace_distribution(1.25)
    assert found == pytest.approx(population.p_value(3.0, [(1.0, first), (0.8, first)]), rel=1e-9)
    # beyond the period both have the least one
    assert second_population.p_value(200.0, parts) == population.p_value(200.0, [(1.0, first), (0.8, first)])


def test_a_matrix_is_taken_for_what_its_eigenvalues_are() -> None:
    rng = np.random.default_rng(7)
    for size in (1, 2, 5, 9):
        matrix = rng.normal(size=(size, size))
        values, vectors = eigen((matrix @ matrix.T).tolist())
        right = np.linalg.eigvalsh(matrix @ matrix.T)
        assert sorted(values) == pytest.approx(right.tolist(), rel=1e-9, abs=1e-12)
        back = np.array(vectors).T @ np.diag(values) @ np.array(vectors)
        assert back == pytest.approx(matrix @ matrix.T, rel=1e-9, abs=1e-12)
        assert inverse(matrix.tolist()) == pytest.approx(np.linalg.inv(matrix), rel=1e-8, abs=1e-10)
        growth = np.abs(matrix) / np.abs(np.linalg.eigvals(np.abs(matrix))).max()
        assert has_small_radius((0.999 * growth).tolist())
        assert not has_small_radius((1.001 * growth).tolist())


def test_correlations_whose_variances_have_no_digits_to_compare_are_no_numbers() -> None:
    """With Laplace noise and so rare ends nobody can say whether a variance is clear of the noise."""
    _, unclear = compare(["correlation(age, ill)"], 0, 20.0, "balanced", level=1 - 1e-6)
    assert "value in the estimates of correlation(age, ill)" in unclear


def test_both_project_the_same_matrices() -> None:
    rng, changed = np.random.default_rng(11), 0
    for size in (2, 3, 6):
        matrix = rng.normal(size=(size, size)) + np.eye(size)
        right, is_changed = first_moments.projected(matrix + matrix.T)
        changed += is_changed
        assert np.array(projected((matrix + matrix.T).tolist())) == pytest.approx(right, rel=1e-9, abs=1e-12)
    assert changed


def test_both_find_quantiles_with_laplace_noise_without_their_ends() -> None:
    shown, unclear = compare(["median(visits)"], 1, 20.0, "balanced")
    assert shown == 1
    names = ("low", "high", "population_low", "population_high")
    assert unclear == [f"{name} in the estimates of median(visits)" for name in names]


@pytest.mark.parametrize(("cells", "total"), [((37, 3), 2.0), ((300, 19, 2), None), ((5,), 0.5)])
def test_both_fit_the_same_counts_of_a_tree(cells: tuple[int, ...], total: float | None) -> None:
    rng, deviations = np.random.default_rng(3), [1.0 + 0.3 * number for number in range(len(cells))]
    first, own = CountTree(cells, deviations, total), Tree(cells, deviations, total)
    counts = [rng.normal(9, 3, size) for size in first.cells]
    assert own.fitted([each.tolist() for each in counts]) == pytest.approx(first.leaves(counts), rel=1e-10)
    assert own.spread == pytest.approx(np.sqrt(first.covariance.sum()), rel=1e-10)
    assert own.rank_deviations(0.3) == pytest.approx(first.rank_deviations(0.3), rel=1e-10)


def test_both_find_the_estimates_of_pairs_within_the_noise() -> None:
    """At so small an epsilon covariances are projected, and intervals are cut."""
    compare(["covariance(age, ill)"], 0, 0.05, hide=0.5)
    compare(["difference(age) by sex"], 1, 0.05, hide=0.5)
    shown = [compare(["regression(bmi ~ age + ill)"], 0, epsilon)[0] for epsilon in (0.02, 0.5)]
    assert shown == [0, 3]
