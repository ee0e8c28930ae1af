"""Additive integer noise on integer values: discrete Laplace, discrete Gaussian, Skellam, binomial.

Each class is one distribution of noise, added to every coordinate independently, for one sensitivity.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import (
    AnyDescription,
    Event,
    Gaussian,
    Line,
    Pure,
    Renyi,
    Shift,
)
from smpc_dp.privacy.distributions import (
    AnyDistribution,
    BinomialDistribution,
    DiscreteGaussianDistribution,
    DiscreteLaplaceDistribution,
    SkellamDistribution,
    log_masses,
)
from smpc_dp.privacy.guarantee import Relation
from smpc_dp.privacy.mechanisms.base import (
    CENTRAL,
    Integers,
    Mechanism,
    add_noise,
    checked_integers,
    require_integers,
    search_least,
)
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.mechanisms.smoothing import (
    kairouz_liu_steinke_zcdp,
    ripple,
    smoothing_variance,
    sum_ripple,
)
from smpc_dp.privacy.sampling import NoiseSource

_UP = 1 + 1e-12
# Loss distributions of more coordinates take long to compose, and other bounds are as good there.
_MOST_COORDINATES = 1000


@dataclass(frozen=True)
class AdditiveNoise(Mechanism):
    """Base of mechanisms that add integer noise to integer vectors, with a stated sensitivity.

    A subclass has one more field, the parameter of its family of distributions.
    """

    sensitivity: Sensitivity
    family: ClassVar[type[AnyDistribution]]
    assumption = CENTRAL
    unit = "grid step"

    def __post_init__(self) -> None:
        require_integers(self.sensitivity)
        name = self.family.parameter()
        object.__setattr__(self, name, self.family.checked(getattr(self, name)))

    @functools.cached_property
    def distribution(self) -> AnyDistribution:
        """Distribution of the noise added to each coordinate."""
        return self.family(getattr(self, self.family.parameter()))

    @property
    def name(self) -> str:
        """Name of the noise distribution with its parameter, for reports."""
        return self.distribution.describe()

    @abstractmethod
    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the privacy loss of a sum with `shares` independent such noises, best first."""

    def noise(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent noise integers."""
        return self.distribution.draw(source, count)

    @classmethod
    def of(cls, sensitivity: Sensitivity, parameter: Fraction) -> Self:
        """Return the mechanism with the least permitted noise parameter that is at least `parameter`."""
        given: dict[str, Any] = {cls.family.parameter(): cls.family.rounded(parameter)}
        return cls(sensitivity, **given)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise for (epsilon, delta)-DP; PrivacyError if none.

        Raises ConfigError for a budget that is none, PrivacyError if no noise suffices.
        """
        if delta == 0 and not cls.family.pure:
            family = cls.family.words.partition(" of ")[0]
            raise ConfigError.at(
                "delta", f"must be above 0: {family} has no pure guarantee", ConfigCheck.UNSUPPORTED
            )
        start = cls.family.start(require_integers(sensitivity).l1, sensitivity.l2)
        return search_least(lambda parameter: cls.of(sensitivity, parameter), start, epsilon, delta)

    @property
    def relation(self) -> Relation:
        """Neighbouring relation for which the sensitivity is stated."""
        return self.sensitivity.relation

    def norms(self) -> dict[str, float]:
        """Return the L1, L2 and Linf sensitivity by name, for reports."""
        return self.sensitivity.norms()

    @functools.cached_property
    def _event(self) -> Event:
        """Release of this mechanism alone as an accountant's event, computed once."""
        return Event(self.name, self.relation, self.descriptions(1))

    def event(self) -> Event:
        """Return one release of this mechanism as an event for a ledger."""
        return self._event

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> Integers:
        """Return `count` independent noisy copies of the integers, shape (count, dimension)."""
        exact = checked_integers(values, self.sensitivity.dimension)
        return add_noise(exact, self.noise(source, count * len(exact)).reshape(count, -1))

    def _shift(self, distribution: AnyDistribution, shares: int, closeness: float = 0.0) -> tuple[Shift, ...]:
        """Return a privacy bound by the noise's exact masses, or () where it is too costly or too loose.

        It takes every coordinate that moves to move by linf, which may be much more than l2 allows.
        """
        bounds = self.sensitivity
        moved = bounds.coordinates
        if moved > 1 and (moved > _MOST_COORDINATES or moved * bounds.shift**2 > 1.5 * bounds.l2**2):
            return ()
        try:
            log_masses(distribution, shares, bounds.shift)
        except ConfigError:
            return ()
        return (Shift(distribution, shares, bounds.shift, bounds.coordinates, bounds.dimension, closeness),)


@dataclass(frozen=True)
class DiscreteLaplace(AdditiveNoise):
    """Discrete Laplace mechanism: adds noise of mass ~ exp(-|x| / scale); pure epsilon is l1 / scale."""

    scale: Fraction
    family = DiscreteLaplaceDistribution
    proof = "l1 / scale; below it, mass functions summed, composed over coordinates"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the privacy loss of a sum with `shares` discrete Laplace noises."""
        bounds = self.sensitivity
        # of a sum, every other share is post-processing
        pure = Pure(DiscreteLaplaceDistribution(self.scale).epsilon(bounds.l1))
        return (*self._shift(self.distribution, shares), pure)


@dataclass(frozen=True)
class DiscreteGaussian(AdditiveNoise):
    """Discrete Gaussian mechanism: adds noise of mass ~ exp(-x^2 / (2 variance)) to integers."""

    variance: Fraction
    family = DiscreteGaussianDistribution

    @property
    def proof(self) -> str:
        """Names of the theorems that the mechanism's stated epsilon rests on, for reports."""
        if self.sensitivity.coordinates == 1:
            return "mass functions summed, or zCDP [Canonne, Kamath, Steinke 2020, Theorem 4]"
        return "post-processed Gaussian but for an explicit error (docs/proofs/accounting.md), or zCDP"

    @property
    def rho(self) -> float:
        """Rho of zCDP: l2^2 / (2 variance) [Canonne, Kamath, Steinke 2020, Theorem 4]."""
        return self.sensitivity.l2**2 / (2 * float(self.variance)) * _UP

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on a sum of `shares` discrete Gaussian noises; ConfigError if none."""
        bounds, variance = self.sensitivity, float(self.variance)
        moved = bounds.coordinates
        near = moved * sum_ripple(variance, shares)
        known: list[AnyDescription] = []
        if shares == 1:
            known.append(Renyi((Line(0.0, self.rho),), all_orders=True))
        else:
            zcdp = kairouz_liu_steinke_zcdp(
                variance=variance, shares=shares, dimension=moved, l1=bounds.l1, l2=bounds.l2
            )
            if math.isfinite(zcdp):
                known.append(Renyi((Line(0.0, zcdp),), all_orders=True))
            if near < 1:
                known.append(Renyi((Line(2 * near, self.rho / shares * _UP),)))
        s = smoothing_variance(moved)
        total = variance * shares
        if total > 2 * s and near < 1:
            smooth = Gaussian(bounds.l2 / math.sqrt(total - s) * _UP, near + moved * ripple(s))
            known.insert(0, smooth)
        if near < 1:
            shift = self._shift(DiscreteGaussianDistribution(self.variance * shares), 1, near)
            known = [*shift, *known] if moved == 1 or total <= 2 * s else [*known, *shift]
        if not known:
            raise ConfigError.at(
                "variance",
                f"{variance:g} a share is too little for anything to be known of a sum",
                ConfigCheck.INFEASIBLE,
            )
        return tuple(known[:4])


@dataclass(frozen=True)
class Skellam(AdditiveNoise):
    """Skellam noise mechanism: adds the difference of two Poisson variables of mean variance / 2."""

    variance: Fraction
    family = SkellamDistribution
    proof = "mass functions summed and composed over coordinates, or [Agarwal, Kairouz, Liu 2021]"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the privacy loss of a sum with `shares` Skellam noises, Rényi's included."""
        bounds, v = self.sensitivity, float(self.variance) * shares
        two, one = bounds.l2**2, bounds.l1
        # alpha two/2v + min(((2 alpha - 1) two + 6 one) / 4v^2, 3 one / 2v) at integer orders
        lines = (
            Line(max(0.0, 6 * one - two) / (4 * v * v) * _UP, (two / (2 * v) + two / (2 * v * v)) * _UP),
            Line(3 * one / (2 * v) * _UP, two / (2 * v) * _UP),
        )
        return (*self._shift(SkellamDistribution(self.variance * shares), 1), Renyi(lines))


@dataclass(frozen=True)
class Binomial(AdditiveNoise):
    """Binomial noise mechanism: adds heads of `trials` fair coins (an even number) less trials / 2."""

    trials: int
    family = BinomialDistribution
    proof = "mass functions summed and composed over coordinates"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return bounds on the privacy loss of a sum with `shares` binomial noises; or ConfigError."""
        known = self._shift(BinomialDistribution(self.trials * shares), 1)
        if not known:
            raise ConfigError.at(
                "sensitivity",
                f"{self.name}: too wide, or too many coordinates, to sum its masses",
                ConfigCheck.TOO_LARGE,
            )
        return known


_KINDS: tuple[type[AdditiveNoise], ...] = (DiscreteLaplace, DiscreteGaussian, Skellam, Binomial)
FAMILIES = {str(kind.family.__struct_config__.tag): kind for kind in _KINDS}
"""By the names of their distributions in files."""
