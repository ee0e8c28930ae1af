"""Privacy of Gaussian noise and of discrete Laplace noise, seen together [docs/proofs/records.md]."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from smpc_dp_verify.gaussian import gaussian_delta
from smpc_dp_verify.losses import ALLOWANCE, DIGITS, STEP, Grid

# How far logarithms of the density of discrete Gaussian noise are from those of continuous noise at most,
# over all coordinates, for shares of this variance and above [docs/proofs/accounting.md].
NEAR, LEAST_VARIANCE = 1e-9, 64
# Of more different moves the sum alone counts.
MOST_MOVES = 64


class LaplaceLosses:
    """Losses of discrete Laplace noise in coordinates that move so far, or by `l1` together, on a grid.

    `scale`: of the noise. `moves`: of each coordinate that moves; empty: their sum alone is known.
    """

    def __init__(self, scale: int, moves: Sequence[int], l1: int) -> None:
        self.scale, self.l1 = scale, l1
        self.moves = Counter(moves) if len({*moves}) <= MOST_MOVES else Counter()

    @cached_property
    def _chances(self) -> list[tuple[float, float]]:
        """Losses, rounded up to the grid, with their probabilities."""
        if self.moves:
            grid = Grid()
            for move, count in sorted(self.moves.items()):
                grid = grid.then(Grid.of(self._of(move), 0.0).times(count))
        else:
            epsilon = self.l1 / self.scale
            chance = 1 / (1 + math.exp(-epsilon))
            grid = Grid.of([(epsilon, chance), (-epsilon, 1 - chance)], 0.0)
        return [(at * STEP, mass / 10**DIGITS) for at, mass in grid.cells]

    def _of(self, move: int) -> list[tuple[float, float]]:
        """Return the losses of noise against noise that is moved."""
        ratio = math.exp(-1 / self.scale)
        whole = (move / self.scale, 1 / (1 + ratio))
        least = (-move / self.scale, math.exp(-move / self.scale) / (1 + ratio))
        part = -math.expm1(-1 / self.scale) / (1 + ratio)
        inner = (((move - 2 * at) / self.scale, part * math.exp(-at / self.scale)) for at in range(1, move))
        return [whole, *inner, least]

    def delta(self, mu: float, epsilon: float) -> float:
        """Return delta at epsilon of this noise together with a Gaussian shift, rounded up."""
        inner = epsilon - NEAR
        if inner < 0:
            return 1.0
        shown = math.fsum(chance * gaussian_delta(inner - loss, mu) for loss, chance in self._chances)
        return min(1.0, math.exp(NEAR) * (shown + ALLOWANCE))
