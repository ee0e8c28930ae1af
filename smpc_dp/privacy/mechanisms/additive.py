"""Integer values with integer noise: discrete Laplace, discrete Gaussian, Skellam, binomial.

Each class is one law of noise, added to every coordinate independently, for one sensitivity.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from numpy.typing import ArrayLike

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy import sampling
from smpc_dp.privacy.accountant.events import (
    AnyDescription,
    Event,
    Gaussian,
    Line,
    Pure,
    Renyi,
    Shift,
)
from smpc_dp.privacy.guarantee import Relation
from smpc_dp.privacy.laws import (
    AnyLaw,
    BinomialLaw,
    DiscreteGaussianLaw,
    DiscreteLaplaceLaw,
    SkellamLaw,
    log_masses,
)
from smpc_dp.privacy.mechanisms.base import (
    CENTRAL,
    Integers,
    Mechanism,
    added,
    checked_integers,
    checked_parameter,
    least,
    on_integers,
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
    """Noise of one law on integer vectors of shape (sensitivity.dimension,)."""

    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        on_integers(self.sensitivity)

    @property
    @abstractmethod
    def law(self) -> AnyLaw:
        """The law of the noise in one coordinate."""

    @abstractmethod
    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        """Return what is known about the sum of so many independent shares of this noise, best first."""

    @abstractmethod
    def noise(self, source: NoiseSource, count: int) -> Integers:
        """Draw `count` independent values of the noise."""

    @classmethod
    @abstractmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        """Return the mechanism with the least noise that is (epsilon, delta)-DP, rounded to the safe side.

        Raises ConfigError for a budget that is none, PrivacyError if no noise suffices.
        """

    @property
    def relation(self) -> Relation:
        return self.sensitivity.relation

    @property
    def assumption(self) -> str:
        return CENTRAL

    @property
    def unit(self) -> str:
        return "grid step"

    def norms(self) -> dict[str, float]:
        return self.sensitivity.norms()

    @functools.cached_property
    def _event(self) -> Event:
        return Event(self.name, self.relation, self.descriptions(1))

    def event(self) -> Event:
        return self._event

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> Integers:
        exact = checked_integers(values, self.sensitivity.dimension)
        return added(exact, self.noise(source, count * len(exact)).reshape(count, -1))

    def _shift(self, law: AnyLaw, shares: int, closeness: float = 0.0) -> tuple[Shift, ...]:
        """Return the description by masses, or nothing where it is too wide to sum or too loose to help.

        It takes every coordinate that moves to move by linf, which may be much more than l2 allows.
        """
        bounds = self.sensitivity
        moved = bounds.coordinates
        if moved > 1 and (moved > _MOST_COORDINATES or moved * bounds.shift**2 > 1.5 * bounds.l2**2):
            return ()
        try:
            log_masses(law, shares, bounds.shift)
        except ConfigError:
            return ()
        return (Shift(law, shares, bounds.shift, bounds.coordinates, bounds.dimension, closeness),)


@dataclass(frozen=True)
class DiscreteLaplace(AdditiveNoise):
    """Mass proportional to exp(-|x| / scale) [Ghosh, Roughgarden, Sundararajan 2009]; pure l1 / scale."""

    scale: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", checked_parameter("scale", self.scale))

    @property
    def law(self) -> AnyLaw:
        return DiscreteLaplaceLaw(self.scale)

    @property
    def name(self) -> str:
        return f"discrete Laplace noise of scale {_number(self.scale)}"

    @property
    def proof(self) -> str:
        return "l1 / scale; below it, mass functions summed, composed over coordinates"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        bounds = self.sensitivity
        # of a sum, every other share is post-processing
        pure = Pure(_above(Fraction(bounds.l1) / self.scale))
        return (*self._shift(self.law, shares), pure)

    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_laplace(source, count, self.scale)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        on_integers(sensitivity)
        start = Fraction(max(1, math.ceil(sensitivity.l1)))
        return least(lambda scale: cls(sensitivity, scale), start, epsilon, delta)


@dataclass(frozen=True)
class DiscreteGaussian(AdditiveNoise):
    """Mass proportional to exp(-x^2 / (2 variance)) [Canonne, Kamath, Steinke 2020]."""

    variance: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variance", checked_parameter("variance", self.variance))

    @property
    def law(self) -> AnyLaw:
        return DiscreteGaussianLaw(self.variance)

    @property
    def name(self) -> str:
        return f"discrete Gaussian noise of variance parameter {_number(self.variance)}"

    @property
    def proof(self) -> str:
        if self.sensitivity.coordinates == 1:
            return "mass functions summed, or zCDP [Canonne, Kamath, Steinke 2020, Theorem 4]"
        return "post-processed Gaussian but for an explicit error (docs/accounting.md), or zCDP"

    @property
    def rho(self) -> float:
        """The rho of zCDP: l2^2 / (2 variance) [Canonne, Kamath, Steinke 2020, Theorem 4]."""
        return self.sensitivity.l2**2 / (2 * float(self.variance)) * _UP

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
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
            shift = self._shift(DiscreteGaussianLaw(self.variance * shares), 1, near)
            known = [*shift, *known] if moved == 1 or total <= 2 * s else [*known, *shift]
        if not known:
            raise ConfigError(
                [Fault("variance", f"{variance:g} a share is too little for anything to be known of a sum")]
            )
        return tuple(known[:4])

    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.discrete_gaussian(source, count, self.variance)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        _need_delta(delta, "discrete Gaussian")
        start = Fraction(math.ceil(on_integers(sensitivity).l2 ** 2))
        return least(lambda variance: cls(sensitivity, variance), start, epsilon, delta)


@dataclass(frozen=True)
class Skellam(AdditiveNoise):
    """The difference of two Poisson variables of mean variance / 2; sums of shares are Skellam again."""

    variance: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variance", checked_parameter("variance", self.variance))

    @property
    def law(self) -> AnyLaw:
        return SkellamLaw(self.variance)

    @property
    def name(self) -> str:
        return f"Skellam noise of variance {_number(self.variance)}"

    @property
    def proof(self) -> str:
        return "mass functions summed and composed over coordinates, or [Agarwal, Kairouz, Liu 2021]"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        bounds, v = self.sensitivity, float(self.variance) * shares
        two, one = bounds.l2**2, bounds.l1
        # alpha two/2v + min(((2 alpha - 1) two + 6 one) / 4v^2, 3 one / 2v) at integer orders
        lines = (
            Line(max(0.0, 6 * one - two) / (4 * v * v) * _UP, (two / (2 * v) + two / (2 * v * v)) * _UP),
            Line(3 * one / (2 * v) * _UP, two / (2 * v) * _UP),
        )
        return (*self._shift(SkellamLaw(self.variance * shares), 1), Renyi(lines))

    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.skellam(source, count, self.variance)

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        _need_delta(delta, "Skellam")
        start = Fraction(math.ceil(on_integers(sensitivity).l2 ** 2))
        return least(lambda variance: cls(sensitivity, variance), start, epsilon, delta)


@dataclass(frozen=True)
class Binomial(AdditiveNoise):
    """Heads of `trials` fair coins (an even number) less trials / 2; sums of shares are binomial again."""

    trials: int

    def __post_init__(self) -> None:
        super().__post_init__()
        trials = self.trials
        if not isinstance(trials, int) or isinstance(trials, bool) or not 2 <= trials < 1 << 62 or trials % 2:
            raise ConfigError([Fault("trials", f"must be an even integer from 2 to 2^62, is {trials!r}")])

    @property
    def law(self) -> AnyLaw:
        return BinomialLaw(self.trials)

    @property
    def name(self) -> str:
        return f"binomial noise of {self.trials} fair coins"

    @property
    def proof(self) -> str:
        return "mass functions summed and composed over coordinates"

    def descriptions(self, shares: int) -> tuple[AnyDescription, ...]:
        known = self._shift(BinomialLaw(self.trials * shares), 1)
        if not known:
            raise ConfigError(
                [Fault("sensitivity", f"{self.name}: too wide, or too many coordinates, to sum its masses")]
            )
        return known

    def noise(self, source: NoiseSource, count: int) -> Integers:
        return sampling.binomial(source, count, self.trials, Fraction(1, 2)) - self.trials // 2

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, sensitivity: Sensitivity) -> Self:
        _need_delta(delta, "binomial")
        start = Fraction(2 * math.ceil(on_integers(sensitivity).l2 ** 2))

        def make(trials: Fraction) -> Self:
            return cls(sensitivity, 2 * max(1, math.ceil(trials / 2)))

        return least(make, start, epsilon, delta)


def _need_delta(delta: float, name: str) -> None:
    if delta == 0:
        raise ConfigError([Fault("delta", f"must be above 0: {name} noise has no pure guarantee")])


def _above(value: Fraction) -> float:
    """Return the least float that is not below the value."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"
