"""Shares of noise of one vector: Gaussian in some coordinates, discrete Laplace in the others.

All draws are independent. So a release is one of the coordinates with Gaussian noise and one of the others,
seen together, and their privacy losses add up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import AnyDescription, Gaussian, Joint, Pure, Shift, Shifts
from smpc_dp.privacy.distributions import DiscreteGaussianDistribution, DiscreteLaplaceDistribution
from smpc_dp.privacy.mechanisms.additive import AdditiveNoise, DiscreteGaussian
from smpc_dp.privacy.mechanisms.base import Integers
from smpc_dp.privacy.mechanisms.laplace_shares import LaplaceShare
from smpc_dp.privacy.sampling import NoiseSource

# Different moves that a description has at most.
_MOST_MOVES = 64


@dataclass(frozen=True)
class MixedShare(AdditiveNoise):
    """One party's share of noise that is Gaussian in some coordinates and Laplace in the others.

    Attributes:
        gaussian, laplace: the shares in the coordinates of each law, with how far these move.
        runs: of coordinates in order, how many, and whether they have Laplace noise.
        moves: how far each coordinate with Laplace noise moves that can move at once, where between
            neighbours no other one does; None: only their sum is known, the sensitivity of `laplace` in L1.
    """

    gaussian: DiscreteGaussian
    laplace: LaplaceShare
    runs: tuple[tuple[int, bool], ...]
    moves: tuple[int, ...] | None = None
    proof = (
        "loss distributions of discrete Laplace noise and of a Gaussian near discrete ones, composed "
        "(docs/proofs/records.md)"
    )

    def __post_init__(self) -> None:
        """Raise ConfigError unless `runs` fit the two shares, which have checked themselves."""
        lengths = self.gaussian.sensitivity.dimension, self.laplace.sensitivity.dimension
        counted = tuple(sum(count for count, pure in self.runs if pure is kind) for kind in (False, True))
        if counted != lengths:
            raise ConfigError.at(
                "runs", f"have {counted} coordinates, the shares {lengths}", ConfigCheck.SHAPE
            )

    @property
    def name(self) -> str:
        """Words for reports: the noise of the Gaussian and of the Laplace coordinates."""
        return f"{self.gaussian.name} in some coordinates, {self.laplace.name} in the others"

    @property
    def variance(self) -> Fraction:
        """Variance of a share in coordinates with Gaussian noise, the larger of the two."""
        return self.gaussian.variance

    @functools.cached_property
    def is_laplace(self) -> NDArray[np.bool_]:
        """Mask of the coordinates that have Laplace noise; the others have Gaussian noise."""
        return np.concatenate([np.full(count, pure) for count, pure in self.runs])

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the joint loss of a sum of `shares` shares; ConfigError if not known."""
        known = next(
            (one for one in self.gaussian.descriptions(shares) if isinstance(one, Gaussian | Shift)), None
        )
        if known is None:
            reason = f"{float(self.gaussian.variance):g} a share has no loss distribution"
            raise ConfigError.at("variance", reason, ConfigCheck.INFEASIBLE)
        self.laplace.descriptions(shares)  # refuses fewer shares than one Laplace noise takes
        noise = DiscreteLaplaceDistribution(self.laplace.scale)
        pure = Joint((known, Pure(noise.epsilon(self.laplace.sensitivity.l1))))
        moves = sorted({*(self.moves or ())})
        if not moves or len(moves) > _MOST_MOVES:
            return (pure,)
        counted = tuple((move, (self.moves or ()).count(move)) for move in moves)
        return Joint((known, Shifts(noise, 1, counted))), pure

    def noise(self, source: NoiseSource, count: int) -> Integers:
        """Draw noise for whole vectors, flattened to `count` coordinates; ConfigError for a part of one."""
        vectors, rest = divmod(count, len(self.is_laplace))
        if rest:
            reason = f"{count} coordinates are no whole vectors of {len(self.is_laplace)}"
            raise ConfigError.at("count", reason, ConfigCheck.SHAPE)
        laplace = np.tile(self.is_laplace, vectors)
        result = np.empty(count, dtype=np.int64)
        gaussian = DiscreteGaussianDistribution(self.gaussian.variance)
        result[~laplace] = gaussian.draw(source, int(count - laplace.sum()))
        result[laplace] = self.laplace.noise(source, int(laplace.sum()))
        return result
