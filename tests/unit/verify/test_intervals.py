"""The second auditor finds laws of noise and intervals by its own code, as the product does."""

from __future__ import annotations

import math
import random

import pytest

from smpc_dp.records import intervals as product
from smpc_dp.records.noisy import laplace_distribution
from smpc_dp_verify import distributions, intervals

SHAPES = (1.0, 1.25, 2.0, 10.0, 40 / 3)
OUTSIDE = (0.5, 0.05, 1e-3)
CLOSE = 1e-10


@pytest.mark.parametrize("outside", [*OUTSIDE, 1e-7, 1e-9])
@pytest.mark.parametrize("shape", [None, *SHAPES])
def test_both_have_the_same_law_of_one_noise(shape: float | None, outside: float) -> None:
    first = product.NORMAL if shape is None else laplace_distribution(shape)
    second = distributions.NORMAL if shape is None else distributions.laplace_distribution(shape)
    assert second.quantile(outside) == pytest.approx(first.quantile(outside), rel=CLOSE)
    for value in (-first.quantile(outside), -0.3, 0.0, 2.0):
        assert second.log_below(value) == pytest.approx(first.log_below(value), rel=CLOSE)
    if shape == 1:
        # a Laplace number of variance 1 is beyond z with the probability exp(-z sqrt(2))
        assert second.quantile(outside) == pytest.approx(-math.log(outside) / math.sqrt(2), rel=2e-9)


@pytest.mark.parametrize("value", [-20.0, -25.0, -25.1, -40.0, -1000.0])
def test_both_have_the_same_tail_of_a_normal_law(value: float) -> None:
    assert distributions.NORMAL.log_below(value) == pytest.approx(product.NORMAL.log_below(value), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_both_have_the_same_law_of_a_sum(seed: int) -> None:
    draw = random.Random(seed)
    shape, count = draw.choice(SHAPES[1:]), 1 + seed % 4
    deviations = [10 ** draw.uniform(-2, 1) for _ in range(count)]
    kinds = [draw.random() < 0.7 for _ in range(count)]
    kinds[0] = True
    both = laplace_distribution(shape, (0.6, 0.8)), distributions.laplace_distribution(shape, (0.6, 0.8))
    first = [laplace_distribution(shape) if kind else product.NORMAL for kind in kinds[:3]]
    second = [
        distributions.laplace_distribution(shape) if kind else distributions.NORMAL for kind in kinds[:3]
    ]
    if count > 3:
        first, second = [*first, both[0]], [*second, both[1]]
    law = distributions.distribution_of(zip(deviations, second, strict=True))
    for outside in OUTSIDE:
        right = product.sum_quantile([*zip(deviations, first, strict=True)], outside)
        assert law.quantile(outside) == pytest.approx(right, rel=CLOSE)
    assert both[1].quantile(0.05) == pytest.approx(both[0].quantile(0.05), rel=CLOSE)


@pytest.mark.parametrize("seed", range(16))
def test_both_find_the_same_ends(seed: int) -> None:
    """Of counts and ratios that are just shown, and of others."""
    draw = random.Random(seed)
    shape = draw.choice((None, 1.25, 10.0))
    first = product.NORMAL if shape is None else laplace_distribution(shape)
    second = distributions.NORMAL if shape is None else distributions.laplace_distribution(shape)
    errors, hide = [10 ** draw.uniform(-1, 2) for _ in range(2)], draw.choice((0.0, 0.5, 3.0))
    outside, least = draw.choice((0.5, 0.05, 0.01)), hide * errors[0]
    count = least + errors[0] * draw.choice((0.001, 0.3, 3.0, 9.0, 50.0)) * draw.random()
    args = (count, errors[0], least, outside)
    assert intervals.count_ends(*args, second) == pytest.approx(product.shown_count(*args, first), rel=1e-9)
    hidden = product.hidden_count(-count, errors[0], outside, first)
    assert intervals.hidden_count_ends(-count, errors[0], outside, second) == pytest.approx(hidden, rel=1e-9)
    top = draw.uniform(-1, 1) * count, errors[1]
    right = product.shown_ratio(top, (count, errors[0]), least, outside, (first, first))
    found = intervals.ratio_ends(top, (count, errors[0]), least, outside, (second, second))
    assert found == pytest.approx(right, rel=1e-9, abs=1e-12)


def test_ends_without_digits_to_compare_are_no_numbers() -> None:
    """A sum over a characteristic function has no tail beyond rounding errors."""
    law = distributions.distribution_of([(1.0, distributions.laplace_distribution(1.25))] * 3)
    assert law.agrees(1e-4)
    assert not law.agrees(1e-6)
    assert math.isnan(law.quantile(1e-6))
    ends = intervals.count_ends(30.0, 2.0, 6.0, 1e-6, law)
    assert all(map(math.isnan, ends))
    assert all(map(math.isnan, intervals.fieller((1.0, 1.0), (9.0, 1.0), math.nan)))
