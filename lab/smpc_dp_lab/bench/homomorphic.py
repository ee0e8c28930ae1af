"""Diffusion without noise, with graph-homomorphic and with i.i.d. noise [Vlaski and Sayed 2020, Fig. 1].

The paper prints M, K, mu, rho and the variances; its graph and class means it does not. Ours are stated in
the result: a connected random graph with Metropolis weights, and means of +-1/2 in every coordinate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from smpc_dp.capabilities.learn.averager import PlainAverager, PlainExchange
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.diffusion import Gradient, Watch, diffuse, diffuse_in_groups
from smpc_dp.capabilities.learn.group_steps import GroupRun
from smpc_dp.capabilities.learn.topology import Topology, erdos_renyi, mixing_gap
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.diffusion import DiffusionNoise, Kind
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

AGENTS, DIMENSION, STEP_SIZE, RIDGE, SCALE = 20, 5, 1.0, 0.1, 1.0
STEPS, REPETITIONS = 200, 100
MEAN = 0.5
# Of the groups of one more curve, without noise.
GROUP = 4
# Clips 1 in 30 of these gradients; epsilon(i) is for gradients so bounded.
L1_BOUND = 8.0
_CHANCE = 0.25
# Points by which the optimum is found.
_POINTS = 200_000
PAPER_ORDER = ("none", "homomorphic", "iid")


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Mean square deviation of the centroid from the optimum after each step, over the repetitions.

    `final` is the mean over the last half; `epsilon` at steps 1, 10, 100, ... and the last; empty: no noise.
    """

    noise: str
    deviation: list[float]
    final: float
    epsilon: dict[int, float]


class Homomorphic(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `homomorphic_deviation`: its parameters, and a curve for each kind of noise."""

    agents: int
    dimension: int
    step_size: float
    ridge: float
    noise_variance: float
    l1_bound: float
    steps: int
    repetitions: int
    seed: int
    data: str
    edges: int
    mixing_gap: float
    seconds: float
    ranks: list[str]
    paper: tuple[str, ...]
    curves: tuple[Curve, ...]
    group: int
    averages_a_step: int
    in_groups: Curve

    def of(self, noise: str) -> Curve:
        """Return the curve of this kind of noise."""
        return next(curve for curve in self.curves if curve.noise == noise)


def homomorphic_deviation(
    *,
    steps: int = STEPS,
    repetitions: int = REPETITIONS,
    seed: int = 1,
    executor: Executor | None = None,
) -> Homomorphic:
    """Run the three recursions with the paper's parameters, `repetitions` of them side by side.

    Args:
        steps: 10 to 100,000.
        repetitions: 2 to 10,000.
        seed: of graph, data and noise, which protects nothing.

    Raises:
        ConfigError: a number is out of range.
    """
    refuse(within("steps", steps, 10, 100_000), within("repetitions", repetitions, 2, 10_000))
    started = time.perf_counter()
    topology = _graph(seed)
    weights = topology.metropolis()
    best = optimum(np.random.default_rng([seed, 1]))
    kinds: tuple[Kind | None, ...] = (None, "homomorphic", "iid")
    calls: list[tuple[Any, ...]] = [(_in_groups, best, steps, repetitions, seed)]
    calls += [(_curve, kind, best, steps, repetitions, seed) for kind in kinds]
    in_groups, *curves = run_shards(executor, _call, calls, "kind of noise")
    return Homomorphic(
        agents=AGENTS,
        dimension=DIMENSION,
        step_size=STEP_SIZE,
        ridge=RIDGE,
        noise_variance=2 * SCALE**2,
        l1_bound=L1_BOUND,
        steps=steps,
        repetitions=repetitions,
        seed=seed,
        data=f"synthetic: Gaussian features of variance 1, class means +-{MEAN} in each coordinate",
        edges=len(topology.edges),
        mixing_gap=mixing_gap(weights),
        seconds=time.perf_counter() - started,
        ranks=[curve.noise for curve in sorted(curves, key=lambda curve: curve.final)],
        paper=PAPER_ORDER,
        curves=tuple(curves),
        group=GROUP,
        averages_a_step=AGENTS // GROUP,
        in_groups=in_groups,
    )


def _call(function: Callable[..., Curve], *arguments: Any) -> Curve:
    """Call a picklable function, so that one executor runs shards of two kinds."""
    return function(*arguments)


def _curve(kind: Kind | None, best: Floats, steps: int, repetitions: int, seed: int) -> Curve:
    """Run diffusion with one kind of noise (None: without); return the deviation by step."""
    # The same data for each kind.
    rng = np.random.default_rng([seed, 2])
    noise = source = None
    if kind is not None:
        noise = DiffusionNoise.of_scale(kind, SCALE, STEP_SIZE, L1_BOUND, DIMENSION)
        source = NoiseSource.keyed(SeededRandomnessForSimulation(seed, kind).bytes(32))
    result: list[float] = []
    asyncio.run(
        diffuse(
            PlainExchange(AGENTS),
            _graph(seed).metropolis(),
            _gradient_of(rng),
            np.zeros((AGENTS, repetitions * DIMENSION)),
            steps,
            STEP_SIZE,
            ridge=RIDGE,
            noise=noise,
            source=source,
            watch=_watch_of(best, result),
        )
    )
    checkpoints = sorted({step for step in (1, 10, 100, 1_000, 10_000, steps) if step <= steps})
    return Curve(
        noise=kind or "none",
        deviation=result,
        final=float(np.mean(result[steps // 2 :])),
        epsilon={} if noise is None else {step: noise.epsilon(step) for step in checkpoints},
    )


def _in_groups(best: Floats, steps: int, repetitions: int, seed: int) -> Curve:
    """Run the recursion with exact averages of disjoint random groups as its combination step."""
    # The same data as for messages.
    rng = np.random.default_rng([seed, 2])
    result: list[float] = []
    run = GroupRun(
        PlainAverager(AGENTS),
        None,
        GroupDraws(AGENTS, GROUP, seed),
        steps,
        np.inf,
        retained=1 - STEP_SIZE * RIDGE,
        factor=-STEP_SIZE,
    )
    start = np.zeros((AGENTS, repetitions * DIMENSION))
    asyncio.run(diffuse_in_groups(run, _gradient_of(rng), start, _watch_of(best, result)))
    final = float(np.mean(result[steps // 2 :]))
    return Curve(noise=f"none, groups of {GROUP}", deviation=result, final=final, epsilon={})


def _gradient_of(rng: np.random.Generator) -> Gradient:
    """Return the gradient of (32), without its regulariser, on fresh points of each agent."""

    def gradient(models: Floats, _step: int) -> Floats:
        points = models.reshape(-1, DIMENSION)
        signed = draw(rng, len(points))
        slope = -signed * expit(-(signed * points).sum(axis=1, keepdims=True))
        return np.asarray(slope.reshape(models.shape))

    return gradient


def _watch_of(best: Floats, result: list[float]) -> Watch:
    """Return a function that appends the mean square deviation of the centroid to `result`."""

    def watch(_step: int, models: Floats) -> None:
        centroid = models.mean(axis=0).reshape(-1, DIMENSION)
        result.append(float(((centroid - best) ** 2).sum(axis=1).mean()))

    return watch


def draw(rng: np.random.Generator, count: int) -> Floats:
    """Draw features times their labels, (count, M): gamma h is N(MEAN, 1) whichever the label."""
    return rng.normal(MEAN, 1.0, size=(count, DIMENSION))


def optimum(rng: np.random.Generator) -> Floats:
    """Return the minimiser of (32), by Newton's method on many points, shape (M,)."""
    signed = draw(rng, _POINTS)
    best = np.zeros(DIMENSION)
    for _ in range(8):
        chance = expit(-(signed @ best))
        slope = -(signed * chance[:, None]).mean(axis=0) + RIDGE * best
        curvature = (signed * (chance * (1 - chance))[:, None]).T @ signed / _POINTS
        best = best - np.linalg.solve(curvature + RIDGE * np.eye(DIMENSION), slope)
    return best


def _graph(seed: int) -> Topology:
    """Return the first connected Erdos-Renyi graph of seeds from `seed` on."""
    for attempt in range(1_000):
        topology = erdos_renyi(AGENTS, _CHANCE, seed + attempt)
        if topology.connected:
            return topology
    raise ConfigError.at("seed", "no connected graph in 1,000 draws", ConfigCheck.INFEASIBLE)


def plot(result: Homomorphic, path: Path) -> None:
    """Write the plot: deviation against steps on a log axis, with epsilon(i) beside the curves.

    Errors as of `write_plot`.
    """
    write_plot(path, (7.6, 5.0), lambda axes: _draw(axes, result))


_STYLES = (
    ("iid", "i.i.d. noise", "#c2410c", (0, (4, 2))),
    ("homomorphic", "graph-homomorphic noise", "#0b3d75", "-"),
    ("none", "no noise, no privacy", "#6b7280", (0, (1, 1.5))),
)


def _draw(axes: Axes, result: Homomorphic) -> None:
    steps = np.arange(1, result.steps + 1)
    for kind, label, colour, line in _STYLES:
        curve = result.of(kind)
        axes.plot(steps, curve.deviation, color=colour, linestyle=line, linewidth=1.6, label=label)
        if curve.epsilon:
            reported = ", ".join(f"\u03b5({step}) = {value:,.0f}" for step, value in curve.epsilon.items())
            axes.annotate(
                reported,
                (result.steps, curve.final),
                xytext=(-4, 16),
                textcoords="offset points",
                color=colour,
                fontsize=9,
                ha="right",
            )
    axes.plot(
        steps,
        result.in_groups.deviation,
        color="#15803d",
        linestyle=(0, (6, 2, 1, 2)),
        linewidth=1.3,
        label=f"groups of {result.group}, exact averages, no \u03b5",
    )
    axes.set(
        yscale="log", xlabel="step i", ylabel="mean square deviation of the centroid", xlim=(0, result.steps)
    )
    finish_axes(
        axes,
        f"Diffusion: M = {result.dimension}, K = {result.agents}, \u03bc = {result.step_size:g}, "
        f"\u03c1 = {result.ridge:g}, noise of variance {result.noise_variance:g}; "
        f"gradients of \u2113\u2081 norm \u2264 {result.l1_bound:g}",
        fontsize=9,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.1),
    )
