"""Sensitivity: bounds on the distance of neighbouring inputs' values, in three norms at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, get_args

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, is_number
from smpc_dp.privacy.guarantee import Relation
from smpc_dp.values import plain_value

MAX_DIMENSION = 1 << 26
_UP = 1 + 1e-12


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Bounds (L1, L2, Linf) on how far a vector changes between neighbouring inputs.

    Made by `on_integers` or `on_reals`, which derive the other norms from those given.

    Attributes:
        relation: which inputs are neighbours.
        dimension: coordinates of a value.
        l1, l2, linf: bounds on the three norms of v - w.
        integer: whether values are integers (grid steps).
    """

    relation: Relation
    dimension: int
    l1: float
    l2: float
    linf: float
    integer: bool

    @classmethod
    def on_integers(
        cls,
        relation: Relation,
        *,
        dimension: int = 1,
        l1: float | None = None,
        l2: float | None = None,
        linf: float | None = None,
    ) -> Self:
        """Return the bounds for integer vectors, derived from the given norms; ConfigError if invalid."""
        return cls._derived(relation, dimension, l1, l2, linf, integer=True)

    @classmethod
    def on_reals(
        cls,
        relation: Relation,
        *,
        dimension: int = 1,
        l1: float | None = None,
        l2: float | None = None,
        linf: float | None = None,
    ) -> Self:
        """Return the bounds for real vectors, derived from the given norms; ConfigError if invalid."""
        return cls._derived(relation, dimension, l1, l2, linf, integer=False)

    @classmethod
    def _derived(
        cls,
        relation: Relation,
        dimension: int,
        l1: float | None,
        l2: float | None,
        linf: float | None,
        *,
        integer: bool,
    ) -> Self:
        """Return the bounds with the missing norms derived from the given ones; ConfigError if invalid."""
        checks = ArgumentChecks()
        checks.require_integer("dimension", dimension, 1, MAX_DIMENSION)
        checks.require_choice("relation", relation, get_args(Relation))
        given = {"l1": plain_value(l1), "l2": plain_value(l2), "linf": plain_value(linf)}
        least = 1.0 if integer else 0.0
        for name, bound in given.items():
            if bound is not None and not (is_number(bound) and 0 < bound <= 1e15 and bound >= least):
                low = "1" if integer else "above 0"
                checks.add_issue(name, f"must be {low} to 1e15, is {bound!r:.80}", ConfigCheck.RANGE)
        if all(bound is None for bound in given.values()):
            checks.add_issue("sensitivity", "at least one of l1, l2 and linf is needed", ConfigCheck.MISSING)
        checks.raise_issues()
        one, two, most = (math.inf if bound is None else float(bound) for bound in given.values())
        root = math.sqrt(dimension)
        # Two rounds reach the fixed point from any one norm.
        for _ in range(3):
            most = min(most, two, one)
            two = min(two, one, root * most * _UP, math.sqrt(one * most) * _UP)
            one = min(one, root * two * _UP, dimension * most)
            if integer:
                # |x| <= x^2; norms of integer vectors are integers, and so is the square of the l2 norm
                one = _whole(min(one, two * two * _UP))
                most = _whole(most)
                square = _whole(two * two)
                two = math.sqrt(square)
                two = two if two.is_integer() else two * _UP
        return cls(relation, dimension, one, two, most, integer)

    @property
    def coordinates(self) -> int:
        """Greatest number of coordinates that differ between neighbours; all of them for reals."""
        if not self.integer:
            return self.dimension
        return max(1, min(self.dimension, int(self.l1), int(_whole(self.l2 * self.l2))))

    @property
    def shift(self) -> int:
        """Greatest number of grid steps that one coordinate moves; ConfigError for real vectors."""
        if not self.integer:
            raise ConfigError(
                "a shift is counted on integers: put the values on a grid first", ConfigCheck.UNSUPPORTED
            )
        return int(self.linf)

    def on_grid(self, step: float) -> Sensitivity:
        """Return the bounds, in grid steps, for values rounded to multiples of `step`.

        Rounding moves each of two neighbours by at most half a step a coordinate, so their difference by one
        step.
        """
        d = self.dimension
        return Sensitivity.on_integers(
            self.relation,
            dimension=d,
            l1=(self.l1 / step + d) * _UP,
            l2=(self.l2 / step + math.sqrt(d)) * _UP,
            linf=(self.linf / step + 1) * _UP,
        )

    def norms(self) -> dict[str, float]:
        """Return the bounds by name: l1, l2, linf."""
        return {"l1": self.l1, "l2": self.l2, "linf": self.linf}


def _whole(value: float) -> float:
    """Round down to an integer, with allowance for a float just below an integer."""
    return float(math.floor(value * (1 + 1e-9)))
