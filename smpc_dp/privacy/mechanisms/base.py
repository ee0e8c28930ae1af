"""Interface of a mechanism: its guarantee, its calibration, and releases with exactly sampled noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Relation, check_budget, delta_warnings
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.privacy.search import first_integer

Integers = NDArray[np.int64]
M = TypeVar("M", bound="Mechanism")

CENTRAL = "whoever holds the exact value adds the noise honestly, and shows only what is released"
# Sums of a value and its noise stay within int64.
MAX_VALUE = 1 << 62
# Calibrated parameters are multiples of about this fraction of themselves.
_BITS = 20


class Mechanism(ABC):
    """Interface of differentially private mechanisms: add exactly sampled noise, and state a guarantee."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the noise with its parameters, for reports."""

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """Neighbouring relation for which the privacy is stated."""

    @property
    @abstractmethod
    def assumption(self) -> str:
        """Words on which parties must be honest for the guarantee to hold."""

    @property
    @abstractmethod
    def proof(self) -> str:
        """Words on the theorem or computation behind the guarantee."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """Unit of the sensitivity in `norms`, such as the grid step or the caller's unit."""

    @abstractmethod
    def norms(self) -> dict[str, float]:
        """Return the sensitivity's norms by name (l1, l2, linf; l0 of answers), for reports."""

    @abstractmethod
    def event(self) -> Event:
        """Return one release by this mechanism as an event for a privacy ledger."""

    @abstractmethod
    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> NDArray[Any]:
        """Return `count` independent noisy releases of the values, one per row, for empirical audits."""

    def release(self, values: ArrayLike, source: NoiseSource) -> NDArray[Any]:
        """Return the values with noise drawn from `source`: one private release.

        The caller ensures that neighbouring inputs are no further apart than the sensitivity. Raises
        PrivacyError for values out of range, ConfigError for a wrong shape or dtype.
        """
        row: NDArray[Any] = self.release_many(values, source, 1)[0]
        return row

    def epsilon(self, delta: float) -> float:
        """Return the least known epsilon of a release at delta, rounded up; may be infinite."""
        return Composition([self.event()]).epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the least known delta of a release at epsilon, rounded up."""
        return Composition([self.event()]).delta(epsilon)

    def guarantee(self, delta: float, *, units: int | None = None) -> PrivacyGuarantee:
        """Return one release's guarantee at `delta`, with warnings; PrivacyError if there is none.

        Raises PrivacyError if no epsilon holds at this delta.
        """
        epsilon = self.epsilon(delta)
        if math.isinf(epsilon):
            raise PrivacyError(f"{self.name}: no epsilon is known for delta = {delta:g}")
        return PrivacyGuarantee(
            epsilon=epsilon,
            delta=delta,
            relation=self.relation,
            sensitivity=self.norms(),
            unit=self.unit,
            mechanism=self.name,
            assumption=self.assumption,
            proof=self.proof,
            warnings=delta_warnings(delta, units),
        )


def search_least(make: Callable[[Fraction], M], start: Fraction, epsilon: float, delta: float) -> M:
    """Return `make` of the least parameter that is (epsilon, delta)-DP; PrivacyError if there is none.

    The parameter is a multiple of 2^-20 times a power of two near it. The returned mechanism has been checked
    itself. Raises ConfigError for an invalid budget, PrivacyError if no parameter suffices.
    """
    check_budget(epsilon, delta)
    if epsilon == 0:
        raise ConfigError.at("epsilon", "must be above 0 to calibrate noise", ConfigCheck.RANGE)

    def enough(parameter: Fraction) -> bool:
        return make(parameter).delta(epsilon) <= delta

    low, high = Fraction(0), start
    for _ in range(120):
        if enough(high):
            break
        low, high = high, 4 * high
    else:
        raise PrivacyError(f"no noise makes this ({epsilon:g}, {delta:g})-differentially private")
    while low == 0 and enough(high / 4):
        if high < Fraction(1, 1 << 60):
            raise PrivacyError("the least noise is too small to be meant")
        high /= 4
    low = max(low, high / 4)
    exponent = math.frexp(float(high))[1] - _BITS
    unit = Fraction(2) ** exponent
    below, above = math.floor(low / unit), math.ceil(high / unit)
    return make(first_integer(lambda count: enough(count * unit), below, above) * unit)


def checked_integers(values: ArrayLike, dimension: int) -> Integers:
    """Return an int64 copy; ConfigError for another shape or non-integer dtype, PrivacyError above 2^62."""
    array = np.asarray(values)
    if array.shape != (dimension,):
        raise ConfigError.at("values", f"shape must be ({dimension},), is {array.shape}", ConfigCheck.SHAPE)
    if array.dtype.kind not in "iu":
        raise ConfigError.at("values", f"dtype must be an integer, is {array.dtype}", ConfigCheck.TYPE)
    if len(array) and (int(array.max()) > MAX_VALUE or int(array.min()) < -MAX_VALUE):
        raise PrivacyError("a value is outside [-2^62, 2^62]: its sum with the noise might not fit")
    return array.astype(np.int64)


def add_noise(values: Integers, noise: Integers) -> Integers:
    """Return values plus each row of noise; raise PrivacyError if a sum might overflow int64."""
    if noise.size and (int(noise.max()) > MAX_VALUE or int(noise.min()) < -MAX_VALUE):
        raise PrivacyError("the noise is outside [-2^62, 2^62]: the sum might not fit")
    return values + noise


def require_integers(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity unchanged; raise ConfigError if it is for real values."""
    if not isinstance(sensitivity, Sensitivity) or not sensitivity.integer:
        raise ConfigError.at(
            "sensitivity",
            "must be one of integers: see Sensitivity.on_integers, on_grid",
            ConfigCheck.UNSUPPORTED,
        )
    return sensitivity
