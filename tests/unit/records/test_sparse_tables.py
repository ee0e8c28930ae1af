"""Tables of many small cells: coverage of counts, also given that they are shown, and the chi-square test.

Seeds are fixed. Tables and noise are drawn anew for each release, without a plan.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.records.comparisons import FEW, association
from smpc_dp.records.features import Block, product, selector
from smpc_dp.records.intervals import NORMAL
from smpc_dp.records.noisy import laplace_distribution
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema, read_schema
from tests.unit.records.resampled import Release

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
MANY = 10_000
LAWS = {"normal": NORMAL, "laplace": laplace_distribution(1.0)}


@functools.cache
def schema_of(rows: int, columns: int) -> Schema:
    sizes = {"a": rows, "b": columns}
    declared = {name: {"values": [str(index) for index in range(size)]} for name, size in sizes.items()}
    return read_schema({"columns": declared, "max_rows": 10_000})


def released(
    text: str, counts: NDArray[Any], noise: float, law: str, rng: np.random.Generator
) -> list[Estimate]:
    """Return the answers to one question from a table of exact counts."""
    schema = schema_of(*counts.shape)
    block: Block = product(schema, by=[selector(schema, name) for name in ("a", "b")])
    release = Release(text, schema, noise, LAWS[law])
    return release.answers({block: counts.ravel().astype(np.float64)}, rng)


def shares(kind: str, size: int) -> Floats:
    """Return the shares of rows of categories: equal, or falling with their number or its square."""
    weights = np.arange(1.0, size + 1) ** {"even": 0, "falling": -1, "steep": -2}[kind]
    return np.asarray(weights / weights.sum())


# Rows and columns of the table, its rows of data, their shares, the noise of a count, and whether Laplace.
SPARSE: dict[str, tuple[tuple[int, int], int, str, float, str]] = {
    "two by two": ((2, 2), 40, "even", 1.0, "normal"),
    "counts of three": ((8, 8), 200, "even", 1.0, "laplace"),
    "counts of three, noise of a third": ((8, 8), 200, "even", 0.3, "normal"),
    "few rows": ((3, 4), 60, "even", 1.0, "laplace"),
    "counts from one on": ((5, 5), 150, "falling", 1.0, "normal"),
    "counts from one on, noise of three": ((5, 5), 150, "falling", 3.0, "normal"),
    "counts from one on, Laplace noise of three": ((5, 5), 150, "falling", 3.0, "laplace"),
    "counts far below one": ((8, 8), 600, "steep", 1.0, "normal"),
    "rows that are left out": ((8, 8), 600, "steep", 3.0, "normal"),
    "rows that are left out, Laplace noise": ((8, 8), 600, "steep", 3.0, "laplace"),
    "tables that are seldom shown": ((5, 5), 150, "steep", 3.0, "normal"),
    "tables that are seldom shown, Laplace noise": ((5, 5), 150, "steep", 3.0, "laplace"),
    "two by ten": ((2, 10), 300, "even", 3.0, "normal"),
    "two by ten, Laplace noise": ((2, 10), 100, "falling", 3.0, "laplace"),
}


def rejected(name: str, releases: int) -> tuple[int, int, int]:
    """Return how many tests of level .05 reject, how many tables are tested, and how many noted as sparse."""
    shape, rows, kind, noise, law = SPARSE[name]
    rng = np.random.default_rng(43)
    chances = np.outer(*(shares(kind, size) for size in shape)).ravel()
    often = tested = noted = 0
    for _ in range(releases):
        counts = rng.multinomial(rows, chances).reshape(shape)
        (one,) = released("chi_square(a, b)", counts, noise, law, rng)
        tested += one.p_value is not None
        often += one.p_value is not None and one.p_value < 0.05
        noted += FEW in one.note
    return often, tested, noted


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", SPARSE)
def test_chi_square_rejects_seldom(name: str) -> None:
    """Of 300 tests of level .05 thirty or more reject with a chance of 2.5e-4; the seed is fixed."""
    often, _, _ = rejected(name, 300)
    assert often < 30


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", SPARSE)
def test_chi_square_has_at_most_its_level_of_the_tables_that_are_shown(name: str) -> None:
    """Three standard errors of a share of those tables: a false alarm of .13 % where the level is exact."""
    often, tested, noted = rejected(name, MANY)
    assert tested > 1000
    assert noted > tested / 6 or name == "two by two"
    assert often / tested <= 0.05 + 3 * math.sqrt(0.0475 / tested), (often, tested)


def test_the_noise_of_row_and_column_sums_raises_the_mean_of_chi_square() -> None:
    """By 2 % of tables with counts of three and as much noise as rows: a false alarm of .3 %."""
    rng, counts, noise, drawn = np.random.default_rng(47), 200 / 64, 1.0, []
    for _ in range(3000):
        table = rng.multinomial(200, np.full(64, 1 / 64)).reshape(8, 8) + noise * rng.standard_normal((8, 8))
        drawn.append(association(table, noise, NORMAL).value)
    expected = association(np.full((8, 8), counts), noise, NORMAL)
    error = float(np.std(drawn)) / math.sqrt(len(drawn))
    # a sample of n rows has n/(n - 1) times the degrees of freedom
    assert np.mean(drawn) / expected.freedom * 199 / 200 == pytest.approx(
        expected.inflation, abs=3 * error / expected.freedom
    )
    assert expected.inflation > 1.01


def test_a_row_that_one_large_noise_may_show_is_left_out() -> None:
    """The last row is above three deviations of its total, but by no more than one of its cells."""
    counts = np.array([[100, 90, 110], [120, 100, 90], [2, 3, 21]])
    schema = schema_of(3, 3)
    block = product(schema, by=[selector(schema, name) for name in ("a", "b")])
    for law, left in (("normal", ""), ("laplace", "; rows or columns within the noise that are left out: 1")):
        release = Release("chi_square(a, b)", schema, 4.0, LAWS[law])
        (one,) = release.exact({block: counts.ravel().astype(np.float64)})
        assert one.note == f"degrees of freedom: {2 if left else 4}{left}"


# True counts of which those around the threshold of three deviations are shown now and then.
SMALL = np.array([[0, 1, 2, 3], [4, 6, 9, 15]])


def covered(noise: float, law: str, releases: int) -> tuple[Counts, Counts, Counts]:
    """Return how often each cell's interval has the count, how often if shown, and how often it is shown."""
    rng = np.random.default_rng(53)
    inside, inside_shown, shown = np.zeros((3, SMALL.size), dtype=np.int64)
    for _ in range(releases):
        for index, one in enumerate(released("a x b", SMALL, noise, law, rng)):
            assert one.low is not None
            assert one.high is not None
            has = one.low <= SMALL.ravel()[index] <= one.high
            inside[index] += has
            shown[index] += one.value is not None
            inside_shown[index] += has and one.value is not None
    return inside, inside_shown, shown


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_counts_have_their_level_in_all_cells_and_given_that_they_are_shown(noise: float, law: str) -> None:
    """Of each cell, and of all: three standard errors below, a false alarm of .13 % for each number.

    Cells that are shown in a hundred releases or fewer count among all alone.
    """
    inside, inside_shown, shown = covered(noise, law, MANY)
    assert (inside / MANY >= 0.95 - 3 * math.sqrt(0.0475 / MANY)).all(), inside
    often = shown > 100
    least = 0.95 - 3 * np.sqrt(0.0475 / shown[often])
    assert (inside_shown[often] / shown[often] >= least).all(), (inside_shown, shown)
    assert inside_shown.sum() / shown.sum() >= 0.95 - 3 * math.sqrt(0.0475 / shown.sum())
    assert shown.min() < MANY / 100
    assert shown.max() > MANY / 2


def test_small_counts_seldom_miss_the_truth() -> None:
    """Of 8 x 60 intervals, not all shown, forty-five or more miss with a chance of 6e-5."""
    inside, _, _ = covered(1.0, "normal", 60)
    assert inside.sum() >= SMALL.size * 60 - 44
