"""The standard error of an answer that a package computes from noisy sums."""

from __future__ import annotations

import math

from smpc_dp.records.composed import _with_error


def test_the_greater_change_of_each_sum_counts() -> None:
    linear = _with_error(lambda sums: 2 * sums[0] + sums[1], [1.0, 2.0], [3.0, 4.0])
    assert linear == (4.0, math.hypot(6.0, 4.0))
    assert _with_error(lambda _: 7.0, [0.0], [0.0]) == (7.0, 0.0)


def test_an_answer_that_bends_within_its_noise_has_no_error() -> None:
    assert _with_error(lambda sums: max(0.0, sums[0] - 100), [99.9], [1.0]) == (0.0, None)
    assert _with_error(lambda sums: 1 / sums[0], [1.0], [0.9])[1] is None
    assert _with_error(lambda sums: sums[0] ** 2, [0.0], [3.0]) == (0.0, None)
    assert _with_error(lambda sums: sums[0] * sums[1], [0.0, 0.0], [3.0, 4.0]) == (0.0, None)
    value, error = _with_error(lambda sums: 1 / sums[0], [10.0], [0.9])
    assert value == 0.1
    assert error is not None
    assert math.isclose(error, 0.9 / 100, rel_tol=0.2)
