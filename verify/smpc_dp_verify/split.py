"""How far a row moves the sums of all blocks [docs/proofs/records.md]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from smpc_dp_verify.columns import Block, Norm, Table
from smpc_dp_verify.errors import TooMany

UP = 1 + 1e-9
MOST_CHOICES, MOST_GROUPS = 100_000, 10
# Changes of blocks, and products of a part's eigenvalues in all choices of absent groups: what takes seconds.
MOST_WORK = 1 << 22
# Sweeps of Jacobi's rotations.
SWEEPS = 60
Amount = TypeVar("Amount", float, Fraction)


class Scaled(NamedTuple):
    """A block with the factor by which its sums are multiplied before they are rounded."""

    block: Block
    scale: Fraction

    @property
    def is_rounded(self) -> bool:
        """Whether the block's scaled sums may be no integers, so that they are rounded."""
        return self.scale.denominator > 1 or self.block.of_party


def distance(block: Block, table: Table) -> float:
    """Return d_b: the greatest squared distance of neighbours in a block, if its greatest value is 1."""
    if block.of_party:
        return 16.0 if table.public else 9.0
    if not table.public:
        return 1.0
    if block.has_odd_power:
        return 4.0
    if any(one.cells > 1 for one in block.selectors):
        return 2.0
    return float(bool(block.columns))


def of_a_row(block: Block, table: Table) -> int:
    """Return how far two neighbours are apart in L1 in a block whose greatest value is 1."""
    several = block.has_odd_power or any(one.cells > 1 for one in block.selectors)
    return 2 if table.public and several else 1


def together_or_lacking(blocks: Iterable[Block]) -> list[tuple[list[Block], list[Block]]]:
    """Return, by columns, the blocks of complete rows and of rows that lack a value, where there are both."""
    sides: dict[tuple[str, ...], tuple[list[Block], list[Block]]] = {}
    for block in blocks:
        sides.setdefault(block.present, ([], []))[block.lacking].append(block)
    return [(together, lacking) for together, lacking in sides.values() if together and lacking]


def of_one_row(amounts: Mapping[Block, Amount]) -> Amount:
    """Return the sum over blocks of what a row adds to each at most ["Rows that lack a value"]."""
    whole = sum(amounts.values(), start=type(next(iter(amounts.values())))(0))
    for sides in together_or_lacking(amounts):
        whole -= min(sum(amounts[block] for block in side) for side in sides)
    return whole


class Moves:
    """Bounds on how far one unit's data can move a request's vector ["Sensitivity of a row"]."""

    def __init__(self, blocks: Sequence[Block], table: Table, most_work: float = MOST_WORK) -> None:
        """`most_work`: TooMany is raised for blocks whose bounds take more work than that."""
        self.table, self._most_work = table, most_work
        self.parts = _parts([block for block in blocks if not block.of_party]) if table.public else []
        self.choices = [_choices(part, most_work) for part in self.parts]

    def furthest(self, one: Scaled) -> int:
        """Return the greatest change of one coordinate of a block by one unit at one party, in steps."""
        most = self.table.rows_of_unit * one.scale * self.table.greatest(one.block)
        if one.block.of_party:
            return math.ceil(most * (4 if self.table.public else 3))
        return math.ceil(most * (2 if one.block.has_odd_power and self.table.public else 1))

    def of_a_row(self, blocks: Sequence[Scaled]) -> list[int]:
        """Return bounds on all changes that one row can cause; [] if a unit may have several rows."""
        table = self.table
        if table.rows_of_unit * table.parties_of_unit > 1:
            return []
        moves = list(map(self.furthest, blocks))
        if table.public:
            moves += [
                math.ceil(one.scale * table.greatest(one.block)) for one in blocks if one.block.cells > 1
            ]
        return [max(1, move) for move in moves]

    def of_each_block(self, blocks: Sequence[Scaled]) -> list[int]:
        """Return how far each block moves in one coordinate; none where a unit moves several of a block."""
        table, is_exchanged = self.table, self.table.public and any(one.block.cells > 1 for one in blocks)
        if is_exchanged or table.rows_of_unit * table.parties_of_unit > 1:
            return []
        moves = {one.block: max(1, self.furthest(one)) for one in blocks}
        for sides in together_or_lacking(moves):
            ordered = [sorted((moves.pop(block) for block in side), reverse=True) for side in sides]
            pairs = itertools.zip_longest(*ordered, fillvalue=0)
            moves |= dict(zip(itertools.chain(*sides), itertools.starmap(max, pairs), strict=False))
        return [*moves.values()]

    def l1(self, blocks: Sequence[Scaled]) -> int:
        """Return how far a unit moves the vector in L1."""
        table = self.table
        rows = of_one_row(
            {one.block: one.scale * table.greatest(one.block) * of_a_row(one.block, table) for one in blocks}
        )
        whole = table.parties_of_unit * (math.ceil(table.rows_of_unit * rows) + self._touched(blocks))
        # rounding moves one coordinate no further than it may move
        furthest = max(1, table.parties_of_unit * max(map(self.furthest, blocks)))
        return min(whole, sum(one.block.cells for one in blocks) * furthest)

    def _touched(self, blocks: Sequence[Scaled]) -> int:
        """Return how many coordinates that are rounded the rows of a unit in one party can move."""
        each = (2 if self.table.public else 1) * self.table.rows_of_unit
        return sum(min(one.block.cells, each) for one in blocks if one.is_rounded)

    def norms(self, blocks: Sequence[Scaled]) -> tuple[float, int]:
        """Return bounds on the L2 norm and the largest coordinate of a unit's change, as integers allow."""
        table, square, touched = self.table, self._square(blocks), self._touched(blocks)
        l2 = table.parties_of_unit * (table.rows_of_unit * math.sqrt(square) + math.sqrt(touched)) * UP
        most = max(1, table.parties_of_unit * max(map(self.furthest, blocks)))
        return of_integers(max(1.0, l2), float(most), sum(one.block.cells for one in blocks))

    def _square(self, blocks: Sequence[Scaled]) -> float:
        """Return a bound on the squared L2 norm of a row, or of the difference of two if rows are public."""
        table = self.table
        squares = {one.block: float(one.scale * table.greatest(one.block)) ** 2 for one in blocks}
        own = math.fsum(w * distance(block, table) for block, w in squares.items() if block.of_party)
        if not table.public:
            rows = [(block, w) for block, w in squares.items() if not block.of_party]
            return (own + _longest(rows, table.norm)) * UP
        parts = zip(self.parts, self.choices, strict=True)
        return (own + math.fsum(self._of_part(part, choices, squares) for part, choices in parts)) * UP

    def _of_part(
        self, part: list[Block], choices: set[tuple[float, ...]] | None, squares: dict[Block, float]
    ) -> float:
        weights = [squares[block] for block in part]
        bounds = [math.fsum(w * distance(block, self.table) for w, block in zip(weights, part, strict=True))]
        columns = frozenset[str]().union(*(block.columns for block in part))
        is_plain = not any(block.selectors or block.where or len(block.powers) > 2 for block in part)
        if is_plain and len(columns) <= 1:
            bounds.append(_of_one_column(part, weights))
        if choices is not None:
            bounds.append(max(math.fsum(map(float.__mul__, weights, choice)) for choice in choices))
        bounds.append(self._by_inner_product(part, weights))
        return min(bounds)

    def _by_inner_product(self, part: list[Block], weights: list[float]) -> float:
        pairs = [*zip(part, weights, strict=True)]
        others = [(block, w) for block, w in pairs if block.selectors or len(block.powers) > 2]
        cells = math.fsum(w * distance(block, self.table) for block, w in others)
        groups: dict[tuple[object, object], list[tuple[Block, float]]] = {}
        for block, w in pairs:
            if not block.selectors and len(block.powers) <= 2:
                groups.setdefault((block.present, block.where), []).append((block, w))
        always, worst = groups.pop(((), ()), []), 0.0
        if len(groups) > MOST_GROUPS:
            return math.inf
        names = {
            name
            for block, _ in pairs
            if not block.selectors and len(block.powers) <= 2
            for name in block.powers
        }
        if len(names) ** 3 << len(groups) > self._most_work:
            raise TooMany("the number of blocks with a column in common")
        for absent in itertools.product((False, True), repeat=len(groups)):
            there, gone = list(always), 0.0
            for group, is_away in zip(groups.values(), absent, strict=True):
                gone += _longest(group, self.table.norm) if is_away else 0.0
                there += [] if is_away else group
            worst = max(worst, gone + _polar(there, self.table.norm))
        return cells + worst


def of_integers(l2: float, most: float, coordinates: int) -> tuple[float, int]:
    """Return bounds on norms of an integer vector, tightened from the bounds for real vectors."""
    for _ in range(3):
        most = float(math.floor(min(most, l2) * UP))
        l2 = min(l2, math.sqrt(coordinates) * most * (1 + 1e-12))
        square = math.floor(l2 * l2 * UP)
        l2 = math.sqrt(square)
        l2 = l2 if l2.is_integer() else l2 * (1 + 1e-12)
    return l2, int(most)


def _parts(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks in groups, such that blocks of different groups have no column in common."""
    parts: list[tuple[frozenset[str], list[Block]]] = []
    for block in blocks:
        columns, members, others = block.columns, [block], []
        for known, part in parts:
            if known & columns:
                columns |= known
                members = part + members
            else:
                others.append((known, part))
        parts = [*others, (columns, members)]
    return [members for _, members in parts]


def _choices(part: list[Block], most_work: float) -> set[tuple[float, ...]] | None:
    """Return the relative changes of all blocks for each choice of signs and cells; None if too many.

    Raises TooMany if so many changes of so many blocks take too long.
    """
    columns = sorted({name for block in part for name in (*block.powers, *block.present)})
    selectors = sorted({one for block in part for one in block.selectors})
    absent = {name for block in part for name in block.present}
    conditions = [*dict.fromkeys(block.where for block in part if block.where)]
    ranges = [range(3 if name in absent else 2) for name in columns]
    ranges += [range(2)] * len([*selectors, *conditions])
    choices = math.prod(map(len, ranges))
    if choices > MOST_CHOICES:
        return None
    if choices * len(part) > most_work:
        raise TooMany("the number of blocks with a column in common")
    keys: list[object] = [*columns, *selectors, *conditions]
    result = set()
    for choice in itertools.product(*ranges):
        state = dict(zip(keys, choice, strict=True))
        result.add(tuple(_moved(block, state) for block in part))
    return result


def _moved(block: Block, state: dict[object, int]) -> float:
    is_out = block.where and state[block.where] == 1
    if is_out or any(state[name] == 2 for name in block.present):
        return 1.0
    others = [one for one in block.selectors if state[one] == 1]
    if others:
        return 2.0 if others[-1].cells > 1 else 1.0
    sign = math.prod(-1 if state[name] == 1 else 1 for name in block.powers)
    return max(2.0 * (1 - sign), float(len({*block.powers}) < len(block.powers)))


def _of_one_column(part: list[Block], weights: list[float]) -> float:
    """Return the exact greatest weighted squared change of sums of z, z^2 and presence of one column."""
    by_degree = [0.0, 0.0, 0.0]
    for block, w in zip(part, weights, strict=True):
        by_degree[len(block.powers)] += w
    _, first, second = by_degree
    candidates = [0.0, 1.0]
    if second > 0 and (inner := 1 - 2 * first / second) >= 0:
        candidates += [(1 + math.sqrt(inner)) / 2, (1 - math.sqrt(inner)) / 2]
    both = max((2 - s) ** 2 * (first + second * s * s) for s in candidates)
    absent = math.fsum(w for block, w in zip(part, weights, strict=True) if block.columns)
    return max(both, absent if any(block.present for block in part) else 0.0)


def _longest(blocks: list[tuple[Block, float]], norm: Norm | None) -> float:
    """Return an upper bound on the squared L2 norm of a row in these weighted blocks."""
    if not blocks:
        return 0.0
    whole = of_one_row(dict(blocks))
    if norm is None:
        return whole
    # by the columns of a block that the norm is of: of none, of one, of two
    parts: tuple[dict[tuple[str, ...], float], ...] = ({}, {}, {})
    for block, w in blocks:
        powers = () if block.influence is not None else block.powers
        names = tuple(name for name in powers if name in norm.columns)
        # of more factors the others are 1 at most
        names = names if len(names) <= 2 else names[:1]
        part = parts[len(names)]
        part[names] = part.get(names, 0.0) + (w / 2 if len({*names}) == 2 else w)
    free, linear, quadratic = (max(part.values(), default=0.0) for part in parts)
    return min(whole, free + norm.square * linear + norm.square**2 * quadratic)


def _polar(blocks: list[tuple[Block, float]], norm: Norm | None) -> float:
    """Return a bound on the squared distance of two rows: twice the longest less twice their product."""
    names = sorted({name for block, _ in blocks for name in block.powers})
    size = len(names)
    if not size:
        return 0.0
    matrix = [[0.0] * size for _ in names]
    linear, constant = [0.0] * size, 0.0
    for block, w in blocks:
        at = [names.index(name) for name in block.powers]
        if not at:
            constant += w
        elif len(at) == 1:
            linear[at[0]] += w
        else:
            matrix[at[0]][at[1]] += w / 2
            matrix[at[1]][at[0]] += w / 2
    least = _least_eigenvalue(matrix) - 1e-9 * math.fsum(abs(value) for row in matrix for value in row)
    lowest = []
    for slope in linear:
        ends = [least - slope, least + slope, 0.0]
        if least > 0 and abs(slope) <= 2 * least:
            ends.append(-slope * slope / (4 * least))
        lowest.append(min(ends))
    reached = math.fsum(lowest)
    if norm is not None and {*names} <= norm.columns:
        reached = max(reached, norm.square**2 * min(least, 0.0) - norm.square * max(linear))
    return 2 * _longest(blocks, norm) - 2 * (constant + reached)


def _least_eigenvalue(matrix: list[list[float]]) -> float:
    """Return the least eigenvalue of a symmetric matrix, by Jacobi's rotations."""
    a, size = [list(row) for row in matrix], len(matrix)
    whole = math.fsum(value * value for row in a for value in row)
    for _ in range(SWEEPS):
        if math.fsum(a[i][j] ** 2 for i in range(size) for j in range(i)) <= 1e-32 * whole:
            break
        for p, q in itertools.combinations(range(size), 2):
            if a[p][q] == 0:
                continue
            angle = math.atan2(2 * a[p][q], a[q][q] - a[p][p]) / 2
            c, s = math.cos(angle), math.sin(angle)
            for row in a:
                row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
            a[p], a[q] = (
                [c * x - s * y for x, y in zip(a[p], a[q], strict=True)],
                [s * x + c * y for x, y in zip(a[p], a[q], strict=True)],
            )
    return min(a[i][i] for i in range(size))
