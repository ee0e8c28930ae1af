"""Splits the noise over the blocks of a request, and chooses its law for each.

Either the largest standard error over its range is the least, or the largest one over the answer's own error
when it is asked for alone.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.records.features import Block
from smpc_dp.records.schema import Schema
from smpc_dp.records.sensitivity import block_distance, row_l1, together_or_lacking
from smpc_dp.records.terms import Term, is_public, noisy_blocks

Floats = NDArray[np.float64]
SplitName = Literal["range", "balanced"]
ROUNDS = 400
# How far the largest error may be above the least possible one, of which the weighted mean is a lower bound.
_CLOSE = 1e-3
# A later round is taken only if its largest error is smaller by this part: of rounds that differ by rounding
# errors alone programs with other ones take the same.
_BETTER = 1e-9
# Of the weight of all answers, what each block counts with at least: none is without noise of a finite size.
_FLOOR = 1e-9
# Parts of epsilon for all Laplace noise together whose room is computed, steps between two of these, and
# cells of the loss of one block.
_PARTS, _STEPS, _CELLS = 32, 32, 20
# Beyond so many blocks of Laplace noise the room that they leave is as good as that of so many.
_MOST_BLOCKS = 12
_BISECTIONS = 30
# Groups of answers whose law is chosen by trying: with more there is no Laplace noise in any.
MOST_GROUPS = 40


class Split(NamedTuple):
    """Division of the privacy budget among blocks of sums: noise deviations, and which noise is Laplace.

    `deviations`: in units of the greatest value of each block; `laplace`: the blocks with Laplace noise;
    `largest`: the square of the largest weighted error.
    """

    deviations: list[float]
    laplace: frozenset[Block]
    largest: float


class _Errors:
    """Optimizer that divides a privacy budget among blocks of sums so that the largest error is least.

    `given`: what multiplies the squared error of each term.
    """

    def __init__(
        self, terms: Sequence[Term], blocks: Sequence[Block], schema: Schema, given: Sequence[float]
    ) -> None:
        # Not at the top: every session imports this module, and few need it.
        from scipy.sparse import coo_array

        index = {block: position for position, block in enumerate(blocks)}
        entries = [
            (row, index[block], square * term.groups**2 * given[row])
            for row, term in enumerate(terms)
            for block, square in term.every.items()
            if not is_public(block, schema)
        ]
        rows, columns, values = zip(*entries, strict=True)
        self.factors: Any = coo_array((values, (rows, columns)), shape=(len(terms), len(blocks))).tocsr()
        self.least_part = _FLOOR * max(values)
        self.distances = np.array([max(block_distance(block, schema), _FLOOR) for block in blocks])
        self.l1 = np.array([float(row_l1(block, schema)) for block in blocks])
        self.sides = [
            ([index[block] for block in together], [index[block] for block in lacking])
            for together, lacking in together_or_lacking(blocks)
        ]

    def least(self, precisions_of: Callable[[Floats], Floats]) -> tuple[Floats, float]:
        """Return nearly the best noise precisions by block for the largest squared error, and that error.

        `precisions_of` returns the best ones for one weighted error, a sum over blocks. Multiplicative
        weights on the terms move towards those with the largest errors.
        """
        terms, blocks = self.factors.shape
        share = np.full(terms, 1 / terms)
        best, least = np.ones(blocks), math.inf
        for _ in range(ROUNDS):
            precisions = precisions_of(share @ self.factors + self.least_part)
            errors = self.factors @ (1 / precisions)
            if errors.max() < least * (1 - _BETTER):
                best, least = precisions, float(errors.max())
            if errors.max() <= (1 + _CLOSE) * float(share @ errors):
                break
            share = share * np.sqrt(errors / errors.max())
            share /= share.sum()
        return best, least

    def gaussian(self, factors: Floats) -> Floats:
        """Return the Gaussian precisions by block that minimize a weighted squared error, at mu = 1.

        Of a row the sum of d x is 1, d being the squared distance of two rows in the block alone.
        """
        return self.divided(factors, self.distances, 1)[0]

    def laplace(self, factors: Floats, epsilon: float) -> Floats:
        """Return the Laplace precisions by block that minimize a weighted squared error at epsilon.

        Of a row the sum of l1 times the root of 2 x is epsilon.
        """
        return np.asarray((self.divided(factors, self.l1, 2)[0] * (epsilon / math.sqrt(2.0))) ** 2)

    def divided(self, factors: Floats, sizes: Floats, power: int) -> tuple[Floats, float]:
        """Return parts y of a budget of 1 that minimize the sum of factors / y^power, and that minimum.

        c, l: `factors` (0 of blocks that are left out, as is their y), `sizes`. With neither side of
        `sides` empty both have the same sum of l y, since a row has the greater one.
        """
        roots = (sizes**power * factors) ** (1 / (power + 1))
        twice = 0.0
        for sides in self.sides:
            parts = [float(roots[side].sum()) for side in sides]
            if min(parts) > 0:
                whole = float(np.linalg.norm(parts, power + 1))
                for side, part in zip(sides, parts, strict=True):
                    roots[side] *= whole / part
                twice += whole
        total = float(roots.sum()) - twice
        return np.asarray(roots / (sizes * total)), total ** (power + 1)


def deviations(
    terms: Sequence[Term], blocks: Sequence[Block], schema: Schema, weights: Mapping[str, float]
) -> list[float]:
    """Return Gaussian deviations of blocks that nearly minimize the largest weighted error, at mu = 1."""
    errors = _Errors(terms, blocks, schema, [weights.get(term.text, 1.0) for term in terms])
    best, _ = errors.least(errors.gaussian)
    return [float(deviation) for deviation in 1 / np.sqrt(best)]


def balanced_weights(
    answers: Sequence[Sequence[Term]],
    schema: Schema,
    weights: Mapping[str, float],
    epsilon: float,
    delta: float,
    eligible: Sequence[bool],
) -> dict[str, float]:
    """Return error weights that relate each answer's error to that when it is asked for alone.

    Args:
        answers: the terms of each answer.
        weights: by the text of a term, what else multiplies its squared error.
        epsilon, delta: of the request.
        eligible: whether an answer may have Laplace noise.
    """
    result: dict[str, float] = {}
    mu = gaussian_mu(epsilon, delta)
    for terms, pure in zip(answers, eligible, strict=True):
        blocks = noisy_blocks([terms], schema)
        if not blocks:
            continue
        errors = _Errors(terms, blocks, schema, [1.0] * len(terms))
        best, least = errors.least(errors.gaussian)
        alone = errors.factors @ (1 / best) / mu**2
        if pure:
            laplace, largest = errors.least(functools.partial(errors.laplace, epsilon=epsilon))
            alone = alone if largest >= least / mu**2 else errors.factors @ (1 / laplace)
        for term, square in zip(terms, alone.tolist(), strict=True):
            if square > 0:
                result[term.text] = max(result.get(term.text, 0.0), weights.get(term.text, 1.0) / square)
    return result


def split_with_laplace(
    answers: Sequence[Sequence[Term]],
    blocks: Sequence[Block],
    schema: Schema,
    weights: Mapping[str, float],
    epsilon: float,
    delta: float,
    eligible: Sequence[bool],
) -> Split:
    """Return the best division found of noise among blocks, Laplace or Gaussian for each group of answers.

    Answers that share blocks are one group, and have one law. From Gaussian noise alone and from Laplace
    noise alone groups change their law one at a time where the largest error falls by that. Arguments as of
    `balanced_weights`; `weights` as it returns them.
    """
    terms = [term for each in answers for term in each]
    errors = _Errors(terms, blocks, schema, [weights.get(term.text, 1.0) for term in terms])
    groups = [group for group, pure in _groups(answers, schema, eligible) if pure]
    at = {block: index for index, block in enumerate(blocks)}

    def split(chosen: Sequence[bool]) -> tuple[Floats, float]:
        pure = np.zeros(len(blocks), dtype=bool)
        for group, taken in zip(groups, chosen, strict=True):
            pure[[at[block] for block in group if taken]] = True
        return errors.least(lambda c: _both(errors, c, pure, epsilon, delta))

    starts = [[False] * len(groups)]
    if 0 < len(groups) <= MOST_GROUPS:
        starts.append([True] * len(groups))
    chosen, best = min((_moved(start, split) for start in starts), key=lambda pair: pair[1][1])
    pure = frozenset(itertools.chain.from_iterable(itertools.compress(groups, chosen)))
    return Split([float(one) for one in 1 / np.sqrt(best[0])], pure, best[1])


def _moved(
    chosen: list[bool], split: Callable[[Sequence[bool]], tuple[Floats, float]]
) -> tuple[list[bool], tuple[Floats, float]]:
    """Return a choice of groups with Laplace noise after one pass of changes, with its split.

    Each group changes its law once in order where the largest error falls by that.
    """
    best = split(chosen)
    for index in range(len(chosen) if len(chosen) <= MOST_GROUPS else 0):
        other = [taken != (position == index) for position, taken in enumerate(chosen)]
        other_best = split(other)
        if other_best[1] < best[1] * (1 - _CLOSE):
            chosen, best = other, other_best
    return chosen, best


def _groups(
    answers: Sequence[Sequence[Term]], schema: Schema, eligible: Sequence[bool]
) -> Iterator[tuple[list[Block], bool]]:
    """Yield groups of blocks connected by shared answers, and whether each may have Laplace noise."""
    groups: list[tuple[dict[Block, None], bool]] = []
    for terms, pure in zip(answers, eligible, strict=True):
        blocks, rest = dict.fromkeys(noisy_blocks([terms], schema)), []
        for known, other in groups:
            if known.keys() & blocks.keys():
                blocks, pure = known | blocks, pure and other
            else:
                rest.append((known, other))
        groups = [*rest, (blocks, pure)] if blocks else groups
    yield from ((list(blocks), pure) for blocks, pure in groups)


def _both(errors: _Errors, factors: Floats, pure: NDArray[np.bool_], epsilon: float, delta: float) -> Floats:
    """Return the best noise precisions by block, Laplace in some blocks and Gaussian in the others.

    The weighted error is L/E^2 + G/mu^2, E being the epsilon of all Laplace noise, and mu what it leaves, as
    if E were in as many equal parts as its parts count for: their squared sum over the sum of their squares.
    """
    counted, result = 0, np.zeros(len(factors))
    if pure.any():
        roots, of_laplace = errors.divided(np.where(pure, factors, 0.0), errors.l1, 2)
        spent = errors.l1 * roots
        counted = min(int(spent.sum() ** 2 / (spent @ spent) * (1 + 1e-9)), _MOST_BLOCKS)
    parts, rooms = _room(counted, epsilon, delta)
    whole = np.zeros(len(parts))
    if pure.any():
        with np.errstate(divide="ignore"):
            whole = 2 * of_laplace / parts**2
    if not pure.all():
        shares, of_gaussian = errors.divided(np.where(pure, 0.0, factors), errors.distances, 1)
        with np.errstate(divide="ignore"):
            whole = whole + of_gaussian / rooms**2
    chosen = int(np.argmin(whole))
    if pure.any():
        result += (roots * (float(parts[chosen]) / math.sqrt(2.0))) ** 2
    if not pure.all():
        result += shares * float(rooms[chosen]) ** 2
    return result


@functools.lru_cache(maxsize=64)
def _room(blocks: int, epsilon: float, delta: float) -> tuple[Floats, Floats]:
    """Return possible epsilons for Laplace noise in some blocks, and the Gaussian mu that each leaves.

    Approximate: what is planned with it is accounted for by itself.
    """
    whole = gaussian_mu(epsilon, delta)
    if blocks == 0:
        return np.zeros(1), np.array([whole])
    parts = epsilon * np.arange(1, _PARTS + 1) / _PARTS
    masses = np.array([_loss_masses(float(part) / blocks, blocks) for part in parts])
    losses = np.linspace(-1.0, 1.0, masses.shape[1]) * parts[:, None]
    low, high = np.zeros(_PARTS), np.full(_PARTS, whole)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        failing = (masses * _gaussian_gap(epsilon - losses, middle[:, None])).sum(axis=1)
        low, high = np.where(failing <= delta, middle, low), np.where(failing <= delta, high, middle)
    finer = np.linspace(parts[0], parts[-1], _STEPS * (_PARTS - 1) + 1)
    return finer, np.interp(finer, parts, low)


def _loss_masses(epsilon: float, blocks: int) -> Floats:
    """Return the probabilities of the total privacy loss of several Laplace noises, on a grid."""
    ends = np.linspace(-epsilon, epsilon, 2 * _CELLS + 1)
    middles = np.clip((ends[:-1] + ends[1:]) / 2, -epsilon, epsilon)
    # the distribution function of the loss within its ends
    reached = np.exp((np.concatenate(([-epsilon], middles, [epsilon])) - epsilon) / 2) / 2
    one = np.diff(reached)
    one[0] += math.exp(-epsilon) / 2
    one[-1] += 0.5
    result = one
    for _ in range(blocks - 1):
        result = np.convolve(result, one)
    return np.asarray(result)


def _gaussian_gap(epsilon: Floats, mu: Floats) -> Floats:
    """Return delta(epsilon) of Gaussian noise with sensitivity mu, for any real epsilon."""
    # Not at the top: every session imports this module, and few need it.
    from scipy.special import ndtr

    mu = np.maximum(mu, 1e-12)
    gap: Floats = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.maximum(gap, 0.0), dtype=np.float64)
