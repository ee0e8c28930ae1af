"""Noise of one request of statistics of records: of Gaussian law, of Laplace law, or of both.

docs/proofs/records.md, "Noise and its split".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from smpc_dp_verify.asked import COX, Asked, Term, terms_of
from smpc_dp_verify.columns import Block, Table, number
from smpc_dp_verify.division import Division, balanced, blocks_of, deviations, divided, lacking_choices
from smpc_dp_verify.errors import TooMany
from smpc_dp_verify.gaussian import gaussian_mu
from smpc_dp_verify.joint import LEAST_VARIANCE, LaplaceLosses
from smpc_dp_verify.record_plan import FINE, Given, mixed_error, scaled_blocks
from smpc_dp_verify.split import Moves, Scaled, distance, of_a_row, of_one_row

LAPLACE_BITS = 12.0
# Statistics that are one sum of which all noise is the answer's; and whose intervals hold for Laplace noise.
LINEAR = {"count", "table", "histogram", "sum", "mean", "sandwich"}
ANY_NOISE = LINEAR | {
    *("quantile", "risk", "chi_square", "variance", "covariance", "correlation", "regression", "difference"),
    *("missing", "survival", "logrank", *COX),
}
# Parts by which the variance of shares may be below that of continuous Gaussian noise, and above it.
BELOW, ABOVE = 1e-9, 1e-3
# Greatest epsilon, and least delta, for which both laws are taken.
MOST_EPSILON, LEAST_DELTA = 10.0, 1e-11
# The search for the variance beside Laplace noise: its parts, the part of delta that ends it, its steps, and
# how steeply delta falls at first.
SEARCH_PARTS, ENOUGH, SEARCHES, STEEP = 4096, 0.97, 12, -20.0
# By so many parts of variance two right searches may differ, and by this part two computations of delta.
APART, ROUNDED = 4, 1e-8


class Planned(NamedTuple):
    """Noise of one law or of both.

    `variance`: of a share, in squared ring steps, of both laws that of Gaussian noise. `least`, `most`: what
    it may be, where `is_private`. `laplace`: the scale of Laplace noise, None without any. `of_laplace`: of
    both laws the variance of a share of it, in the blocks `pure`.
    """

    scaled: list[Scaled]
    variance: int
    least: int
    most: int
    laplace: int | None = None
    of_laplace: float = 0.0
    pure: frozenset[Block] = frozenset()
    is_private: Callable[[int], bool] = lambda _: True

    def is_laplace(self, block: Block) -> bool:
        """Tell whether a block has Laplace noise."""
        return self.laplace is not None and (not self.pure or block in self.pure)

    def has_laplace(self, one: Asked, table: Table) -> bool:
        """Tell whether an answer is computed from sums with Laplace noise."""
        blocks = [block for term in terms_of(one, table) for block in term.value.factors]
        # of complete rows there may be a count in another's place
        every = {*blocks, *(block._replace(lacking=True) for block in blocks if not block.powers)}
        return any(each.block in every and self.is_laplace(each.block) for each in self.scaled)


def of_range(request: Given, given: Mapping[str, Any], counted: int) -> Planned:
    """Return the noise by which the largest error over its range is the least."""
    gaussian, other = _gaussian(request, given, counted), _laplace(request, given, counted)
    return _better(request, gaussian, other, request.weights, counted)


def _better(
    request: Given, gaussian: Planned, other: Planned | None, weights: dict[str, float], counted: int
) -> Planned:
    """Return the noise with the smaller largest error, the Gaussian one of equals."""
    if other is None:
        return gaussian
    largest = [_worst(request, one, weights, counted) for one in (gaussian, other)]
    return other if largest[1] < largest[0] else gaussian


def _gaussian(request: Given, given: Mapping[str, Any], counted: int) -> Planned:
    """Return Gaussian noise."""
    mu = gaussian_mu(given["epsilon"], given["delta"])
    spread = deviations(request.terms, request.blocks, request.table, request.weights)
    scaled = scaled_blocks(request, [one / mu for one in spread], FINE)
    l2, _ = Moves(request.blocks, request.table).norms(scaled)
    variance = l2 * l2 / (mu * mu * counted)
    least, most = (math.ceil(variance * (1 + part)) for part in (-BELOW, ABOVE))
    return Planned(scaled, math.ceil(variance), least, most)


def _laplace(request: Given, given: Mapping[str, Any], counted: int) -> Planned | None:
    """Return discrete Laplace noise with equal errors of all sums; None unless each answer is one sum."""
    table, largest = request.table, dict.fromkeys(request.blocks, 0.0)
    if any(one.kind not in LINEAR for one in request.asked):
        return None
    for term in request.terms:
        used = [block for block in term.factors if not table.is_public(block)]
        if len(used) != 1:
            return None
        factor = term.factors[used[0]] * term.groups**2 * request.weights.get(term.text, 1.0)
        largest[used[0]] = max(largest[used[0]], factor)
    epsilon = number(given["epsilon"])
    whole = sum(of_a_row(block, table) * math.sqrt(largest[block]) for block in request.blocks)
    spread = [math.sqrt(2.0) * whole / (epsilon * math.sqrt(largest[block])) for block in request.blocks]
    return _all_laplace(request, spread, epsilon, counted)


def _all_laplace(request: Given, spread: list[float], epsilon: float, counted: int) -> Planned:
    """Return discrete Laplace noise of these deviations."""
    scaled = scaled_blocks(request, spread, LAPLACE_BITS)
    scale = _scale(Moves([], request.table).l1(scaled), epsilon)
    variance = math.ceil(_variance(scale) / counted)
    # floats that differ in their last digits may be rounded up to two integers
    least, most = variance - 1 - variance // 10**9, variance + 1 + variance // 10**9
    return Planned(scaled, variance, least, most, scale)


def _scale(l1: int, epsilon: float) -> int:
    """Return the least scale of discrete Laplace noise for a vector that moves by `l1`."""
    return math.ceil(Fraction(l1) / Fraction(epsilon))


def _variance(scale: int) -> float:
    """Return the variance of discrete Laplace noise."""
    ratio = math.exp(-1 / scale)
    return 2 * ratio / math.expm1(-1 / scale) ** 2


def of_ratios(request: Given, given: Mapping[str, Any], counted: int) -> Planned:
    """Return the noise by which the largest ratio of an error to that of the answer alone is the least."""
    table = request.table
    pure = [one.kind in ANY_NOISE for one in request.asked]
    answers: Sequence[Sequence[Term]] = [terms_of(one, table) for one in request.asked]
    choices = [answers] if table.public else lacking_choices(answers, pure)
    plans = [_of_ratios(request, given, counted, choice, pure) for choice in choices]
    return min(plans, key=lambda pair: pair[1])[0]


def _of_ratios(
    request: Given,
    given: Mapping[str, Any],
    counted: int,
    answers: Sequence[Sequence[Term]],
    pure: Sequence[bool],
) -> tuple[Planned, float]:
    """Return the noise for answers from these sums, and the largest ratio."""
    table, epsilon, delta = request.table, number(given["epsilon"]), number(given["delta"])
    terms = [term for each in answers for term in each]
    weights = balanced(answers, table, request.weights, gaussian_mu(epsilon, delta), epsilon, pure)
    request = request._replace(terms=terms, blocks=blocks_of(terms, table), weights=weights)
    gaussian = _gaussian(request, given, counted)
    if not any(pure):
        return gaussian, 0.0
    division = divided(answers, request.blocks, table, weights, epsilon, delta, pure)
    other: Planned | None = None
    if len(division.laplace) == len(request.blocks):
        other = _all_laplace(request, division.deviations, epsilon, counted)
    elif division.laplace and delta >= LEAST_DELTA and epsilon <= MOST_EPSILON:
        other = _mixed(request, division, epsilon, delta, counted)
    best = _better(request, gaussian, other, weights, counted)
    return best, _worst(request, best, weights, counted)


def _mixed(request: Given, division: Division, epsilon: float, delta: float, counted: int) -> Planned | None:
    """Return Laplace noise in some blocks and Gaussian noise in the others; None if the search finds none."""
    table, spread = request.table, dict(zip(request.blocks, division.deviations, strict=True))
    by_kind = {}
    for is_pure, bits in ((False, FINE), (True, LAPLACE_BITS)):
        blocks = [block for block in request.blocks if (block in division.laplace) is is_pure]
        own = request._replace(blocks=blocks)
        by_kind[is_pure] = scaled_blocks(own, [spread[block] for block in blocks], bits)
    blocks = [one.block for one in by_kind[False]]
    moves, l2 = Moves([], table), Moves(blocks, table).norms(by_kind[False])[0]
    pure = [one.block for one in by_kind[True]]
    spent = of_one_row({block: math.sqrt(2.0) * of_a_row(block, table) / spread[block] for block in pure})
    l1 = moves.l1(by_kind[True])
    scale = _scale(l1, min(spent, epsilon))
    each = moves.of_each_block(by_kind[True])
    if sum(each) > l1:
        # a plan may count what a row moves in all blocks, which is less than these moves together
        raise TooMany("the moves that no row makes together")
    losses = LaplaceLosses(scale, each, l1)
    planned = of_one_row({block: max(distance(block, table), BELOW) / spread[block] ** 2 for block in blocks})
    part = l2**2 / (planned * counted * SEARCH_PARTS)

    def failing(variance: int) -> float:
        return (
            losses.delta(l2 / math.sqrt(variance * counted), epsilon) if variance >= LEAST_VARIANCE else 1.0
        )

    count = _searched(lambda number: failing(math.ceil(number * part)), delta)
    if count is None:
        return None
    scaled = {one.block: one for each in by_kind.values() for one in each}
    least, variance, most = (math.ceil((count + more) * part) for more in (-APART, 0, APART))
    return Planned(
        [scaled[block] for block in request.blocks],
        variance,
        least,
        most,
        scale,
        _variance(scale) / counted,
        division.laplace,
        lambda variance: failing(variance) <= delta * (1 + ROUNDED),
    )


def _searched(failing: Callable[[int], float], delta: float) -> int | None:
    """Return the number of parts of variance with which at most delta is reached, and 0.97 of it at least."""
    count, slope = SEARCH_PARTS, STEEP
    last: tuple[float, float] | None = None
    for _ in range(SEARCHES):
        reached = failing(count)
        if ENOUGH * delta <= reached <= delta:
            return count
        here = math.log(count), math.log(max(reached, delta / 1e6))
        if last is not None and last[0] != here[0]:
            slope = min(-1.0, (here[1] - last[1]) / (here[0] - last[0]))
        last, wanted = here, math.log(delta * (1 + ENOUGH) / 2)
        count = math.ceil(math.exp(here[0] + min(max((wanted - here[1]) / slope, -1.0), 1.0)))
    return count if failing(count) <= delta else None


def _worst(request: Given, planned: Planned, weights: Mapping[str, float], counted: int) -> float:
    """Return the largest weighted error of an answer over its range."""
    by_block = {one.block: one for one in planned.scaled}

    def variance_of(block: Block) -> float:
        return planned.of_laplace if block in planned.pure else planned.variance

    return max(
        mixed_error(term, by_block, request.table, variance_of, counted)
        * math.sqrt(weights.get(term.text, 1.0))
        for term in request.terms
    )
