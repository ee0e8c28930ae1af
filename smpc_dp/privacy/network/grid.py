"""Exact noise for a plan: discrete Gaussians on a grid that cost no more than the plan's Gaussian noise.

The proof, and the plans it holds for: docs/proofs/network.md, "Noise on a grid".
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, PrivacyError
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.mechanisms.smoothing import ripple, sum_ripple
from smpc_dp.privacy.network.plan import GRID_PART, NetworkPlan
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian

Integers = NDArray[np.int64]

# Steps in the least standard deviation of a noise that is drawn.
_FINE = 1 << 13
# Variance, in squared steps, that goes into being a rounded Gaussian: a ripple of 4 is 1e-33.
_SMOOTHING = 4
_UP = 1 + 1e-9
_MOST = 1 << 62


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed-point grid for tokens that walk through a network: step, and variance of noise in squared steps.

    `closeness`: the range kappa of the logarithm of (mass of a run / mass of a run with rounded Gaussians).
    """

    bits: int
    variance: Fraction
    share: Fraction
    closeness: float

    @classmethod
    def of(
        cls,
        plan: NetworkPlan,
        width: float,
        *,
        noises: int,
        shares: int = 1,
        least_bits: int = 0,
        stretch: float = 1.0,
    ) -> Self:
        """Return the grid for a planned walk; ConfigError for no sigma, or a width above the plan's.

        `noises`: coordinates of noise in a whole run. `shares`: noises that only together have sigma^2; a
        `share` is the variance of each. `least_bits`, `stretch`: for a finer grid, and for a sigma so many
        times the plan's, for what else may set contributions apart. Raises ConfigError for a plan without
        sigma or of another width.
        """
        if plan.sigma is None or plan.sensitivity is None:
            raise ConfigError.at(
                "plan", f"a plan for {plan.task} has no Gaussian noise", ConfigCheck.UNSUPPORTED
            )
        if not 0 < width <= plan.sensitivity * (1 + 1e-12):
            reason = f"contributions may be {width:g} apart, the plan covers {plan.sensitivity:g}"
            raise ConfigError.at("plan", reason, ConfigCheck.DIFFERS)
        return cls.fit(
            plan.sigma * stretch, plan.sensitivity, noises=noises, shares=shares, least_bits=least_bits
        )

    @classmethod
    def fit(
        cls, sigma: float, sensitivity: float, *, noises: int, shares: int = 1, least_bits: int = 0
    ) -> Self:
        """Return a grid whose noise protects like Gaussian noise `sigma`, but for `closeness`."""
        bits = max(0, least_bits, math.ceil(math.log2(_FINE * math.sqrt(shares) / sigma)))
        # Rounding to the nearest step can move two contributions one step further apart.
        steps = sensitivity * 2.0**bits
        sigma = sigma * 2.0**bits * (steps + 1) / steps
        variance = Fraction(math.ceil(sigma**2 * _UP) + _SMOOTHING)
        share = variance / shares
        # A known path and shares of noise need sums of noises to be near one noise, too.
        near = noises * (ripple(_SMOOTHING) + sum_ripple(float(share), 2))
        return cls(bits=bits, variance=variance, share=share, closeness=near)

    @property
    def step(self) -> float:
        """Width of a grid step, in the caller's unit."""
        return 2.0**-self.bits

    def to_grid(self, values: NDArray[np.float64], lower: float, upper: float) -> Integers:
        """Return values rounded to grid steps; PrivacyError if one is outside [lower, upper].

        Raises PrivacyError if one is outside [lower, upper].
        """
        values = np.asarray(values, dtype=np.float64)
        inside = (values >= lower) & (values <= upper)
        if not inside.all():
            number = 1 + int(np.flatnonzero(~inside)[0])
            raise PrivacyError(f"a contribution is outside [{lower:g}, {upper:g}]: number {number}")
        return np.rint(np.ldexp(values, self.bits)).astype(np.int64)

    def check_room(self, contributions: int, largest: float) -> None:
        """Raise ConfigError if a token with so many noisy contributions could exceed 63 bits."""
        if contributions * self.reach(largest) >= _MOST:
            raise ConfigError.at(
                "plan",
                f"{contributions} contributions do not fit 63 bits at {self.bits} bits each",
                ConfigCheck.TOO_LARGE,
            )

    def reach(self, largest: float) -> float:
        """Return a bound on a contribution of at most `largest` plus its noise, in grid steps."""
        return largest * 2.0**self.bits + 64 * math.sqrt(float(self.variance)) + 1

    def noise(self, source: NoiseSource, count: int, *, share: bool = False) -> Integers:
        """Draw `count` values of the planned noise in grid steps, or of one party's share of it."""
        return discrete_gaussian(source, count, self.share if share else self.variance)


def guarantee(plan: NetworkPlan, closeness: float, mechanism: str) -> PrivacyGuarantee:
    """Return the guarantee of a planned walk on a grid; ConfigError where the grid costs too much.

    It costs (epsilon + kappa, e^kappa delta) of the plan's noise, which is within the plan's allowance for it
    (`without_grid`). Raises ConfigError where it is not.
    """
    if closeness > GRID_PART / 2 * min(plan.epsilon, 1.0):
        raise ConfigError.at(
            "epsilon", f"{plan.epsilon:g} is too small for noise on a grid", ConfigCheck.INFEASIBLE
        )
    warnings = list(plan.warnings)
    if not plan.proven:
        warnings.append("the plan repeats a published bound that this project has not proven")
    width = {} if plan.sensitivity is None else {"l2": plan.sensitivity}
    return PrivacyGuarantee(
        epsilon=plan.epsilon,
        delta=plan.delta,
        relation="substitution",
        sensitivity=width,
        unit="the caller's" if width else "category",
        mechanism=mechanism,
        assumption=plan.assumption,
        proof="docs/proofs/planners.md for the plan, docs/proofs/network.md for the grid",
        warnings=tuple(warnings),
    )


def check_plan(
    plan: NetworkPlan, *, topology: str, task: str, parties: int, rounds: int | None = None
) -> None:
    """Raise ConfigError unless a plan is for this topology, task, number of parties and of rounds."""
    expected = {"topology": topology, "task": task, "parties": parties, "rounds": rounds}
    issues = [
        ConfigIssue("plan", f"is for {name} {getattr(plan, name)}, the run has {wanted}", ConfigCheck.DIFFERS)
        for name, wanted in expected.items()
        if getattr(plan, name) != wanted
    ]
    if issues:
        raise ConfigError(issues)
