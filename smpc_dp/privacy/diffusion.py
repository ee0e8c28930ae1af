"""Noise for diffusion learning: its privacy and its cost in accuracy [Vlaski and Sayed 2020].

Proofs of epsilon(i) for every message of every agent, and the limits of the claim: docs/proofs/diffusion.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, PrivacyError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.distributions import DiscreteLaplaceDistribution
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.search import first_integer

if TYPE_CHECKING:
    from scipy import sparse

Kind = Literal["homomorphic", "iid"]

# Steps of the grid in the noise's scale and in an update, at least, and in the scale at most.
_FINE, _FINE_UPDATE, _MOST = 1 << 20, 1 << 12, 1 << 38
_OBSERVERS = (
    "agents follow the protocol and draw their noise honestly; whoever observes may see all messages "
    "of all agents, and what agents other than the one protected know of themselves"
)
# Of b_v in the caller's unit, and of it and an update.
_LARGEST, _LEAST = 1e9, 1e-100


class DiffusionNoise(msgspec.Struct, frozen=True, kw_only=True):
    """Discrete Laplace noise for decentralised (diffusion) learning with updates clipped in the l1 norm."""

    kind: Kind
    dimension: int
    """M, coordinates of a model."""
    step_size: float
    """mu."""
    l1_bound: float
    """G, the bound that gradients of the data are clipped to, in the l1 norm."""
    bits: int
    scale: Fraction
    """b_v in grid steps: the noise has mass proportional to exp(-|k| / scale)."""
    update: int
    """floor(mu G 2^bits): the l1 norm of an update on the grid, at most."""

    @classmethod
    def of_scale(
        cls, kind: Kind, scale: float, step_size: float, l1_bound: float, dimension: int
    ) -> DiffusionNoise:
        """Return noise of a scale in the caller's unit, rounded down to a grid; ConfigError if invalid."""
        checks = ArgumentChecks()
        checks.require_positive("scale", scale, _LARGEST)
        checks.require_positive("step_size", step_size, 1e9)
        checks.require_positive("l1_bound", l1_bound, 1e9)
        checks.require_integer("dimension", dimension, 1, 1 << 24)
        if kind not in ("homomorphic", "iid"):
            checks.add_issue("kind", f"{kind!r} is not one of homomorphic, iid", ConfigCheck.CHOICE)
        checks.raise_issues()
        if min(scale, step_size * l1_bound) < _LEAST:
            checks.add_issue(
                "step_size",
                f"{step_size:g}: steps of {step_size * l1_bound:g} have no grid",
                ConfigCheck.RANGE,
            )
            checks.raise_issues()
        bits = math.ceil(math.log2(max(_FINE / scale, _FINE_UPDATE / (step_size * l1_bound))))
        if scale * 2.0**bits > _MOST:
            checks.add_issue(
                "scale",
                f"{scale:g} is too large beside updates of {step_size * l1_bound:g}",
                ConfigCheck.TOO_LARGE,
            )
            checks.raise_issues()
        unit = Fraction(2) ** bits
        return cls(
            kind=kind,
            dimension=dimension,
            step_size=step_size,
            l1_bound=l1_bound,
            bits=bits,
            scale=Fraction(math.floor(Fraction(scale) * unit)),
            update=math.floor(Fraction(step_size) * Fraction(l1_bound) * unit),
        )

    @classmethod
    def plan(
        cls, kind: Kind, epsilon: float, steps: int, step_size: float, l1_bound: float, dimension: int
    ) -> DiffusionNoise:
        """Return the least noise with total epsilon at most `epsilon` over `steps`; else ConfigError."""
        checks = ArgumentChecks()
        checks.require_budget(epsilon)
        checks.require_integer("steps", steps, 1, 10_000_000)
        # The scale follows from them: it is no fault of its own.
        checks.require_positive("step_size", step_size, 1e9)
        checks.require_positive("l1_bound", l1_bound, 1e9)
        checks.raise_issues()
        shifts = steps * (steps + 1) if kind == "homomorphic" else 2 * steps
        # The grid step is rounded up with the scale: two parts in a million.
        scale = step_size * l1_bound * shifts / epsilon * (1 + 2 / _FINE)
        if scale > _LARGEST:
            checks.add_issue(
                "epsilon",
                f"{epsilon:g} is too small for {steps} steps: noise of scale {scale:.3g}",
                ConfigCheck.INFEASIBLE,
            )
            checks.raise_issues()
        return cls.of_scale(kind, scale, step_size, l1_bound, dimension)

    def epsilon(self, steps: int) -> float:
        """Return epsilon of an agent's whole data after this many learning steps, rounded up.

        Homomorphic: mu G (i^2 + i) / b_v, (27) with an l1 bound. I.i.d.: 2 mu G i / b_v.
        """
        shifts = steps * (steps + 1) if self.kind == "homomorphic" else 2 * steps
        return DiscreteLaplaceDistribution(self.scale).epsilon(self.update * shifts)

    def publication(self, steps: int, epsilon: float) -> Fraction:
        """Return the noise scale, in steps, to publish a model for `epsilon` more, or ConfigError.

        Homomorphic alone: given all messages, it differs by 2 mu G i in the l1 norm. Raises ConfigError.
        """
        checks = ArgumentChecks()
        checks.require_budget(epsilon)
        checks.require_integer("steps", steps, 1, 10_000_000)
        if self.kind != "homomorphic":
            checks.add_issue(
                "kind", "i.i.d. noise covers models: they are published as they are", ConfigCheck.CONFLICT
            )
        checks.raise_issues()
        scale = Fraction(
            math.ceil(DiscreteLaplaceDistribution.for_epsilon(2 * self.update * steps, epsilon).scale)
        )
        if scale > _MOST:
            checks.add_issue("publish", f"{epsilon:g} is too small for {steps} steps", ConfigCheck.INFEASIBLE)
            checks.raise_issues()
        return scale

    @property
    def real_scale(self) -> float:
        """Scale of the Laplace noise in the caller's unit."""
        return float(self.scale) * 2.0**-self.bits

    @property
    def assumption(self) -> str:
        """Assumption of the privacy claim in words: what observers may and may not see."""
        if self.kind == "iid":
            return f"{_OBSERVERS}, and every agent's model"
        return _OBSERVERS + (
            "; NOT the protected agent's own model, nor the average of all models, which has no noise: "
            "with either the sum of its gradients is known"
        )

    def guarantee(
        self, steps: int, budget: float | None = None, *, publish: float | None = None
    ) -> PrivacyGuarantee:
        """Return the guarantee after `steps`; PrivacyError if the messages' epsilon exceeds `budget`.

        `publish`: the epsilon that publishing models with noise of `publication` costs beside the messages.
        None: they are not published.
        """
        epsilon = self.epsilon(steps)
        if budget is not None and epsilon > budget:
            most = _steps_within(self, budget)
            raise PrivacyError(
                f"{steps} steps cost epsilon = {epsilon:.4g}, the budget is {budget:g}: enough for {most}"
            )
        mechanism = f"{self.kind} discrete Laplace noise of scale {self.real_scale:.6g}"
        assumption = self.assumption
        if publish is not None:
            own = float(self.publication(steps, publish)) * 2.0**-self.bits
            epsilon = math.nextafter(epsilon + publish, math.inf)
            mechanism += f", and of scale {own:.6g} on each model that is published"
            assumption = f"{_OBSERVERS}, and all published models; NOT the protected agent's model itself"
        growth = "the square of the steps" if self.kind == "homomorphic" else "the steps"
        return PrivacyGuarantee(
            epsilon=epsilon,
            delta=0.0,
            relation="substitution",
            sensitivity={"l1": 2 * self.step_size * self.l1_bound},
            unit="the caller's",
            mechanism=mechanism,
            assumption=assumption,
            proof="docs/proofs/diffusion.md",
            warnings=(f"epsilon grows with {growth}",),
        )


def _steps_within(noise: DiffusionNoise, budget: float) -> int:
    """Return the greatest number of learning steps whose total epsilon is within a budget."""
    low, high = 0, 1
    while noise.epsilon(high) <= budget:
        low, high = high, 2 * high
    return first_integer(lambda steps: noise.epsilon(steps) > budget, low, high) - 1


def spread(weights: sparse.csr_array) -> float:
    """Return a paper's constant (29) of combination weights: max over agents of 1 - a + ((1 - a) / a)^2."""
    own = weights.diagonal()
    return float(np.max((1 - own) + ((1 - own) / own) ** 2))


def disagreement_bound(
    weights: sparse.csr_array, gap: float, step_size: float, l2_bound: float, scale: float, dimension: int
) -> float:
    """Return the paper's bound (28) on the mean squared distance of agents' models from their mean.

    The noise's term is times M, the coordinates, which the paper leaves out (docs/proofs/errata.md). `gap` is
    1 - lambda_2, `l2_bound` bounds gradients in the l2 norm.
    """
    second = 1 - gap
    drift = (step_size * second / gap * l2_bound) ** 2
    return drift + scale**2 * 2 * spread(weights) * dimension / gap


def descent_bound(
    step_size: float, smoothness: float, l2_bound: float, slope: float, disagreement: float
) -> float:
    """Return an upper bound on the expected change of the loss at the mean model in one step, as (30).

    -mu/2 E|grad J|^2 + mu/2 delta^2 disagreement + mu^2 delta G^2 / 2, where `slope` is E|grad J(w_c,i-1)|^2
    and `disagreement` that of i - 1, or its bound.
    """
    mu, delta = step_size, smoothness
    return -mu / 2 * slope + mu / 2 * delta**2 * disagreement + mu**2 * delta * l2_bound**2 / 2


def stationarity_bound(
    step_size: float, smoothness: float, l2_bound: float, gap: float, disagreement: float, steps: int
) -> float:
    """Return an upper bound on the mean squared gradient at the mean model over these steps, as (31).

    2 gap/(mu i) + delta^2 disagreement + mu delta G^2, which is (30) summed: `gap` is J(w_c,0) less the least
    value of J, `disagreement` the bound (28), whose noise makes the term O(b_v^2).
    """
    mu, delta = step_size, smoothness
    return 2 * gap / (mu * steps) + delta**2 * disagreement + mu * delta * l2_bound**2
