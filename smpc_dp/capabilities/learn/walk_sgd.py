"""Gradient descent by a token on a random walk over the complete graph [Bellet 2021, Algorithm 4.5].

The holder subtracts its gradient, clipped to norm L and rounded to a grid, with exact noise, and projects.
One step is written once, for many walks side by side in a simulation and for one between processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp import ball
from smpc_dp.capabilities.learn.averager import Parties, Rows
from smpc_dp.capabilities.learn.tokens import TokenPassing, Values
from smpc_dp.capabilities.learn.walk import Limits, Visit, check_paths, walk
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.network.grid import Grid, check_plan, guarantee
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.sampling import NoiseSource, uniform

Integers = NDArray[np.int64]
# The parties' gradients, (rows, p), each at its own point: points (rows, p) and parties (rows,).
Gradient = Callable[[Rows, Parties], Rows]

_BLOCK = 1_000
_FAR = 1e12


@dataclass(frozen=True, slots=True)
class SgdNoise:
    """Noise for gradients of norm at most `lipschitz`, on a grid; without a plan nothing is claimed.

    `silent`: a party that has spent its contributions passes the token on unchanged; else it adds noise
    alone.
    """

    parties: int
    steps: int
    lipschitz: float
    grid: Grid
    limits: Limits
    silent: bool
    plan: NetworkPlan | None

    @classmethod
    def of(cls, plan: NetworkPlan, lipschitz: float) -> SgdNoise:
        """Return the noise of a plan by `plan_walk("sgd", ...)`; raise ConfigError for known paths.

        Raises ConfigError if the plan is for something else, for a smaller L, or for known paths: its
        amplification by iteration is proven for continuous steps, and rounded gradients are none.
        """
        check_plan(plan, topology="complete", task="sgd", parties=plan.parties)
        if plan.paths == "known" or plan.method == "theorem":
            reason = (
                "rests on amplification by iteration, which is not proven for gradients rounded to a grid; "
                "plan with --paths neighbours or hidden and --method exact, or use walk_known.KnownWalkSgd"
            )
            raise ConfigError.at("plan", reason, ConfigCheck.UNSUPPORTED)
        steps = plan.steps or 0
        grid = Grid.of(plan, 2 * lipschitz, noises=steps * 1_000_000)
        return cls(plan.parties, steps, lipschitz, grid, Limits(), False, plan)

    @property
    def claim(self) -> str:
        """The sentence that says which data the noise on gradients protects, and against whom."""
        if self.plan is None:
            return "NO CLAIM: noise for an experiment, not planned"
        return self.plan.assumption

    def draw(self, source: NoiseSource, count: int) -> Integers:
        """Return `count` draws of the gradients' noise, in grid steps."""
        return self.grid.noise(source, count) if self.grid.variance else np.zeros(count, np.int64)


@dataclass(frozen=True, slots=True)
class Walks:
    """Result of simulated walks: the models at the end, and after chosen steps.

    `tokens`: shape (walks, p), the final tokens; `trace`: after each `every` steps, (k, walks, p).
    """

    tokens: Rows
    trace: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Walked:
    """Result of gradient descent by a token on a random walk: the published model with its privacy.

    `token`: shape (p,); `guarantee` is None for the noise of a study.
    """

    token: NDArray[np.float64]
    guarantee: PrivacyGuarantee | None


class WalkSgd:
    """Protocol of noisy projected gradient steps on a token that walks at random among parties."""

    def __init__(
        self,
        noise: SgdNoise,
        step_sizes: ArrayLike,
        *,
        radius: float | None = None,
        shorten: float | None = None,
    ) -> None:
        """Set gamma(t), a number or of shape (T,), and the radius of the ball C around 0, None for R^p.

        `shorten`: noisy gradients are scaled to at most this norm, which is post-processing and makes steps
        biased. Raises ConfigError for steps that are not positive and finite, or not T of them.
        """
        sizes = np.asarray(step_sizes, dtype=np.float64)
        issues = []
        if sizes.shape not in ((), (noise.steps,)):
            issues.append(
                ConfigIssue(
                    "step_sizes",
                    f"must be one or {noise.steps}, are of shape {sizes.shape}",
                    ConfigCheck.SHAPE,
                )
            )
        elif not np.all(np.isfinite(sizes) & (sizes > 0)):
            issues.append(ConfigIssue("step_sizes", "must be finite and above 0", ConfigCheck.RANGE))
        for name, value in (("radius", radius), ("shorten", shorten)):
            if value is not None and not 0 < value < math.inf:
                issues.append(ConfigIssue(name, f"must be above 0 and finite, is {value}", ConfigCheck.RANGE))
        if issues:
            raise ConfigError(issues)
        self.noise, self.radius, self.shorten = noise, radius, shorten
        self.step_sizes = np.broadcast_to(sizes, (noise.steps,))

    @property
    def plan(self) -> NetworkPlan | None:
        """The plan of the gradients' noise; None for the noise of a study."""
        return self.noise.plan

    @property
    def grid(self) -> Grid:
        """The grid of values to which gradients and noise are rounded."""
        return self.noise.grid

    def move(
        self, tokens: Rows, gradients: Rows, noise: Integers, contributes: NDArray[np.bool_], size: ArrayLike
    ) -> Rows:
        """Return several walks' models after one noisy gradient step; raise ConfigError if one diverges.

        Gradients and noise have shape (walks, p), `contributes` (walks,). Raises ConfigError where the
        descent diverges.
        """
        if not np.isfinite(gradients).all():
            raise ConfigError.at(
                "step_sizes", "the descent diverges: a gradient is not finite", ConfigCheck.INFEASIBLE
            )
        grid = ball.rows_on_grid(gradients, self.noise.lipschitz, self.noise.grid.bits)
        if self.noise.silent:
            noise = noise * contributes[:, None]
        noisy = np.ldexp((grid * contributes[:, None] + noise).astype(np.float64), -self.noise.grid.bits)
        if self.shorten is not None:
            noisy = _within(noisy, _norms(noisy), self.shorten)
        moved = tokens - np.asarray(size) * noisy
        norms = _norms(moved)
        if not float(norms.max()) < _FAR:
            reason = f"the descent diverges: a token of norm {float(norms.max()):.3g}"
            raise ConfigError.at("step_sizes", reason, ConfigCheck.INFEASIBLE)
        return moved if self.radius is None else _within(moved, norms, self.radius)

    def simulate(
        self,
        gradient: Gradient,
        start: NDArray[np.float64],
        source: NoiseSource,
        *,
        walks: int = 1,
        scale: NDArray[np.float64] | None = None,
        every: int | None = None,
    ) -> Walks:
        """Run independent simulated walks side by side, and return their models.

        Args:
            gradient: of all parties.
            start: shape (p,), the token at the start.
            walks: how many; each is a run with its own path and noise.
            scale: shape (walks,), multiplies the step sizes of each; None is 1.
            every: how often the trace is written, None for never.
        """
        n, steps, p = self.noise.parties, self.noise.steps, len(start)
        tokens = np.tile(np.asarray(start, dtype=np.float64), (walks, 1))
        factor = np.ones((walks, 1)) if scale is None else np.asarray(scale, dtype=np.float64)[:, None]
        held = np.zeros((walks, n), np.int64)
        each, trace = np.arange(walks), []
        limited = self.noise.limits.contributions is not None
        for begin in range(0, steps, _BLOCK):
            count = min(_BLOCK, steps - begin)
            paths = uniform(source, count * walks, n).reshape(count, walks)
            noise = self.noise.draw(source, count * walks * p).reshape(count, walks, p)
            for t in range(count):
                step, parties = begin + t, paths[t]
                visit = held[each, parties]
                contributes = np.broadcast_to(self.noise.limits.allows(step, visit, 0, steps), (walks,))
                if limited and step:
                    held[each, parties] += 1
                size = self.step_sizes[step] * factor
                tokens = self.move(tokens, gradient(tokens, parties), noise[t], contributes, size)
                if every is not None and (step + 1) % every == 0:
                    trace.append(tokens)
        return Walks(tokens, np.array(trace) if trace else np.zeros((0, walks, p)))

    async def run(
        self, tokens: TokenPassing, gradient: Gradient, start: NDArray[np.float64], source: NoiseSource
    ) -> Walked:
        """Run the walk with the gradients of the local parties; return the published model.

        `gradient` is called for local parties alone. `source` is `NoiseSource.system()` in a real run, and
        draws paths as well. Raises ConfigError before the first step for a plan for others.
        """
        plan, start = self.noise.plan, np.asarray(start, dtype=np.float64)
        if tokens.parties != self.noise.parties:
            raise ConfigError.at(
                "plan",
                f"is for {self.noise.parties} parties, the network has {tokens.parties}",
                ConfigCheck.DIFFERS,
            )
        if start.ndim != 1 or not np.isfinite(start).all():
            raise ConfigError.at("start", "must be one finite vector", ConfigCheck.SHAPE)
        if plan is not None:
            check_paths(plan, tokens)
        if len(tokens.here) == tokens.parties:
            result = self.simulate(gradient, start, source).tokens[0]
        else:
            holder = _GradientStep(self, gradient, source)
            shadow, limits = replace(holder, source=NoiseSource.system()), self.noise.limits
            result = await walk(tokens, holder, start, self.noise.steps, limits, source, shadow)
        claim = None
        if plan is not None:
            claim = guarantee(plan, self.noise.grid.closeness, "discrete Gaussian noise on each gradient")
        return Walked(result.astype(np.float64), claim)


@dataclass(frozen=True, slots=True)
class _GradientStep:
    """Holder of a token that is a model: takes one noisy gradient step on its own data."""

    sgd: WalkSgd
    gradient: Gradient
    source: NoiseSource

    def possible(self, values: Values, steps: int) -> bool:  # noqa: ARG002
        """Tell whether a model's norm is within the radius, if the settings have one."""
        # A value whose square overflows is out of bounds anyhow.
        if not float(np.abs(values).max()) < _FAR:
            return False
        norm, radius = float(_norms(values.astype(np.float64)[None, :])[0]), self.sgd.radius
        return norm < _FAR if radius is None else norm <= radius * (1 + 1e-9)

    def hold(self, values: Values, visit: Visit) -> Values:
        """Return the token's model after a visit: one noisy gradient step of the holding party."""
        token = values.astype(np.float64)[None, :]
        noise = self.sgd.noise.draw(self.source, token.shape[1])[None, :]
        gradients = self.gradient(token, np.array([visit.party]))
        moved = self.sgd.move(
            token, gradients, noise, np.array([visit.contributes]), self.sgd.step_sizes[visit.step]
        )
        return np.asarray(moved[0], dtype=np.float64)


def _norms(rows: Rows) -> NDArray[np.float64]:
    """Return the L2 norm of each row of a matrix.

    Row by row, so that one walk is the same alone and beside others, to the last bit.
    """
    return np.asarray(np.sqrt((rows * rows).sum(axis=1)))


def _within(rows: Rows, norms: NDArray[np.float64], radius: float) -> Rows:
    """Return rows, each scaled down to a norm of at most `radius` if its given norm is larger."""
    return rows * np.minimum(1.0, radius / np.maximum(norms, 1e-300))[:, None]


def proposition_4_1(
    diameter: float, lipschitz: float, sigma: float, dimension: int, steps: int
) -> tuple[NDArray[np.float64], float]:
    """Return step sizes of private gradient descent, D/(G sqrt(t)), and the bound on its excess loss.

    G^2 = L^2 + p sigma^2, which for the classical Gaussian is the printed one.
    """
    big = math.sqrt(lipschitz**2 + dimension * sigma**2)
    sizes = diameter / (big * np.sqrt(np.arange(1, steps + 1)))
    return sizes, 2 * diameter * big * (2 + math.log(steps)) / math.sqrt(steps)
