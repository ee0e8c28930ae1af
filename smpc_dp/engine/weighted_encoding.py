"""Encoding of a private vector with its private weight: one vector of a bounded norm, and their ratio.

With s = w/W in [0, 1], m the middle of the bounds and R the largest norm of x - m, a party sends
(s (x - m), R (s - 1)). Its squared norm is at most R^2 (s^2 + (1 - s)^2) <= R^2: the noise for vectors alone
covers the weight too, which stays as secret as the vector. The weighted average is m plus a ratio of sums.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from smpc_dp import ball
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.records.intervals import fieller, normal_quantile, within

# The half diagonal of a box is rounded up by this.
_UPWARDS = 1 + 1e-12


class WeightedEncoding(Encoding, frozen=True, kw_only=True):
    """Encoding of vectors multiplied by secret weights from 0 to `max_weight`, with the weights beside.

    `radius` is R, in the caller's unit. A ring vector has one element more than a vector.
    """

    given: Encoding
    radius: float

    @classmethod
    def of(cls, encoding: Encoding) -> Encoding:
        """Return an encoding with weights added, unchanged if it has none; ConfigError for integers.

        Raises ConfigError for vectors of integers, whose averages are none.
        """
        if not encoding.max_weight:
            return encoding
        if encoding.integer:
            reason = "must be 'real' with max_weight: a weighted average is no integer"
            raise ConfigError.at("kind", reason, ConfigCheck.UNSUPPORTED)
        values = asdict(encoding)
        given = Encoding(**{**values, "max_weight": 0})
        radius = encoding.l2_bound
        if radius is None:
            low, high = (np.broadcast_to(side, given.length) for side in given.bounds)
            radius = float(np.linalg.norm((high - low) / 2)) * _UPWARDS
        steps = math.isqrt(ball.squared_limit(radius, encoding.fractional_bits))
        return cls(**{**values, "lowest": -steps, "highest": steps}, given=given, radius=radius)

    @property
    def widths(self) -> list[int]:
        """The greatest distance in any coordinate, in grid steps: one number for all of them."""
        return [2 * self.highest]

    @property
    def diameter(self) -> float:
        """The greatest L2 distance of two encoded vectors, in grid steps, rounded up."""
        return 2 * math.sqrt(ball.squared_limit(self.radius, self.fractional_bits)) * (1 + 1e-15)

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that private weights allow: the average alone."""
        return ("average",)

    def average_error(self, error: float) -> tuple[float, float, str]:
        """Return the error of an average at greatest weights, its range, and words that say so.

        The smaller the weights, the larger it is.
        """
        return math.sqrt(2) * error, self.given.average_error(0.0)[1], "if every weight is max_weight"

    @property
    def middle(self) -> NDArray[np.float64]:
        """The middle of each coordinate's range, which is subtracted before weighting; 0 in a ball."""
        if self.l2_bound is not None:
            return np.zeros(1)
        low, high = self.bounds
        return np.atleast_1d((low + high) / 2)

    @property
    def coordinates(self) -> Encoding:
        """The encoding of the vectors without their weights."""
        return self.given

    def weigh(self, ring_vector: RingVector, weight: float | None, party: str) -> RingVector:
        """Return the vector centred, times weight / max_weight, with the weight's coordinate added."""
        share = self._checked_weight(weight, party) / self.max_weight
        values = self.given.real(ring_vector.astype(np.int64) + np.int64(self.given.lowest)) - self.middle
        both = np.append(share * values, self.radius * (share - 1))
        grid, _ = ball.on_grid(both, self.radius, self.fractional_bits)
        return (grid - np.int64(self.lowest)).astype(self.dtype)

    def _sums(self, grid: NDArray[np.int64], contributors: int) -> tuple[NDArray[np.float64], float]:
        """Return a total's sum of weighted, centred vectors, and its sum of weights (each 0 to 1)."""
        real = self.real(grid)
        return real[:-1], float(real[-1]) / self.radius + contributors

    def averages(self, total: GridTotal, weight: int, *, noisy: bool) -> NDArray[np.float64]:
        """Return the weighted averages that a total gives; `weight` is the number of contributors."""
        return self.average(total.values, weight, noisy=noisy)

    def average(
        self,
        grid: NDArray[np.int64],
        weight: int,
        *,
        noisy: bool,  # noqa: ARG002 - its sums always are
    ) -> NDArray[np.float64]:
        """Return the weighted average, clipped to the bounds, from the total on the grid.

        Where noise makes the sum of the weights negative it is the middle of the bounds.
        """
        top, below = self._sums(grid, weight)
        values = top / below if below > 0 else np.zeros_like(top)
        if self.l2_bound is not None:
            return np.asarray(values / max(1.0, ball.norm(values) / self.l2_bound))
        return np.asarray(np.clip(values + self.middle, *self.bounds), np.float64)

    def total_weight(self, grid: NDArray[np.int64], contributors: int) -> int:
        """Return the rounded sum of the weights (with noise, if there is any) from the total."""
        return round(self._sums(grid, contributors)[1] * self.max_weight)

    def error(self, grid: NDArray[np.int64], contributors: int, deviation: float) -> float:
        """Return the greatest standard error of a coordinate, to first order, at most the widest range.

        `deviation`: of the noise of each coordinate, in the caller's unit.
        """
        top, below = self._sums(grid, contributors)
        low, high = self._limits()
        widest = float(np.max(high - low))
        if below <= 0:
            return widest
        ratio = float(np.abs(top).max()) / below
        return min(widest, deviation * math.hypot(1, ratio / self.radius) / below)

    def interval(
        self, grid: NDArray[np.int64], contributors: int, deviation: float, level: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Fieller's confidence interval of each coordinate's average, within the bounds."""
        top, below = self._sums(grid, contributors)
        z, deviation = normal_quantile(1 - level), deviation + contributors * self.step
        low, high = (np.broadcast_to(side, self.length) for side in self._limits())
        middle = np.broadcast_to(self.middle, self.length)
        ends = [
            within(fieller(float(one), deviation, below, deviation / self.radius, z), least, most)
            for one, least, most in zip(top, low - middle, high - middle, strict=True)
        ]
        result = np.array(ends, np.float64).reshape(-1, 2) + middle[:, None]
        return result[:, 0], result[:, 1]

    def _limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return arrays of the least and the greatest values of an average, by coordinate or for all."""
        if self.l2_bound is not None:
            return np.array([-self.l2_bound]), np.array([self.l2_bound])
        low, high = self.bounds
        return np.atleast_1d(low).astype(np.float64), np.atleast_1d(high).astype(np.float64)
