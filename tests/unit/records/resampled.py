"""Samples of a table that is read once, and releases of their sums with noise, for thousands of releases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block
from smpc_dp.records.intervals import NORMAL, ErrorDistribution
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import Schema
from smpc_dp.records.table import Table, read_table


@dataclass(frozen=True)
class Population:
    """Rows of which samples are drawn with replacement.

    `together`: columns that are drawn with each other; the others are drawn independently, each by itself.
    """

    table: Table
    together: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(
        cls, rows: dict[str, Any], schema: Schema, together: tuple[tuple[str, ...], ...] = ()
    ) -> Population:
        return cls(read_table(rows, schema), together)

    def draw(self, rng: np.random.Generator, size: int) -> Table:
        """Return a sample of so many independent rows."""
        chosen: dict[str, Any] = {}
        for names in (*self.together, *((name,) for name in self.table.codes)):
            index = rng.integers(0, self.table.rows, size)
            for name in names:
                chosen.setdefault(name, index)
        read: dict[str, Any] = {
            key: {name: values[chosen[name]] for name, values in getattr(self.table, key).items()}
            for key in ("codes", "present", "given", "above")
        }
        return replace(self.table, **read, counted=self.table.counted[:size], rows=size)


class Release:
    """Answers to questions from the sums of a table, each with independent noise of one deviation.

    `noise`: of a count, in rows; of other sums times the greatest value of a row.
    """

    def __init__(
        self, text: str, schema: Schema, noise: float, law: ErrorDistribution = NORMAL, hide: float = 3.0
    ) -> None:
        self._schema, self._law, self._display = schema, law, Display(0.05, hide)
        self._asked = [(one, statistic_of(one)) for one in read_ask(text, schema)]
        blocks = [
            block
            for one, statistic in self._asked
            for term in statistic.terms(one, schema)
            for block in term.every
        ]
        self._deviations = {block: noise * block.greatest(schema) for block in blocks}

    def sums(self, table: Table) -> dict[Block, NDArray[np.float64]]:
        """Return the exact sums of a table, by block."""
        return {block: np.array(block.sums(table), dtype=np.float64) for block in self._deviations}

    def answers(self, sums: dict[Block, NDArray[np.float64]], rng: np.random.Generator) -> list[Estimate]:
        """Return all answers from sums with noise that is drawn anew."""
        return self.exact(
            {block: values + self._drawn(block, len(values), rng) for block, values in sums.items()}
        )

    def exact(self, sums: dict[Block, NDArray[np.float64]]) -> list[Estimate]:
        """Return all answers from sums that are said to have the noise, as they are."""
        blocks = {block: (values, self._deviations[block]) for block, values in sums.items()}
        laws = {} if self._law.is_normal else dict.fromkeys(blocks, self._law)
        noisy = NoisySums(self._schema, blocks, laws, 3)
        return [
            made for one, statistic in self._asked for made in statistic.estimates(one, noisy, self._display)
        ]

    def _drawn(self, block: Block, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        normal = self._law.is_normal
        drawn = rng.standard_normal(size) if normal else rng.laplace(0, math.sqrt(0.5), size)
        return np.asarray(self._deviations[block] * drawn)
