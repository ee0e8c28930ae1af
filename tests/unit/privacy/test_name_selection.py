"""Names are released by chances of their counts: exact guarantee, optimal, drawn as stated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.name_selection import ONE, NameSelection
from smpc_dp.privacy.sampling import NoiseSource

PLANS = [(1.0, 1e-6), (0.3, 1e-9), (5.0, 0.01), (0.05, 1e-3), (100.0, 1e-12)]


def chance(selection: NameSelection, count: int) -> Fraction:
    """Return the exact chance of a release."""
    return Fraction(selection.chances[min(count, selection.certain)], ONE)


def excess(first: list[Fraction], second: list[Fraction], epsilon: float) -> Fraction:
    """Return the delta at which an input with these chances of its names is epsilon-close to another one."""
    ratio, total = Fraction(math.exp(epsilon)), Fraction(0)
    for outcome in itertools.product((False, True), repeat=len(first)):
        p, q = (
            math.prod(
                (c if out else 1 - c for c, out in zip(chances, outcome, strict=True)), start=Fraction(1)
            )
            for chances in (first, second)
        )
        total += max(Fraction(0), p - ratio * q)
    return total


def worst(selection: NameSelection) -> Fraction:
    """Return the delta of two inputs that are one step apart, over all counts, both ways."""
    return max(
        excess([chance(selection, a)], [chance(selection, b)], selection.epsilon)
        for count in range(selection.certain + 1)
        for a, b in ((count, count + 1), (count + 1, count))
    )


@pytest.mark.parametrize(("epsilon", "delta"), PLANS)
def test_one_row_moves_no_chance_too_far(epsilon: float, delta: float) -> None:
    """Exactly, for every count; the first row's chance is delta, all but 2^-30 of it."""
    selection = NameSelection.plan(epsilon, delta)
    assert (1 - 2.0**-20) * delta < worst(selection) <= Fraction(delta)
    assert selection.chances[0] == 0
    assert selection.single == pytest.approx(delta, rel=1e-6)
    assert list(selection.chances) == sorted(selection.chances)


def test_a_threshold_that_is_off_by_one_is_found() -> None:
    """As if a name were released by its count and one more row."""
    selection = NameSelection.plan(1.0, 1e-6)
    wrong = replace(selection, chances=(0, *selection.chances[2:]))
    assert worst(wrong) > Fraction(2, 10**6)


@pytest.mark.parametrize("changes", [2, pytest.param(3, marks=pytest.mark.long)])
def test_several_changes_are_within_epsilon_and_delta_together(changes: int) -> None:
    """All ways in which so many steps change up to three names of a few counts, and one name alone."""
    epsilon, delta = 1.5, 1e-2
    selection = NameSelection.plan(epsilon, delta, changes)
    counts = range(0, selection.certain + 1, 2)
    moves = [
        move
        for move in itertools.product(range(-changes, changes + 1), repeat=3)
        if sum(map(abs, move)) == changes
    ]
    for start in itertools.product(counts, repeat=2):
        for move in moves:
            before = [*start, 0]
            after = [count + step for count, step in zip(before, move, strict=True)]
            if min(after) >= 0:
                exact = [[chance(selection, count) for count in each] for each in (before, after)]
                assert excess(exact[0], exact[1], epsilon) <= Fraction(delta)
                assert excess(exact[1], exact[0], epsilon) <= Fraction(delta)


@pytest.mark.parametrize("changes", [2, 3])
def test_changes_that_are_not_counted_are_found(changes: int) -> None:
    """A plan for one change, with several: each of so many names of a single row has the whole delta."""
    selection = NameSelection.plan(1.5, 1e-2)
    one, none = [chance(selection, 1)] * changes, [Fraction(0)] * changes
    assert excess(one, none, 1.5) > Fraction(1.9 * 1e-2)


@pytest.mark.parametrize(("epsilon", "delta"), PLANS[:3])
def test_names_are_released_more_often_than_by_noise_and_a_threshold(epsilon: float, delta: float) -> None:
    """Beside discrete Laplace noise and the least threshold at which one row passes with delta."""
    selection = NameSelection.plan(epsilon, delta)

    def above(excess: int) -> float:
        tail = math.exp(-epsilon * abs(excess)) / (1 + math.exp(-epsilon))
        return tail if excess > 0 else 1 - tail * math.exp(-epsilon)

    threshold = next(t for t in range(1, 10_000) if above(t - 1) <= delta)
    counts = range(1, 2 * threshold)
    assert all(chance(selection, count) >= above(threshold - count) * (1 - 1e-6) for count in counts)
    assert selection.even <= threshold


def test_names_are_drawn_with_their_chances() -> None:
    """Five deviations in 40 counts: a false alarm with 2e-5, and the seed is fixed."""
    selection = NameSelection.plan(0.5, 1e-3)
    draws = 4000
    source = NoiseSource.keyed(bytes(32), b"names")
    for count in range(40):
        expected = float(chance(selection, count))
        hits = selection.released(np.full(draws, count, dtype=np.int64), source).mean()
        assert abs(hits - expected) <= 5 * math.sqrt(expected * (1 - expected) / draws) + 1e-3 * (
            expected == 0
        )
    assert selection.released(np.array([10**9, 0]), source).tolist() == [True, False]


@pytest.mark.parametrize(
    ("epsilon", "delta", "changes", "named"),
    [
        (0.0, 1e-6, 1, "epsilon"),
        (101.0, 1e-6, 1, "epsilon"),
        (math.nan, 1e-6, 1, "epsilon"),
        (1e-7, 1e-8, 1, "epsilon"),
        (1.0, 0.0, 1, "delta"),
        (1.0, 1.0, 1, "delta"),
        (1.0, 1e-20, 1, "delta"),
        (100.0, 1e-6, 1000, "delta"),
        (1.0, 1e-6, 0, "changes"),
    ],
)
def test_what_cannot_be_planned_is_named(epsilon: float, delta: float, changes: int, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        NameSelection.plan(epsilon, delta, changes)
    assert refused.value.issues[0].where == named
