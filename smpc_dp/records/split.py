"""Splits the noise over the blocks of a request: the largest standard error, over its range, is the least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from smpc_dp.records.features import Block
from smpc_dp.records.schema import Schema
from smpc_dp.records.sensitivity import block_distance
from smpc_dp.records.terms import Term, is_public

ROUNDS = 400
# How far the largest error may be above the least possible one, of which the weighted mean is a lower bound.
_CLOSE = 1e-3
# Of the weight of all answers, what each block counts with at least: none is without noise of a finite size.
_FLOOR = 1e-9


def deviations(
    terms: Sequence[Term], blocks: Sequence[Block], schema: Schema, weights: Mapping[str, float]
) -> list[float]:
    """Return a standard deviation for each block, in units of its greatest value, for mu = 1.

    With shares x = 1/deviation^2, the sum of d x is 1, d being the squared distance of two rows in the block
    alone; the largest of the terms' variances c/x is made least by multiplicative weights on the terms: for
    given weights the best x is in proportion to sqrt(c/d).
    """
    distances = np.array([max(block_distance(block, schema), _FLOOR) for block in blocks])
    index = {block: position for position, block in enumerate(blocks)}
    # Not at the top: every session imports this module, and few need it.
    from scipy.sparse import coo_array

    entries = [
        (row, index[block], square * term.groups**2 * weights.get(term.text, 1.0))
        for row, term in enumerate(terms)
        for block, square in term.squares.items()
        if not is_public(block, schema)
    ]
    rows, columns, values = zip(*entries, strict=True)
    factors = coo_array((values, (rows, columns)), shape=(len(terms), len(blocks))).tocsr()
    least_part = _FLOOR * max(values)
    share = np.full(len(terms), 1 / len(terms))
    best, least = np.ones(len(blocks)), math.inf
    for _ in range(ROUNDS):
        shares = np.sqrt((share @ factors + least_part) / distances)
        shares /= shares @ distances
        errors = factors @ (1 / shares)
        if errors.max() < least:
            best, least = shares, float(errors.max())
        if errors.max() <= (1 + _CLOSE) * float(share @ errors):
            break
        share = share * np.sqrt(errors / errors.max())
        share /= share.sum()
    return [float(deviation) for deviation in 1 / np.sqrt(best)]
