"""How far one row moves the vector: the largest distance over rows, or pairs of rows, of all blocks together.

docs/proofs/records.md derives each bound. They hold for all real numbers within the bounds, thus for the
grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.records.features import Block, Lacking
from smpc_dp.records.schema import Schema

Floats = NDArray[np.float64]
Amount = TypeVar("Amount", float, Fraction)
# Above the rounding errors of sums of some thousand numbers, and of an eigenvalue of such a matrix.
UP = 1 + 1e-9
# Choices of signs, missing values and cells that are gone through in one component.
MAX_CHOICES = 100_000
# Sets of blocks with the same presence that are gone through.
MAX_GROUPS = 10


class Scaled(msgspec.Struct, frozen=True):
    """A block of sums in a party's vector, with the factor that converts its sums to ring integers."""

    block: Block
    scale: Fraction

    @property
    def rounded(self) -> bool:
        """Whether the scaled sums may be fractions, which are rounded."""
        return self.scale.denominator > 1 or self.block.of_party

    def square(self, schema: Schema) -> float:
        """Return the square of the greatest scaled value that one row can add to an entry."""
        return float(self.scale * self.block.greatest(schema)) ** 2


def sensitivity_of(blocks: Sequence[Scaled], schema: Schema) -> Sensitivity:
    """Return the L2 and maximum-norm sensitivity of a party's vector to one protected unit.

    The rounding is that of each party whose sum moves.
    """
    add_remove = schema.relation == "add-remove"
    square = largest_norm(blocks, schema) if add_remove else largest_distance(blocks, schema)
    touched = sum(_touched(one, schema) for one in blocks if one.rounded)
    most = max(_furthest(one, schema) for one in blocks)
    l2 = schema.party_factor * (schema.person_factor * math.sqrt(square) + math.sqrt(touched))
    return Sensitivity.on_integers(
        schema.relation,
        dimension=sum(one.block.cells for one in blocks),
        l2=max(1.0, l2 * UP),
        linf=float(max(1, schema.party_factor * most)),
    )


def row_l1(block: Block, schema: Schema) -> float:
    """Return the greatest L1 distance that one row can move a block whose greatest value is scaled to 1."""
    if schema.relation == "add-remove":
        return 1.0
    return 2.0 if block.has_odd_power or any(selector.cells > 1 for selector in block.selectors) else 1.0


def together_or_lacking(blocks: Iterable[Block]) -> list[tuple[list[Block], list[Block]]]:
    """Return, for each set of columns, blocks of complete rows and blocks of rows with missing values.

    A row brings something to the former or to the latter, never to both. Sets without either are left out.
    """
    by_columns: dict[tuple[str, ...], tuple[list[Block], list[Block]]] = {}
    for block in blocks:
        by_columns.setdefault(block.present, ([], []))[isinstance(block, Lacking)].append(block)
    return [(together, lacking) for together, lacking in by_columns.values() if together and lacking]


def greatest_of_row(amounts: Mapping[Block, Amount]) -> Amount:
    """Return the most that one row adds to all blocks, given the most it adds to each."""
    whole = sum(amounts.values(), start=type(next(iter(amounts.values())))(0))
    for sides in together_or_lacking(amounts):
        whole -= min(sum(amounts[block] for block in side) for side in sides)
    return whole


def l1_sensitivity(blocks: Sequence[Scaled], schema: Schema) -> Sensitivity:
    """Return the L1 and maximum-norm sensitivity of a party's vector to one protected unit."""
    rows = greatest_of_row(
        {one.block: one.scale * one.block.greatest(schema) * int(row_l1(one.block, schema)) for one in blocks}
    )
    touched = sum(_touched(one, schema) for one in blocks if one.rounded)
    most = max(_furthest(one, schema) for one in blocks)
    return Sensitivity.on_integers(
        schema.relation,
        dimension=sum(one.block.cells for one in blocks),
        l1=float(schema.party_factor * (math.ceil(schema.person_factor * rows) + touched)),
        linf=float(max(1, schema.party_factor * most)),
    )


def l1_moves(blocks: Sequence[Scaled], schema: Schema) -> tuple[int, ...] | None:
    """Return the most that each block moves by one unit in one entry; None if more entries may move.

    Between other neighbours a block may move in several coordinates, of which the sum alone is bounded.
    """
    several = schema.relation == "substitution" and any(one.block.cells > 1 for one in blocks)
    if schema.person_factor * schema.party_factor > 1 or several:
        return None
    moves = {one.block: max(1, _furthest(one, schema)) for one in blocks}
    for together, lacking in together_or_lacking(moves):
        # as many moves as either side has, the i-th greatest of these the greater one of both
        sides = [sorted((moves.pop(block) for block in side), reverse=True) for side in (together, lacking)]
        pairs = itertools.zip_longest(*sides, fillvalue=0)
        moves |= dict(zip(together + lacking, itertools.starmap(max, pairs), strict=False))
    return tuple(moves.values())


def _furthest(one: Scaled, schema: Schema) -> int:
    """Return the most that one protected unit in one party can move an entry of a block."""
    if one.block.of_party:
        return math.ceil(
            schema.person_factor
            * math.isqrt(int(block_distance(one.block, schema)))
            * one.scale
            * one.block.greatest(schema)
        )
    signs = 2 if one.block.has_odd_power and schema.relation == "substitution" else 1
    return math.ceil(schema.person_factor * signs * one.scale * one.block.greatest(schema))


def row_moves(blocks: Sequence[Scaled], schema: Schema) -> tuple[int, ...] | None:
    """Return the most that each entry moves that one row can touch; None if a unit has several rows.

    Of a block it moves one cell, or under substitution two, the second from or to nothing.
    """
    if schema.person_factor * schema.party_factor > 1:
        return None
    moves = [_furthest(one, schema) for one in blocks]
    if schema.relation == "substitution":
        several = [one for one in blocks if one.block.cells > 1]
        moves += [math.ceil(one.scale * one.block.greatest(schema)) for one in several]
    return tuple(max(1, move) for move in moves)


def largest_norm(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return a bound on the squared L2 norm of one row's contribution to all blocks."""
    own = math.fsum(
        one.square(schema) * block_distance(one.block, schema) for one in blocks if one.block.of_party
    )
    return (own + _longest([one for one in blocks if not one.block.of_party], schema)) * UP


def _longest(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return a bound on the squared L2 norm of one row's contribution, using a declared norm bound.

    With y the squares of a row's values, it is linear and quadratic in y: sum y is at most the squared bound
    of the norm, and a quadratic form with entries of 0 or more is at most its largest one times (sum y)^2.
    """
    if not blocks:
        return 0.0
    whole = greatest_of_row({one.block: one.square(schema) for one in blocks})
    norm = schema.norm
    if norm is None:
        return whole
    free, linear, quadratic = 0.0, dict.fromkeys(norm.columns, 0.0), dict[tuple[str, ...], float]()
    for one in blocks:
        bounded = tuple(name for name in one.block.bounded_by if name in linear)
        if len(bounded) == 2:
            part = 1.0 if bounded[0] == bounded[1] else 0.5
            quadratic[bounded] = quadratic.get(bounded, 0.0) + part * one.square(schema)
        elif bounded:
            linear[bounded[0]] += one.square(schema)
        else:
            free += one.square(schema)
    square = norm.bound**2
    return min(whole, free + square * max(linear.values()) + square**2 * max(quadratic.values(), default=0.0))


def largest_distance(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return a bound on the squared L2 distance of two rows' contributions to all blocks."""
    own = math.fsum(
        one.square(schema) * block_distance(one.block, schema) for one in blocks if one.block.of_party
    )
    parts = components([one for one in blocks if not one.block.of_party])
    return (own + math.fsum(_component(part, schema) for part in parts)) * UP


def components(blocks: Sequence[Scaled]) -> Iterator[list[Scaled]]:
    """Yield lists of blocks that share columns, so that different lists have no column in common."""
    groups: list[tuple[set[str], list[Scaled]]] = []
    for one in blocks:
        columns, members = set(one.block.columns), [one]
        rest = []
        for known, others in groups:
            if known & columns:
                columns |= known
                members = others + members
            else:
                rest.append((known, others))
        groups = [*rest, (columns, members)]
    yield from (members for _, members in groups)


def block_distance(block: Block, schema: Schema) -> float:
    """Return a bound on neighbours' squared L2 distance in a block whose greatest value is 1."""
    if block.of_party:
        # a row more changes S^2/n by (n (2 m z - m^2) + z^2) / (n + 1), above -3 and at most 1, for m, z in
        # [-1, 1];
        # a row exchanged by (z' - z)(m + m')
        return 9.0 if schema.relation == "add-remove" else 16.0
    if schema.relation == "add-remove":
        return 1.0
    if block.has_odd_power:
        return 4.0
    if any(selector.cells > 1 for selector in block.selectors):
        return 2.0
    return 1.0 if block.columns else 0.0


def _touched(one: Scaled, schema: Schema) -> int:
    """Return how many entries of a block the rows of one unit in a party can move."""
    each = 1 if schema.relation == "add-remove" else 2
    return min(one.block.cells, each * schema.person_factor)


def _component(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return the smallest known bound on two rows' squared distance in blocks that share columns."""
    bounds = [math.fsum(one.square(schema) * block_distance(one.block, schema) for one in blocks)]
    own = _one_column(blocks, schema)
    if own is not None:
        bounds.append(own)
    listed = _enumerated(blocks, schema)
    if listed is not None:
        bounds.append(listed)
    bounds.append(_by_inner_product(blocks, schema))
    return min(bounds)


def _one_column(blocks: Sequence[Scaled], schema: Schema) -> float | None:
    """Return the greatest squared distance of two rows in sums of one column alone, None for others.

    (z - z')^2 (w1^2 + w2^2 (z + z')^2) grows with |z - z'| at a given z + z', so z or z' is at a bound:
    with s = z + z' in units of the bound it is (2 - s)^2 (w1^2 + w2^2 s^2), 0 <= s <= 2.
    """
    if (
        any(one.block.selectors or one.block.where or len(one.block.powers) > 2 for one in blocks)
        or len(set().union(*(one.block.columns for one in blocks))) > 1
    ):
        return None
    by_degree = [0.0, 0.0, 0.0]
    absent = 0.0
    for one in blocks:
        by_degree[len(one.block.powers)] += one.square(schema)
        absent += one.square(schema) if one.block.columns else 0.0
    first, second = by_degree[1], by_degree[2]
    # the derivative: -2 (2 - s) (w1 + w2 s^2) + 2 w2 s (2 - s)^2 = 0, so s = 2 or 2 w2 s^2 - 2 w2 s + w1 = 0
    candidates = [0.0, 1.0]
    if second > 0 and (inner := 1 - 2 * first / second) >= 0:
        candidates += [(1 + math.sqrt(inner)) / 2, (1 - math.sqrt(inner)) / 2]
    both = max((2 - s) ** 2 * (first + second * s * s) for s in candidates)
    return max(both, absent if any(one.block.present for one in blocks) else 0.0)


def _enumerated(blocks: Sequence[Scaled], schema: Schema) -> float | None:
    """Return a bound on two rows' squared distance by trying all signs, gaps and cells; None if too many.

    For a column: 0 same sign, 1 other sign, 2 missing in one of the rows. For a selector: 0 same cell, 1
    other. For a condition: 0 both rows satisfy it, 1 one does.
    """
    columns = sorted({name for one in blocks for name in (*one.block.powers, *one.block.present)})
    selectors = sorted({selector for one in blocks for selector in one.block.selectors}, key=repr)
    absent = {name for one in blocks for name in one.block.present}
    conditions = list(dict.fromkeys(one.block.where for one in blocks if one.block.where))
    ranges = [3 if name in absent else 2 for name in columns] + [2] * len(selectors + conditions)
    choices = math.prod(ranges)
    if choices > MAX_CHOICES:
        return None
    grid = np.indices(ranges).reshape(len(ranges), -1) if ranges else np.zeros((0, 1), dtype=np.int64)
    state = dict(zip([*columns, *selectors, *conditions], grid, strict=True))
    total = np.zeros(choices)
    for one in blocks:
        total += one.square(schema) * _contribution(one.block, state, choices)
    return float(total.max())


def _contribution(block: Block, state: dict[object, NDArray[np.int64]], choices: int) -> Floats:
    """Return two rows' squared distance in a block, with greatest value 1, for each enumerated case."""
    sign = np.ones(choices)
    for name in block.powers:
        sign *= np.where(state[name] == 1, -1.0, 1.0)
    has_square = len({*block.powers}) < len(block.powers)
    result = np.maximum(2 * (1 - sign), 1.0 if has_square else 0.0)
    for selector in block.selectors:
        result = np.where(state[selector] == 1, 2.0 if selector.cells > 1 else 1.0, result)
    for name in block.present:
        result = np.where(state[name] == 2, 1.0, result)
    return np.where(state[block.where] == 1, 1.0, result) if block.where else result


def _by_inner_product(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return a bound on two rows' squared distance by a bound on their inner product.

    Which sets of blocks are missing in one of the rows is gone through; such a block moves by its norm at
    most.
    """
    plain = [one for one in blocks if not one.block.selectors and len(one.block.powers) <= 2]
    cells = math.fsum(
        one.square(schema) * block_distance(one.block, schema)
        for one in blocks
        if one.block.selectors or len(one.block.powers) > 2
    )
    by_presence: dict[tuple[object, object], list[Scaled]] = {}
    for one in plain:
        by_presence.setdefault((one.block.present, one.block.where), []).append(one)
    always = by_presence.pop(((), ()), [])
    groups = list(by_presence.values())
    if len(groups) > MAX_GROUPS:
        return math.inf
    worst = 0.0
    for absent in itertools.product((False, True), repeat=len(groups)):
        there, gone = list(always), 0.0
        for group, away in zip(groups, absent, strict=True):
            if away:
                gone += _longest(group, schema)
            else:
                there += group
        worst = max(worst, gone + _polar(there, schema))
    return cells + worst


def _polar(blocks: Sequence[Scaled], schema: Schema) -> float:
    """Return a bound on two complete rows' squared distance, by the least eigenvalue of a quadratic form."""
    names = sorted({name for one in blocks for name in one.block.powers})
    index = {name: position for position, name in enumerate(names)}
    quadratic = np.zeros((len(names), len(names)))
    linear = np.zeros(len(names))
    constant, norm = 0.0, _longest(blocks, schema)
    for one in blocks:
        weight = one.square(schema)
        positions = [index[name] for name in one.block.powers]
        if not positions:
            constant += weight
        elif len(positions) == 1:
            linear[positions[0]] += weight
        else:
            quadratic[positions[0], positions[1]] += weight / 2
            quadratic[positions[1], positions[0]] += weight / 2
    if not names:
        return 0.0
    least = float(np.linalg.eigvalsh(quadratic)[0]) - 1e-9 * float(np.abs(quadratic).sum())
    ends = np.minimum(least - linear, least + linear)
    inner = np.full(len(names), np.inf)
    if least > 0:
        centre = -linear / (2 * least)
        inner = np.where(np.abs(centre) <= 1, linear * centre + least * centre**2, np.inf)
    lowest = math.fsum(np.minimum(np.minimum(ends, inner), 0.0))
    if schema.norm is not None and set(names) <= set(schema.norm.columns):
        # sum |u| is at most the squared bound of the norm, so |u| is
        square = schema.norm.bound**2
        lowest = max(lowest, -square * float(linear.max()) + square**2 * min(least, 0.0))
    return 2 * norm - 2 * (constant + lowest)
