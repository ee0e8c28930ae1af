"""Obvious twins: every row of a small schema, and the sums of blocks row by row, in Python integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from smpc_dp.records.features import Block, Lacking
from smpc_dp.records.schema import Number, Schema
from smpc_dp.records.sensitivity import Scaled

Row = dict[str, int | None]


def rows_of(schema: Schema) -> Iterator[Row]:
    """Yield every row: grid points or None of numbers, indices or None of categories."""
    choices: list[list[int | None]] = []
    for column in schema.columns.values():
        if isinstance(column, Number):
            points: list[int | None] = list(range(column.steps + 1))
            choices.append([*points, None] if column.missing else points)
        else:
            choices.append([*range(len(column.values)), None])
    for row in itertools.product(*choices):
        yield dict(zip(schema.columns, row, strict=True))


def features(blocks: Sequence[Scaled], schema: Schema, row: Mapping[str, int | None]) -> list[Fraction]:
    """Return what one row adds to the scaled, not rounded sums."""
    values: list[Fraction] = []
    for one in blocks:
        cells = [Fraction(0)] * one.block.cells
        cell = _cell(one.block, row)
        if cell is not None:
            value = one.scale
            for name in one.block.powers:
                point = row[name]
                column = schema.columns[name]
                assert point is not None
                assert isinstance(column, Number)
                value *= 2 * point - column.steps
            cells[cell] = value
        values += cells
    return values


def _cell(block: Block, row: Mapping[str, int | None]) -> int | None:
    if any(row[name] is None for name in (*block.present, *block.powers)) != isinstance(block, Lacking):
        return None
    for condition in block.where:
        value = row[condition.column]
        if value is None or not any(low <= value <= high for low, high in condition.ranges):
            return None
    cell = 0
    for selector in block.selectors:
        index = row[selector.column]
        if index is None:
            return None
        if selector.thresholds:
            index = sum(threshold <= index for threshold in selector.thresholds) - 1
        cell = cell * selector.cells + index
    return cell


def largest(blocks: Sequence[Scaled], schema: Schema) -> Fraction:
    """Return the square of the largest norm of a row, or of the largest distance of two."""
    listed = {tuple(features(blocks, schema, row)) for row in rows_of(schema)}
    if schema.relation == "add-remove":
        return max(sum((value**2 for value in one), Fraction(0)) for one in listed)
    return max(
        sum(((a - b) ** 2 for a, b in zip(one, other, strict=True)), Fraction(0))
        for one in listed
        for other in listed
    )
