"""Division of a request's budget among blocks of sums [protocols/records/README.md, "Scales"].

Either all noise is Gaussian, or that of some groups of answers is Laplace noise.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from smpc_dp_verify.asked import Term
from smpc_dp_verify.columns import Block, Table
from smpc_dp_verify.gaussian import gaussian_mu
from smpc_dp_verify.reconciled import is_survival
from smpc_dp_verify.split import distance, of_a_row, together_or_lacking

ROUNDS, CLOSE, FLOOR = 400, 1e-3, 1e-9
# A later round is taken only if its largest error is smaller by this part.
BETTER = 1e-9
# Parts of epsilon for all Laplace noise whose room is computed, steps between two of them, half of the cells
# of a loss, and blocks at most.
PARTS, STEPS, CELLS, MOST_BLOCKS = 32, 32, 20, 12
# The room is a multiple of this part of that of all of epsilon.
FINENESS, MOST_NEWTON = 2.0**-30, 100
# With more groups of answers all noise is Gaussian.
MOST_GROUPS = 40
Precisions = Callable[[list[float]], list[float]]


class Division(NamedTuple):
    """The deviation of each block over its greatest value, and the blocks that have Laplace noise."""

    deviations: list[float]
    laplace: frozenset[Block]


class Errors:
    """Squared errors of numbers, by the precision of each block; `given` multiplies those of each number."""

    def __init__(
        self, terms: Sequence[Term], blocks: Sequence[Block], table: Table, given: Sequence[float]
    ) -> None:
        at = {block: index for index, block in enumerate(blocks)}
        self.factors = [
            [
                (at[block], factor * term.groups**2 * weight)
                for block, factor in term.factors.items()
                if not table.is_public(block)
            ]
            for term, weight in zip(terms, given, strict=True)
        ]
        self.blocks = len(blocks)
        self.least_part = FLOOR * max(factor for each in self.factors for _, factor in each)
        self.distances = [max(distance(block, table), FLOOR) for block in blocks]
        self.l1 = [float(of_a_row(block, table)) for block in blocks]
        self.sides = [
            [[at[block] for block in side] for side in sides] for sides in together_or_lacking(blocks)
        ]

    def of(self, precisions: Sequence[float]) -> list[float]:
        """Return the squared error of each number."""
        squares = [1 / one for one in precisions]
        return [sum(factor * squares[index] for index, factor in each) for each in self.factors]

    def least(self, precisions_of: Precisions) -> tuple[list[float], float]:
        """Return the precisions whose largest error is the least, and that error."""
        of_terms = [1 / len(self.factors)] * len(self.factors)
        best, least = [1.0] * self.blocks, math.inf
        for _ in range(ROUNDS):
            sums = [self.least_part] * self.blocks
            for share, each in zip(of_terms, self.factors, strict=True):
                for index, factor in each:
                    sums[index] += share * factor
            precisions = precisions_of(sums)
            errors = self.of(precisions)
            if (worst := max(errors)) < least * (1 - BETTER):
                best, least = precisions, worst
            if worst <= (1 + CLOSE) * math.fsum(map(mul, of_terms, errors)):
                break
            of_terms = [
                share * math.sqrt(error / worst) for share, error in zip(of_terms, errors, strict=True)
            ]
            whole = math.fsum(of_terms)
            of_terms = [share / whole for share in of_terms]
        return best, least

    def divided(
        self, factors: Sequence[float], sizes: Sequence[float], power: int
    ) -> tuple[list[float], float]:
        """Return the y with a sum of l y of 1 and the least sum of c / y^power, and that sum.

        Blocks of complete rows and of rows that lack a value have one sum of l y together, the greater one.
        """
        roots = [
            (size**power * factor) ** (1 / (power + 1)) for size, factor in zip(sizes, factors, strict=True)
        ]
        twice = 0.0
        for sides in self.sides:
            parts = [math.fsum(roots[index] for index in side) for side in sides]
            if min(parts) > 0:
                whole = sum(part ** (power + 1) for part in parts) ** (1 / (power + 1))
                for side, part in zip(sides, parts, strict=True):
                    for index in side:
                        roots[index] *= whole / part
                twice += whole
        total = math.fsum(roots) - twice
        return [root / (size * total) for root, size in zip(roots, sizes, strict=True)], total ** (power + 1)

    def gaussian(self, factors: list[float]) -> list[float]:
        """Return the best precisions of Gaussian noise for mu = 1."""
        return self.divided(factors, self.distances, 1)[0]

    def laplace(self, factors: list[float], epsilon: float) -> list[float]:
        """Return the best precisions of Laplace noise."""
        scale = epsilon / math.sqrt(2.0)
        return [(one * scale) ** 2 for one in self.divided(factors, self.l1, 2)[0]]

    def mixed(self, factors: list[float], pure: list[bool], epsilon: float, delta: float) -> list[float]:
        """Return the best precisions of Laplace noise in some blocks, and Gaussian noise in the others."""
        of_laplace = of_gaussian = 0.0
        counted = 0
        if any(pure):
            own = [factor if one else 0.0 for factor, one in zip(factors, pure, strict=True)]
            roots, of_laplace = self.divided(own, self.l1, 2)
            spent = list(map(mul, self.l1, roots))
            parts = math.fsum(spent) ** 2 / math.fsum(map(mul, spent, spent))
            counted = min(int(parts * (1 + BETTER)), MOST_BLOCKS)
        if not all(pure):
            own = [0.0 if one else factor for factor, one in zip(factors, pure, strict=True)]
            shares, of_gaussian = self.divided(own, self.distances, 1)
        own_epsilon, mu = room_of(counted, epsilon, delta).best(2 * of_laplace, of_gaussian)
        scale = own_epsilon / math.sqrt(2.0)
        return [(roots[i] * scale) ** 2 if one else shares[i] * mu**2 for i, one in enumerate(pure)]


def deviations(
    terms: Sequence[Term], blocks: Sequence[Block], table: Table, weights: dict[str, float]
) -> list[float]:
    """Return the deviation of each block over its greatest value, for mu = 1 ["Noise and its split"]."""
    errors = Errors(terms, blocks, table, [weights.get(term.text, 1.0) for term in terms])
    return [1 / math.sqrt(one) for one in errors.least(errors.gaussian)[0]]


def balanced(
    answers: Sequence[Sequence[Term]],
    table: Table,
    weights: dict[str, float],
    mu: float,
    epsilon: float,
    pure: Sequence[bool],
) -> dict[str, float]:
    """Return the weights of a balanced split: each over the squared error of the answer alone ["Scales"].

    `pure`: which answers may have Laplace noise of this epsilon.
    """
    result: dict[str, float] = {}
    for terms, is_pure in zip(answers, pure, strict=True):
        blocks = blocks_of(terms, table)
        if not blocks:
            continue
        errors = Errors(terms, blocks, table, [1.0] * len(terms))
        best, least = errors.least(errors.gaussian)
        alone = [one / mu**2 for one in errors.of(best)]
        if is_pure:
            best, largest = errors.least(lambda factors, of=errors: of.laplace(factors, epsilon))  # type: ignore[misc]
            alone = alone if largest >= least / mu**2 else errors.of(best)
        for term, each in zip(terms, alone, strict=True):
            if each > 0:
                result[term.text] = max(result.get(term.text, 0.0), weights.get(term.text, 1.0) / each)
    return result


def blocks_of(terms: Sequence[Term], table: Table) -> list[Block]:
    """Return the blocks with noise of some numbers, in the order of their first use."""
    used = dict.fromkeys(block for term in terms for block in term.factors)
    return [block for block in used if not table.is_public(block)]


def divided(
    answers: Sequence[Sequence[Term]],
    blocks: Sequence[Block],
    table: Table,
    weights: dict[str, float],
    epsilon: float,
    delta: float,
    pure: Sequence[bool],
) -> Division:
    """Return the division that is results by the choice of the law of each group of answers ["Laws"]."""
    terms = [term for each in answers for term in each]
    errors = Errors(terms, blocks, table, [weights.get(term.text, 1.0) for term in terms])
    groups = [group for group, is_pure in _groups(answers, table, pure) if is_pure]

    def tried(chosen: Sequence[bool]) -> tuple[list[float], float]:
        laplace = {*itertools.chain.from_iterable(itertools.compress(groups, chosen))}
        of_block = [block in laplace for block in blocks]
        return errors.least(lambda factors: errors.mixed(factors, of_block, epsilon, delta))

    is_tried = 0 < len(groups) <= MOST_GROUPS
    starts = [[False] * len(groups), [True] * len(groups)][: 2 if is_tried else 1]
    results = []
    for chosen in starts:
        best = tried(chosen)
        for index in range(len(groups) if is_tried else 0):
            changed = [is_taken != (at == index) for at, is_taken in enumerate(chosen)]
            other = tried(changed)
            if other[1] < best[1] * (1 - CLOSE):
                chosen, best = changed, other
        results.append((chosen, best))
    chosen, best = min(results, key=lambda pair: pair[1][1])
    laplace = frozenset(itertools.chain.from_iterable(itertools.compress(groups, chosen)))
    return Division([1 / math.sqrt(one) for one in best[0]], laplace)


def _groups(
    answers: Sequence[Sequence[Term]], table: Table, pure: Sequence[bool]
) -> list[tuple[list[Block], bool]]:
    """Return the blocks of answers that share some, and whether all of these may have Laplace noise."""
    groups: list[tuple[dict[Block, None], bool]] = []
    for terms, is_pure in zip(answers, pure, strict=True):
        blocks, rest = dict.fromkeys(blocks_of(terms, table)), []
        for known, other in groups:
            if known.keys() & blocks.keys():
                blocks, is_pure = known | blocks, is_pure and other
            else:
                rest.append((known, other))
        groups = [*rest, (blocks, is_pure)] if blocks else groups
    return [(list(blocks), is_pure) for blocks, is_pure in groups]


def lacking_choices(answers: Sequence[Sequence[Term]], pure: Sequence[bool]) -> list[list[list[Term]]]:
    """Return the numbers with counts of rows that lack a value: of all answers, and of those of degree 1."""
    plain = [
        is_pure and all(len(block.powers) < 2 for term in terms for block in term.factors)
        for terms, is_pure in zip(answers, pure, strict=True)
    ]
    every, some = with_lacking(answers, pure), with_lacking(answers, plain)
    return [every] if every == some else [every, some]


def with_lacking(answers: Sequence[Sequence[Term]], pure: Sequence[bool]) -> list[list[Term]]:
    """Return the numbers with counts of rows that lack a value in the place of others ["Laws"].

    `pure`: the answers that may have Laplace noise.
    """
    counts: dict[Block, bool] = {}
    for terms, is_pure in zip(answers, pure, strict=True):
        for block in itertools.chain.from_iterable(term.factors for term in terms):
            if not (block.powers or is_survival(block)):
                counts[block] = counts.get(block, True) and is_pure
    free = [block for block, is_free in counts.items() if is_free and counts.get(_all_rows(block), True)]
    alike = Counter((block.selectors, block.where) for block in free)
    replaced = {block for block in free if block.present and alike[block.selectors, block.where] > 1}
    return [[_without(term, replaced) for term in terms] for terms in answers]


def _all_rows(block: Block) -> Block:
    return block._replace(present=())


def _without(term: Term, replaced: set[Block]) -> Term:
    factors: dict[Block, float] = {}
    for block, factor in term.factors.items():
        parts = [block]
        if block in replaced:
            parts = [block._replace(lacking=True)]
            if _all_rows(block) not in term.factors:
                parts.append(_all_rows(block))
        elif any(_all_rows(other) == block for other in replaced & term.factors.keys()):
            continue
        factors |= dict.fromkeys(parts, factor)
    return term._replace(factors=factors)


class Room(NamedTuple):
    """Epsilons of all Laplace noise together, ascending, and the Gaussian shift that each leaves."""

    epsilons: list[float]
    shifts: list[float]

    def best(self, of_laplace: float, of_gaussian: float) -> tuple[float, float]:
        """Return the epsilon and the shift for which L / epsilon^2 + G / mu^2 is the least."""
        least, chosen = math.inf, 0
        for index, (epsilon, mu) in enumerate(zip(self.epsilons, self.shifts, strict=True)):
            error = of_laplace / epsilon**2 if epsilon else 0.0
            if of_gaussian:
                error += of_gaussian / mu**2 if mu else math.inf
            if error < least:
                least, chosen = error, index
        return self.epsilons[chosen], self.shifts[chosen]


@lru_cache(64)
def room_of(blocks: int, epsilon: float, delta: float) -> Room:
    """Return what Laplace noise in so many blocks leaves of (epsilon, delta), approximately ["Laws"]."""
    whole = gaussian_mu(epsilon, delta)
    if blocks == 0:
        return Room([0.0], [whole])
    parts = [epsilon * part / PARTS for part in range(1, PARTS + 1)]
    left = [_left(part, blocks, epsilon, delta, whole) for part in parts]
    step = (parts[-1] - parts[0]) / (STEPS * (PARTS - 1))
    finer = [parts[0] + index * step for index in range(STEPS * (PARTS - 1))] + [parts[-1]]
    shifts = []
    for each in finer:
        at = min(bisect_right(parts, each) - 1, PARTS - 2)
        slope = (left[at + 1] - left[at]) / (parts[at + 1] - parts[at])
        shifts.append(slope * (each - parts[at]) + left[at])
    return Room(finer, shifts)


def _left(part: float, blocks: int, epsilon: float, delta: float, whole: float) -> float:
    """Return the greatest shift, on its grid, that Laplace noise of this epsilon in all leaves room for."""
    masses = _masses(part / blocks, blocks)
    cells = len(masses) - 1
    gaps = [epsilon - part * (2 * index / cells - 1) for index in range(cells + 1)]

    def exceeds(mu: float) -> float:
        return math.fsum(map(mul, masses, (_gap(gap, mu) for gap in gaps))) - delta

    def slope(mu: float) -> float:
        return math.fsum(
            mass * math.exp(-((mu / 2 - gap / mu) ** 2) / 2) for mass, gap in zip(masses, gaps, strict=True)
        ) / math.sqrt(2 * math.pi)

    low, high, mu = 0.0, whole, whole
    if exceeds(high) <= 0:
        return whole * (1 - FINENESS)
    # Newton's steps, and halves of the interval where they would leave it.
    for _ in range(MOST_NEWTON):
        over, rises = exceeds(mu), slope(mu)
        low, high = (mu, high) if over <= 0 else (low, mu)
        nearer = mu - over / rises if rises > 0 else low
        nearer = nearer if low <= nearer <= high else (low + high) / 2
        if abs(nearer - mu) < whole * FINENESS / 64:
            break
        mu = nearer
    return math.floor(nearer / (whole * FINENESS)) * whole * FINENESS


def _masses(epsilon: float, blocks: int) -> list[float]:
    """Return the probabilities of the losses of so many Laplace noises together, on a grid."""
    ends = [epsilon * (index / CELLS - 1) for index in range(2 * CELLS + 1)]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
    reached = [math.exp((loss - epsilon) / 2) / 2 for loss in (-epsilon, *middles, epsilon)]
    one = [b - a for a, b in itertools.pairwise(reached)]
    one[0] += math.exp(-epsilon) / 2
    one[-1] += 0.5
    result, turned = one, one[::-1]
    for _ in range(blocks - 1):
        padded = [0.0] * (len(one) - 1)
        padded = padded + result + padded
        result = [
            sum(map(mul, padded[at : at + len(one)], turned)) for at in range(len(result) + len(one) - 1)
        ]
    return result


def _gap(epsilon: float, mu: float) -> float:
    """Return delta at any epsilon of a shift of a standard Gaussian."""
    mu = max(mu, 1e-12)
    first, second = ((epsilon / mu + sign * mu / 2) / math.sqrt(2) for sign in (-1, 1))
    return max((math.erfc(first) - math.exp(epsilon) * math.erfc(second)) / 2, 0.0)
