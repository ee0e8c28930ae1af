"""How far apart neighbouring vectors are on the grid, and what the honest users' coins show of that.

In a box every coordinate may move by `steps`, and the binomial's masses are summed. In a ball the squares of
the moves sum to `squared`; what is shown is then bounded by a Rényi divergence (docs/verifiable-plan.md,
"A bound on the norm").
"""

from __future__ import annotations

import math

import msgspec

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.accountant.events import Event, Line, Renyi, Shift
from smpc_dp.privacy.laws import BinomialLaw

# Floating point loses less than this, relatively.
_MARGIN = 1 + 1e-12


class Reach(msgspec.Struct, frozen=True):
    """Neighbouring vectors of one user: `length` coordinates, each at most `steps` apart.

    Attributes:
        squared: what the squares of the distances of all coordinates sum to, at most.
        ball: whether that says more than `length` times `steps` squared.
        tail: probability, at most, that the bound of a ball leaves out; part of delta.
    """

    length: int
    steps: int
    squared: int
    ball: bool
    tail: float

    @classmethod
    def of(cls, length: int, steps: int, bound_squared: int | None, tail: float) -> Reach:
        """Return the reach of coordinates in ranges of `steps`, or, if given, of squares that sum to a bound.

        One coordinate of bounded norm is a range.
        """
        if bound_squared is None:
            return cls(length, steps, length * steps**2, False, 0.0)
        steps = 2 * math.isqrt(bound_squared)
        if length == 1:
            return cls(1, steps, steps**2, False, 0.0)
        return cls(length, steps, 4 * bound_squared, True, tail)

    def rho(self, coins: int) -> float:
        """Return rho, so that the Rényi divergence of order alpha is at most rho alpha; infinite if unknown.

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
        """Return what the total shows, and `more` epsilon beside it.

        Raises ConfigError if the coins are too few for the ball's bound to hold at all.
        """
        if not self.ball:
            shift = Shift(BinomialLaw(bits), honest, self.steps, self.length, self.length, more)
            return Event(mechanism, "substitution", (shift,))
        rho = self.rho(honest * bits)
        if rho == math.inf:
            raise ConfigError([Fault("bits", f"{bits} are too few for moves of {self.steps} steps")])
        bound = Renyi((Line(more, rho),), all_orders=True)
        return Event(mechanism, "substitution", (bound,), self.tail)
