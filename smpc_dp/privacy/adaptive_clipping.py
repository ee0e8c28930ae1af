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
    """The bound of one round, which goes towards a quantile of the norms of the parties' vectors.

    All parties begin with equal ones and take `following` of the same average.

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
        """The bound on the L2 norm of a vector in this round."""
        return self.first * math.pow(2.0, self.parts / PARTS)

    @property
    def parameters(self) -> dict[str, object]:
        """What `[parameters]` of the session say, the same in every round, beside epsilon and delta."""
        return {"length": self.length + 1, "l2_bound": 1.0}

    @property
    def label(self) -> str:
        """The label of this round's request: a party with another bound or share is excluded by name."""
        bound = f"{self.first:.17g} * 2^({self.parts}/{PARTS})"
        return f"clipping: round {self.rounds + 1}, {bound}, share {self.share:.17g}"

    def mu_shares(self, mu: float) -> tuple[float, float]:
        """Return the mu of the clipped vector and that of the indicator; their squares add up to mu's."""
        return math.sqrt(1 - self.share) * mu, math.sqrt(self.share) * mu

    def clip(self, vector: ArrayLike, party: str = "vector") -> NDArray[np.float64]:
        """Return what a party sends in this round, shape (length + 1,), of norm 1 at most.

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
        """Return the mean of the clipped vectors, shape (length,), given the average of this round."""
        return self._checked(average)[:-1] * (self.bound / math.sqrt(1 - self.share))

    def within(self, average: ArrayLike) -> float:
        """Return the share of the vectors that were within the bound; noise may take it out of [0, 1]."""
        return float(self._checked(average)[-1] / math.sqrt(self.share) + 1) / 2

    def following(self, average: ArrayLike) -> Self:
        """Return the next round, given the average of this one: its bound goes towards the quantile.

        Of a request that has failed there is none: another attempt has the same bound and another charge.
        """
        share = min(max(self.within(average), 0.0), 1.0)
        moved = self.parts - round(self.rate * (share - self.quantile) * PARTS / math.log(2))
        parts = min(max(moved, -MAX_PARTS), MAX_PARTS)
        return replace(self, parts=parts, rounds=self.rounds + 1)

    def _checked(self, average: ArrayLike) -> NDArray[np.float64]:
        values = np.asarray(average, dtype=np.float64)
        if values.shape != (self.length + 1,) or not np.isfinite(values).all():
            reason = f"has shape {values.shape}, or values that are not finite: {self.length + 1} are needed"
            raise ConfigError.at("average", reason, ConfigCheck.SHAPE)
        return values
