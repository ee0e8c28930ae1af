"""Private gradient descent by a curator, by a walking token and locally [Bellet 2021, Fig. 4.1].

Twice: with the sigmas of the published script (`dp_sgd.published_sigmas`), which are not comparable among
themselves, and with all three under one relation and the best accounting at hand. As in the script gradients
are taken to have norm 0.4 (here they are clipped to it), and noisy ones are shortened to that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from smpc_dp.capabilities.learn.walk_sgd import SgdNoise, WalkSgd
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.dp_sgd import SgdPlan, plan_sgd
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.houses import Houses, load_houses, synthetic_houses
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, write_plot
from smpc_dp_lab.bench.sgd_studies import Logistic, unplanned_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Method = Literal["central", "network", "local"]

PARTIES, POINTS, STEPS, DELTA, LIPSCHITZ = 2_000, 8, 20_000, 1e-6, 0.4
EPSILONS, RUNS = (10.0, 1.0), 20
METHODS: tuple[Method, ...] = ("central", "network", "local")
# Those of the script, for each of METHODS.
SCRIPT_STEP_SIZES = (0.03416667, 0.03416667, 0.06733333)
# With fair sigmas we tune in the paper's range; what tuning gives away is not accounted for there, nor here.
STEP_SIZES = tuple(float(size) for size in np.geomspace(1e-4, 2.0, 10))
_TUNING = 10
_CHECKPOINTS = 40


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One method at one epsilon: means over the runs, and the standard deviation of the accuracy.

    `trace`: mean accuracy at each of `NetworkSgd.checkpoints`.
    """

    epsilon: float
    sigmas: Literal["published", "fair"]
    method: Method
    sigma: float
    step_size: float
    accuracy: float
    deviation: float
    objective: float
    trace: list[float]


class NetworkSgd(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `network_sgd`: its parameters, the accuracy without privacy, and the points."""

    parties: int
    points_each: int
    steps: int
    delta: float
    lipschitz: float
    max_contributions: int
    runs: int
    seed: int
    data: str
    accuracy: float
    """Of logistic regression without privacy."""
    checkpoints: list[int]
    seconds: float
    warnings: list[str]
    points: tuple[Point, ...]

    def of(self, sigmas: str, epsilon: float) -> list[Point]:
        """Return the points with these noise levels ("published" or "fair") and this epsilon."""
        return [point for point in self.points if (point.sigmas, point.epsilon) == (sigmas, epsilon)]


def network_sgd(
    houses: Path | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    parties: int = PARTIES,
    steps: int = STEPS,
    delta: float = DELTA,
    runs: int = RUNS,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> NetworkSgd:
    """Train by all methods: with the script's step sizes, or tuned for each on other draws; see the module.

    Args:
        houses: the California houses, 9 columns without a header, .csv or .csv.gz; None for synthetic data.
        parties: n, 10 to 2,000, who have 8 points each.
        steps: T, 1,000 to 1,000,000.
        runs: 2 to 1,000. seed: of splits, paths and noise, which protect nothing here.

    Raises:
        ConfigError: a number is out of range, or the file is no such table. OSError: it cannot be read.
    """
    refuse(
        within("parties", parties, 10, PARTIES),
        within("steps", steps, 1_000, 1_000_000),
        within("runs", runs, 2, 1_000),
        [] if epsilons else [ConfigIssue("epsilon", "give at least one", ConfigCheck.RANGE)],
    )
    started = time.perf_counter()
    plans = {epsilon: plan_sgd(parties, steps, epsilon, delta, lipschitz=LIPSCHITZ) for epsilon in epsilons}
    data = synthetic_houses(seed) if houses is None else load_houses(houses)
    train, test, labels = split = _split(data, parties, seed)
    checkpoints = [steps * (marker + 1) // _CHECKPOINTS for marker in range(_CHECKPOINTS)]
    result, warnings = [], []
    settings = [
        (epsilon, kind, method)
        for epsilon in epsilons
        for kind in ("published", "fair")
        for method in METHODS
    ]
    calls = [(plans[epsilon], epsilon, *of, split, runs, seed) for epsilon, *of in settings]
    count = Steps(progress, "settings", len(settings))
    for point, (epsilon, *_) in zip(run_shards(executor, _point, calls, "setting"), settings, strict=True):
        if point is None:
            warnings += [text for text in plans[epsilon].warnings if text not in warnings]
        else:
            result.append(point)
        count()
    first = plans[epsilons[0]]
    return NetworkSgd(
        parties=parties,
        points_each=POINTS,
        steps=steps,
        delta=delta,
        lipschitz=LIPSCHITZ,
        max_contributions=first.max_contributions,
        runs=runs,
        seed=seed,
        data=data.name,
        accuracy=float(_accuracy(_plain(train)[None, :], test, labels)[0]),
        checkpoints=checkpoints,
        seconds=time.perf_counter() - started,
        warnings=warnings,
        points=tuple(result),
    )


def _point(
    plan: SgdPlan,
    epsilon: float,
    kind: str,
    method: Method,
    split: tuple[Logistic, Floats, Floats],
    runs: int,
    seed: int,
) -> Point | None:
    """Train by one method; return None where the script has no sigma."""
    train, test, labels = split
    chosen = plan.published if kind == "published" else plan.fair
    if chosen is None:
        return None
    source = NoiseSource.keyed(SeededRandomnessForSimulation(seed, f"{epsilon} {kind} {method}").bytes(32))
    sgd = WalkSgd(_noise(plan, kind, method), 1.0, shorten=LIPSCHITZ)
    start = np.zeros(train.features.shape[2])
    size = SCRIPT_STEP_SIZES[METHODS.index(method)]
    if kind == "fair":
        walks = _TUNING * len(STEP_SIZES)
        tried = sgd.simulate(train.gradient, start, source, walks=walks, scale=np.repeat(STEP_SIZES, _TUNING))
        losses = train.objective(tried.tokens).reshape(-1, _TUNING).mean(axis=1)
        size = STEP_SIZES[int(losses.argmin())]
    every, scale = plan.steps // _CHECKPOINTS, np.full(runs, size)
    done = sgd.simulate(train.gradient, start, source, walks=runs, scale=scale, every=every)
    hits = np.array([_accuracy(tokens, test, labels) for tokens in done.trace[:_CHECKPOINTS]])
    final = _accuracy(done.tokens, test, labels)
    return Point(
        epsilon=epsilon,
        sigmas="published" if kind == "published" else "fair",
        method=method,
        sigma=getattr(chosen, method),
        step_size=size,
        accuracy=float(final.mean()),
        deviation=float(final.std(ddof=1)),
        objective=float(train.objective(done.tokens).mean()),
        trace=hits.mean(axis=1).tolist(),
    )


def _noise(plan: SgdPlan, kind: str, method: Method) -> SgdNoise:
    """Return the noise of a method by the published noise levels, or by fair ones.

    The script limits contributions of local and network; the fair plans limit those of local alone.
    """
    chosen = plan.fair if kind == "fair" or plan.published is None else plan.published
    limited = method == "local" or (method == "network" and kind == "published")
    return unplanned_noise(
        plan.parties,
        plan.steps,
        getattr(chosen, method),
        lipschitz=LIPSCHITZ,
        max_contributions=plan.max_contributions if limited else None,
        silent=method == "local",
    )


def _split(data: Houses, parties: int, seed: int) -> tuple[Logistic, Floats, Floats]:
    """Split the data into 4/5 for the parties, stratified, and the rest for the test.

    Standardised, scaled to norm 1, with a one appended.
    """
    features = (data.features - data.features.mean(axis=0)) / data.features.std(axis=0)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    rng = np.random.default_rng([seed, 3])
    train, test = [], []
    for label in (-1.0, 1.0):
        rows = rng.permutation(np.flatnonzero(data.labels == label))
        train.append(rows[: len(rows) * 4 // 5])
        test.append(rows[len(rows) * 4 // 5 :])
    chosen = rng.permutation(np.concatenate(train))[: parties * POINTS]
    others = np.concatenate(test)
    party_count = Logistic(
        features[chosen].reshape(parties, POINTS, -1), data.labels[chosen].reshape(parties, POINTS)
    )
    return party_count, features[others], data.labels[others]


def _accuracy(tokens: Floats, features: Floats, labels: Floats) -> Floats:
    return np.asarray(((tokens @ features.T) * labels > 0).mean(axis=1))


def _plain(train: Logistic) -> Floats:
    """Return the logistic regression model of all points without privacy, by Newton's method."""
    signed = (train.features * train.labels[:, :, None]).reshape(-1, train.features.shape[2])
    best = np.zeros(signed.shape[1])
    for _ in range(25):
        chance = expit(-(signed @ best))
        slope = -(signed * chance[:, None]).mean(axis=0)
        curvature = (signed * (chance * (1 - chance))[:, None]).T @ signed / len(signed)
        best = best - np.linalg.solve(curvature + 1e-9 * np.eye(len(best)), slope)
    return best


def plot(result: NetworkSgd, path: Path) -> None:
    """Write the plot: test accuracy against steps, the script's sigmas dashed, the fair ones drawn through.

    Errors as of `write_plot`.
    """
    write_plot(path, (8.4, 5.4), lambda axes: _draw(axes, result))


_COLOURS = {"central": "#6b7280", "network": "#0b3d75", "local": "#c2410c"}
_MARKERS = ("o", "s", "^", "D")


def _draw(axes: Axes, result: NetworkSgd) -> None:
    axes.axhline(result.accuracy, color="#111827", linewidth=1.0, linestyle=":")
    axes.annotate(
        f"no privacy: {result.accuracy:.3f}",
        (result.checkpoints[0], result.accuracy),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=9,
    )
    epsilons = list(dict.fromkeys(point.epsilon for point in result.points))
    for point in result.points:
        axes.plot(
            result.checkpoints,
            point.trace,
            color=_COLOURS[point.method],
            linestyle="-" if point.sigmas == "fair" else (0, (4, 2)),
            linewidth=1.4,
            marker=_MARKERS[epsilons.index(point.epsilon) % len(_MARKERS)],
            markersize=4,
            markevery=6,
            label=f"\u03b5 = {point.epsilon:g}, {point.sigmas}, {point.method}: "
            f"\u03c3 = {point.sigma:.3g}, {point.accuracy:.3f}",
        )
    axes.set(xlabel="step", ylabel="test accuracy", xlim=(0, result.steps * 1.01))
    name = "houses" if result.data.startswith("California") else "synthetic houses"
    finish_axes(
        axes,
        f"Gradient descent, n = {result.parties:,} users of {result.points_each} points ({name}), "
        f"T = {result.steps:,}, \u03b4 = {result.delta:g}, mean of {result.runs} runs",
        fontsize=8,
        **BESIDE,
    )
