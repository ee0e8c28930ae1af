"""Gradient descent by a token whose path is known: Algorithm 4.5 on a lattice, amplified by iteration.

The proof needs steps that bring no two tokens further apart, and a rest of the step that depends on the sum
of contribution and noise alone. Here the token is a vector of integers, in units of rate times the noise's
grid step, and a step is: subtract the rounded gradient and the noise, both integers, and project. The
distance that rounding adds is bounded, and the noise is larger by that: docs/proofs/network.md, "Known
paths".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smpc_dp import ball
from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.capabilities.learn.tokens import TokenPassing, Values
from smpc_dp.capabilities.learn.walk import Limits, Path, Visit, walk
from smpc_dp.capabilities.learn.walk_sgd import Gradient, Walked
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.network.grid import Grid, check_plan, guarantee
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.sampling import NoiseSource

Integers = NDArray[np.int64]

# In each coordinate and step, in grid steps: 64 by the random rounding that a discrete Gaussian is (more with
# chance e^-500), 1 by the gradient's, 1 by its floating point, 2 by the projection's, 4 to spare.
DEFECT = 72
# What all of them together may add to the distance of two contributions, as a part of it.
_ADDED = 2.0**-10
# Sums of a few such integers are exact in float64.
_EXACT = 2.0**50
# Gradients this close to their bound would be scaled.
_INSIDE = 1 - 1e-6


class KnownWalkSgd:
    """Protocol of noisy gradient steps on a walking token whose path is known, with limits."""

    def __init__(
        self, plan: NetworkPlan, lipschitz: float, *, length: int, rate: float, radius: float
    ) -> None:
        """Plan the tokens' grid; raise ConfigError if the plan is for something else, or no grid fits.

        Args:
            plan: it counts on losses that are convex and s-smooth with rate at most 2/s, which is the
                caller's to see to.
            lipschitz: L; gradients must have norm below it.
            length: p, coordinates of the model. rate: the one step size. radius: of the ball around 0 that
                tokens are projected to.

        Raises ConfigError if the plan is for something else, or where integers would not be exact.
        """
        check_plan(plan, topology="complete", task="sgd", parties=plan.parties)
        issues = []
        if plan.paths != "known" or plan.method != "exact":
            issues.append(
                ConfigIssue("plan", "is not for known paths by the exact method", ConfigCheck.UNSUPPORTED)
            )
        for name, value in (("lipschitz", lipschitz), ("rate", rate), ("radius", radius)):
            if not 0 < value < math.inf:
                issues.append(ConfigIssue(name, f"must be above 0 and finite, is {value}", ConfigCheck.RANGE))
        if length < 1:
            issues.append(ConfigIssue("length", f"must be at least 1, is {length}", ConfigCheck.RANGE))
        if issues:
            raise ConfigError(issues)
        steps = plan.steps or 0
        spread = DEFECT * math.sqrt(length) * steps / lipschitz
        self.grid = Grid.of(
            plan,
            2 * lipschitz,
            noises=steps * length,
            least_bits=math.ceil(math.log2(spread / _ADDED)),
            stretch=1 + _ADDED,
        )
        self.plan, self.lipschitz, self.length, self.radius = plan, lipschitz, length, radius
        self.steps, self.limits = steps, Limits(plan.max_contributions, plan.edge_cap)
        self.unit = rate * self.grid.step
        self.most = int(radius / self.unit)
        largest = max(radius / self.unit, 64 * math.sqrt(float(self.grid.variance) * length))
        if largest + lipschitz / self.grid.step >= _EXACT:
            reason = f"{steps} steps of size {rate:g} need a grid that is too fine for radius {radius:g}"
            raise ConfigError.at("steps", reason, ConfigCheck.INFEASIBLE)

    def precise(self, error: float) -> bool:
        """Tell whether errors of up to `error` in a gradient's coordinates are within a grid step."""
        return error <= self.grid.step

    def move(self, token: Integers, gradient: Rows, noise: Integers, contributes: bool) -> Integers:
        """Return the integer model less noise and, if `contributes`, the gradient, projected on a ball.

        Raises ConfigError for a gradient that is not below L: the proof does not cover clipping.
        """
        if not float(np.sqrt((gradient * gradient).sum())) <= self.lipschitz * _INSIDE:
            raise ConfigError.at(
                "lipschitz", f"a gradient is not below {self.lipschitz:g}", ConfigCheck.RANGE
            )
        rounded = ball.rows_on_grid(gradient[None], self.lipschitz, self.grid.bits)[0]
        moved = token - noise - (rounded if contributes else 0)
        # In integers: the projection must depend on this sum alone.
        whole = [int(value) for value in moved]
        square, most = sum(value * value for value in whole), self.most
        if square <= most * most:
            return moved
        norm = math.isqrt(square) + 1
        return np.array([abs(value) * most // norm * (1 if value > 0 else -1) for value in whole], np.int64)

    async def run(self, tokens: TokenPassing, gradient: Gradient, source: NoiseSource) -> Walked:
        """Run the walk from zero with the gradients of the local parties; return the published model.

        Arguments as of `WalkSgd.run`. Raises ConfigError before the first step for a plan for others.
        """
        check_plan(self.plan, topology="complete", task="sgd", parties=tokens.parties)
        holder = _GradientStep(self, gradient, source)
        values: Integers = np.zeros(self.length, np.int64)
        if len(tokens.here) == tokens.parties:
            path = Path.draw(tokens.parties, self.steps, self.limits, source)
            for step, (party, before) in enumerate(zip(path.parties, path.visits, strict=True)):
                visit = Visit(int(party), step, int(before), bool(path.contributes[step]))
                values = holder.hold(values, visit)
        else:
            shadow = replace(holder, source=NoiseSource.system())
            result = await walk(tokens, holder, values, self.steps, self.limits, source, shadow)
            values = result.astype(np.int64)
        claim = guarantee(
            self.plan, self.grid.closeness, "discrete Gaussian noise on each gradient, the token on a lattice"
        )
        return Walked(self.point(values), claim)

    def point(self, token: Integers) -> NDArray[np.float64]:
        """Return the real-valued model that a token's integers stand for."""
        return np.asarray(token * self.unit, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _GradientStep:
    """Holder of a token that is an integer model: takes one noisy gradient step on its own data."""

    sgd: KnownWalkSgd
    gradient: Gradient
    source: NoiseSource

    def possible(self, values: Values, steps: int) -> bool:  # noqa: ARG002
        """Tell whether the norm of a token's integer model is within the greatest norm."""
        return sum(int(value) ** 2 for value in values) <= self.sgd.most**2

    def hold(self, values: Values, visit: Visit) -> Integers:
        """Return the model after a visit: a noisy gradient step of the party on the integer grid."""
        token = values.astype(np.int64)
        gradient = self.gradient(self.sgd.point(token)[None, :], np.array([visit.party]))[0]
        noise = self.sgd.grid.noise(self.source, len(token))
        return self.sgd.move(token, gradient, noise, visit.contributes)
