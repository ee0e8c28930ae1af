"""Laplace and Gaussian mechanisms for real vectors: through a fixed-point grid, with integer noise.

Continuous noise cannot be sampled, and floating-point imitations of it leak. So values are rounded to the
grid of an `Encoding`, the noise is discrete, and every guarantee is that of the values really released,
rounding included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.guarantee import Relation
from smpc_dp.privacy.mechanisms.additive import AdditiveNoise, DiscreteGaussian, DiscreteLaplace
from smpc_dp.privacy.mechanisms.base import Mechanism, add_noise
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.sampling import NoiseSource


@dataclass(frozen=True)
class RealMechanism(Mechanism):
    """Base of mechanisms for bounded real vectors: rounds to a grid and adds discrete noise.

    Attributes:
        encoding: bounds, grid and length of the vectors.
        sensitivity: of the exact real values, in the caller's unit.
        discrete: the noise, in grid steps, for the sensitivity after rounding.
    """

    encoding: Encoding
    sensitivity: Sensitivity
    discrete: AdditiveNoise
    kind: ClassVar[type[AdditiveNoise]]
    unit = "the caller's"

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity, encoding: Encoding) -> Self:
        """Return the mechanism with the least noise on this grid that is (epsilon, delta)-DP."""
        _check(encoding, sensitivity)
        grid = sensitivity.on_grid(encoding.step)
        return cls(encoding, sensitivity, cls.kind.calibrate(epsilon, delta, grid))

    def __post_init__(self) -> None:
        _check(self.encoding, self.sensitivity)
        if self.discrete.sensitivity != self.sensitivity.on_grid(self.encoding.step):
            raise ConfigError.at(
                "discrete", "its sensitivity is not that of the rounded values", ConfigCheck.DIFFERS
            )

    @property
    def name(self) -> str:
        """Words for reports: the noise, and the step of the grid."""
        return f"{self.discrete.name} on a grid of step {self.encoding.step:g}"

    @property
    def relation(self) -> Relation:
        """Neighbouring relation for which the sensitivity is stated."""
        return self.sensitivity.relation

    @property
    def assumption(self) -> str:
        """Words on what must hold for the guarantee: as of the integer mechanism used."""
        return self.discrete.assumption

    @property
    def proof(self) -> str:
        """Words for reports on what proves epsilon: a bound on rounding, and the discrete noise's theorem."""
        return f"rounding adds one step a coordinate to the sensitivity; {self.discrete.proof}"

    def norms(self) -> dict[str, float]:
        """Return the sensitivity's norms by name, for reports."""
        return self.sensitivity.norms()

    def event(self) -> Event:
        """Return one release as an event for a privacy ledger."""
        return self.discrete.event()

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> NDArray[np.float64]:
        """Return `count` rows of noisy values on the grid; PrivacyError for values out of bounds."""
        ring_vector, _ = self.encoding.encode(values, party="values")
        grid = ring_vector.astype(np.int64) + np.int64(self.encoding.lowest)
        noise = self.discrete.noise(source, count * len(grid)).reshape(count, -1)
        return self.encoding.real(add_noise(grid, noise))


@dataclass(frozen=True)
class Laplace(RealMechanism):
    """Laplace mechanism for real vectors of bounded L1 sensitivity, by discrete Laplace noise on a grid."""

    discrete: DiscreteLaplace
    kind = DiscreteLaplace

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise in the caller's unit."""
        return float(self.discrete.scale) * self.encoding.step


@dataclass(frozen=True)
class Gaussian(RealMechanism):
    """Gaussian mechanism for real vectors of bounded L2 sensitivity, by discrete Gaussian noise on a grid."""

    discrete: DiscreteGaussian
    kind = DiscreteGaussian

    @property
    def sigma(self) -> float:
        """Sigma parameter of the Gaussian noise in the caller's unit."""
        return math.sqrt(self.discrete.variance) * self.encoding.step


def _check(encoding: Encoding, sensitivity: Sensitivity) -> None:
    """Raise ConfigError unless an encoding and a sensitivity fit together."""
    checks = ArgumentChecks()
    if encoding.integer:
        checks.add_issue(
            "encoding", "is one of integers: use the discrete mechanisms", ConfigCheck.UNSUPPORTED
        )
    if encoding.max_weight:
        checks.add_issue("encoding", "has weights, which would be released too", ConfigCheck.UNSUPPORTED)
    if sensitivity.integer:
        checks.add_issue(
            "sensitivity", "must be one of reals: see Sensitivity.on_reals", ConfigCheck.UNSUPPORTED
        )
    if sensitivity.dimension != encoding.length:
        checks.add_issue(
            "sensitivity",
            f"is of {sensitivity.dimension} coordinates, not {encoding.length}",
            ConfigCheck.SHAPE,
        )
    checks.raise_issues()
