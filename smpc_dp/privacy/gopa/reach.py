"""Distance of neighbouring vectors on the grid, and the privacy loss of the honest parties' coins for it.

In a box every coordinate may move by the width of its range, and the binomial's masses are summed. In a ball
the squares of the moves sum to `squared`; the loss is then bounded by a Rényi divergence, and so in a
box of very many different widths (docs/proofs/verifiable-plan.md, "A bound on the norm").
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event, Line, Renyi, Shift, Shifts
from smpc_dp.privacy.distributions import BinomialDistribution

# So many different widths of a box are composed exactly.
MOST_WIDTHS = 16
# Floating point loses less than this, relatively.
_MARGIN = 1 + 1e-12


class Reach(msgspec.Struct, frozen=True):
    """Bounds on how far one party's vector can change between neighbours, in grid steps, for privacy.

    Attributes:
        length: coordinates of a vector.
        steps: bound on the distance of each coordinate.
        squared: bound on the sum of the squares of all coordinates' distances.
        ball: whether only that, and `steps`, is taken into account.
        tail: probability, at most, that the bound of a ball leaves out; part of delta.
        moves: (steps, coordinates): so many coordinates are at most so many steps apart. Of a ball, empty.
    """

    length: int
    steps: int
    squared: int
    ball: bool
    tail: float
    moves: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        length: int,
        steps: int,
        bound_squared: int | None,
        tail: float,
        widths: Sequence[int] | None = None,
    ) -> Reach:
        """Return the bounds for coordinates with ranges of `steps`, or for a bound on the sum of squares.

        `widths` are those of the ranges if they differ; `steps` is the widest then. One coordinate of bounded
        norm is a range.
        """
        if widths is not None:
            moves = tuple(sorted(Counter(widths).items()))
            squared = sum(width * width * coordinates for width, coordinates in moves)
            if len(moves) > MOST_WIDTHS:
                return cls(length, steps, squared, True, tail)
            return cls(length, steps, squared, False, 0.0, moves)
        if bound_squared is None:
            return cls(length, steps, length * steps**2, False, 0.0, ((steps, length),))
        steps = 2 * math.isqrt(bound_squared)
        if length == 1:
            return cls(1, steps, steps**2, False, 0.0, ((steps, 1),))
        return cls(length, steps, 4 * bound_squared, True, tail)

    def rho(self, coins: int) -> float:
        """Return rho of zCDP with binomial noise of `coins` fair coins a coordinate; infinite if unproven.

        Of the sum of `coins` fair coins in each coordinate, moved within the ball, but for probability
        `tail`: rho = 2 gamma^2 squared / (coins + 1), gamma = 1/(1 - u^2),
        u = (2 W + 2 steps - 1) / (coins + 1), W = sqrt(coins ln(moved/tail) / 2), where at most
        moved = min(length, squared) coordinates move.
        """
        moved = min(self.length, self.squared)
        width = math.sqrt(coins * math.log(moved / self.tail) / 2)
        u = (2 * width + 2 * self.steps - 1) / (coins + 1)
        if u >= 1:
            return math.inf
        return 2 * self.squared / (coins + 1) / (1 - u * u) ** 2 * _MARGIN

    def event(self, mechanism: str, honest: int, bits: int, more: float = 0.0) -> Event:
        """Return the release of a total with binomial noise as an event; ConfigError for too few coins.

        Raises ConfigError if the coins are too few for the ball's bound to hold at all.
        """
        distribution = BinomialDistribution(bits)
        if len(self.moves) == 1:
            shift = Shift(distribution, honest, self.steps, self.length, self.length, more)
            return Event(mechanism, "substitution", (shift,))
        if self.moves:
            return Event(mechanism, "substitution", (Shifts(distribution, honest, self.moves, more),))
        rho = self.rho(honest * bits)
        if rho == math.inf:
            raise ConfigError.at(
                "bits", f"{bits} are too few for moves of {self.steps} steps", ConfigCheck.RANGE
            )
        bound = Renyi((Line(more, rho),), all_orders=True)
        return Event(mechanism, "substitution", (bound,), self.tail)
