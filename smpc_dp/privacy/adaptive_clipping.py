"""Adaptive clipping of vectors in a loop of private averages [Andrew, Thakkar, McMahan, Ramaswamy 2021].

A vector is sent divided by the current bound, with one coordinate more: whether its norm was within the
bound. So every request has vectors of length d + 1 and norm 1 at most: its grid, its ring and its mu are the
same, and the new bound, a function of the average, costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, is_number

__all__ = ["AdaptiveClipping"]

# The bound moves by powers of two over this: members that compute it from one average have the same integer.
PARTS = 1024
MAX_PARTS = 512 * PARTS


@dataclass(frozen=True)
class AdaptiveClipping:
    """State of one round of adaptive clipping: the L2 bound, which moves to a quantile of the norms.

    All parties begin with equal states and take `following` of the same average.

    Attributes:
        length: d, of a vector.
        first: the bound of the first round, 1e-100 to 1e12.
        quantile: share of the vectors that should be within the bound, inside (0, 1).
        rate: how far a bound moves: by e^-rate at most in a round, if all are within.
        share: of the square of mu, what the indicator may use, inside (0, 1): it has the sensitivity
            sqrt(share) of the whole vector's, and the vector itself sqrt(1 - share).
        parts: the bound is `first` times 2^(parts / 1024).
        rounds: averages so far.
    """

    length: int
    first: float
    quantile: float = 0.5
    rate: float = 0.2
    share: float = 0.05
    parts: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        checks = ArgumentChecks()
        checks.require_integer("length", self.length, 1, 1 << 40)
        # Such that no bound is 0 or infinite.
        if not is_number(self.first) or not 1e-100 <= self.first <= 1e12:
            reason = f"{self.first!r} is not a number from 1e-100 to 1e12"
            checks.add_issue("first", reason, ConfigCheck.RANGE)
        checks.require_positive("rate", self.rate, 10.0)
        for name in ("quantile", "share"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < 1:
                checks.add_issue(name, f"{value!r} is not a number inside (0, 1)", ConfigCheck.RANGE)
        checks.require_integer("parts", self.parts, -MAX_PARTS, MAX_PARTS)
        checks.require_integer("rounds", self.rounds, 0, 1 << 40)
        checks.raise_issues()

    @property
    def bound(self) -> float:
        """L2 norm to which parties clip their vectors in this round."""
        return self.first * math.pow(2.0, self.parts / PARTS)

    @property
    def parameters(self) -> dict[str, object]:
        """Session parameters for these rounds (length and L2 bound), without epsilon and delta."""
        return {"length": self.length + 1, "l2_bound": 1.0}

    @property
    def label(self) -> str:
        """Label of this round's request, equal for parties with equal bounds and settings."""
        bound = f"{self.first:.17g} * 2^({self.parts}/{PARTS})"
        return f"clipping: round {self.rounds + 1}, {bound}, share {self.share:.17g}"

    def mu_shares(self, mu: float) -> tuple[float, float]:
        """Return mu of the clipped vector and mu of the indicator; their squares add up to that of `mu`."""
        return math.sqrt(1 - self.share) * mu, math.sqrt(self.share) * mu

    def clip(self, vector: ArrayLike, party: str = "vector") -> NDArray[np.float64]:
        """Return the message: vector clipped to norm at most 1, then +/- whether it was within the bound.

        Raises ConfigError unless the vector has `length` finite numbers.
        """
        values = np.asarray(vector)
        if values.shape != (self.length,) or values.dtype.kind not in "fiu":
            reason = f"{party}: {values.dtype} {values.shape}, not {self.length} numbers"
            raise ConfigError.at("vector", reason, ConfigCheck.SHAPE)
        values = values.astype(np.float64)
        if not np.isfinite(values).all():
            raise ConfigError.at("vector", f"{party}: has a value that is not finite", ConfigCheck.RANGE)
        # Scaled first: squares of large values have no float.
        largest = float(np.abs(values).max())
        norm = largest * float(np.linalg.norm(values / largest)) if largest else 0.0
        within = norm <= self.bound
        scaled = values / self.bound if within else values / norm
        # A session refuses a norm above 1, by a rounding too.
        below = 1 - 2.0**-40
        indicator = math.sqrt(self.share) * (1.0 if within else -1.0)
        return np.append(math.sqrt(1 - self.share) * scaled, indicator) * below

    def mean(self, average: ArrayLike) -> NDArray[np.float64]:
        """Extract the mean of the clipped vectors from the secure average of this round."""
        return self._checked(average)[:-1] * (self.bound / math.sqrt(1 - self.share))

    def within(self, average: ArrayLike) -> float:
        """Extract the share of vectors within the bound from the average; noise may leave [0, 1]."""
        return float(self._checked(average)[-1] / math.sqrt(self.share) + 1) / 2

    def following(self, average: ArrayLike) -> Self:
        """Return the state of the next round, its bound moved towards the quantile by this average.

        A failed request has no next round: another attempt has the same bound and another charge.
        """
        share = min(max(self.within(average), 0.0), 1.0)
        moved = self.parts - round(self.rate * (share - self.quantile) * PARTS / math.log(2))
        parts = min(max(moved, -MAX_PARTS), MAX_PARTS)
        return replace(self, parts=parts, rounds=self.rounds + 1)

    def _checked(self, average: ArrayLike) -> NDArray[np.float64]:
        """Return a round's average as floats of shape (length + 1,); raise ConfigError otherwise."""
        values = np.asarray(average, dtype=np.float64)
        if values.shape != (self.length + 1,) or not np.isfinite(values).all():
            reason = f"has shape {values.shape}, or values that are not finite: {self.length + 1} are needed"
            raise ConfigError.at("average", reason, ConfigCheck.SHAPE)
        return values
