"""Personalised models of movie ratings beside local ones [Bellet et al. 2018, Table 1].

The paper's private rows are not private at their epsilon: features and graph are exact functions of the
ratings, and a party's mean, which is subtracted from each of its m ratings, moves all its residuals when one
rating changes: by up to 2 (r_max - r_min) B_phi/m, 8 B_phi/m for 1 to 5, in the l1 norm of the mean gradient.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.learn.averager import PlainExchange
from smpc_dp.learn.coordinate_descent import Gradients, PersonalizedObjective, descend
from smpc_dp.learn.schedule import PublicDraws
from smpc_dp.privacy.accountant.theorems import kairouz_oh_viswanath
from smpc_dp.privacy.record_gradients import grid_bits, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.accuracies import Measured
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot
from smpc_dp_lab.bench.ratings import Floats, Ratings, Tasks, public_tasks, published_tasks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# 1/mu of the paper; delta of its advanced composition; updates of a party, which the paper tunes.
PUBLISHED_COUPLING, PUBLISHED_DELTA, PUBLISHED_UPDATES = 25.0, math.exp(-5), 5
PUBLISHED_EPSILONS, EPSILONS, DELTA = (1.0, 0.5, 0.1), (30.0, 10.0, 3.0, 1.0, 0.1), 1e-6
# Tuned once, on other seeds; couplings with noise by epsilon.
COUPLING, UPDATES, CONVERGED = 0.01, 6, 30
PRIVATE_COUPLING = {30.0: 0.03, 10.0: 0.03, 3.0: 0.03, 1.0: 0.1, 0.1: 1.0}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Root mean squared test error of a party, mean of the parties; deviation: over the splits."""

    features: str
    method: str
    epsilon: float | None
    protected: bool
    rmse: float
    deviation: float


class Movielens(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `movielens`."""

    points: tuple[Point, ...]
    data: str
    parties: int
    movies: int
    ratings: int
    problems: int
    seed: int
    seconds: float


@dataclass(frozen=True)
class PublishedNoise:
    """Mean gradients of clipped records with Laplace noise of the paper's scale 2 C/(epsilon_t m)."""

    tasks: Tasks
    epsilon: float
    rng: np.random.Generator

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return noisy gradients."""
        result = np.empty_like(models)
        for index, (party, model) in enumerate(zip(rows, models, strict=True)):
            slopes, clip = self.tasks.slopes(int(party), model), self.tasks.clip
            slopes /= np.maximum(1, np.linalg.norm(slopes, axis=1, keepdims=True) / clip)
            scale = 2 * clip / (self.epsilon * len(slopes))
            result[index] = slopes.mean(axis=0) + self.rng.laplace(scale=scale, size=len(model))
        return result

    def contributions(
        self, models: Floats, rows: NDArray[np.intp], factor: Floats, bits: int
    ) -> NDArray[np.int64]:
        """See `coordinate_descent.Gradients`; the paper's noise is not on a grid."""
        return self.tasks.contributions(models, rows, factor, bits)


def split_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the largest epsilon of each of `count` mechanisms that compose to `epsilon`, by bisection."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        within_it = kairouz_oh_viswanath([(middle, 0.0)] * count, delta)[0] <= epsilon
        low, high = (middle, high) if within_it else (low, middle)
    return low


def _descend(
    tasks: Tasks,
    gradients: Gradients,
    coupling: float,
    updates: int,
    seed: int,
    *,
    epsilon: float | None = None,
    start: Floats | None = None,
) -> Floats:
    """Return the models after so many updates of a party, on average; `epsilon`: with the product's noise."""
    sizes, parties = tasks.sizes, len(tasks.sizes)
    reach = max(float((one**2).sum(axis=1).max()) for one in tasks.features)
    objective = PersonalizedObjective(tasks.weights, sizes, coupling, 1 / sizes, 2 * reach)
    wakes = PublicDraws(1 + seed).below(parties, updates * parties)
    bits, noise, source = 30, None, None
    if epsilon is not None:
        reaches, counts = tasks.clip * objective.reaches, np.bincount(wakes, minlength=parties)
        bits, source = grid_bits(reaches), NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
        noise = [
            plan_gradient_noise(epsilon, DELTA, [1.0] * max(1, int(count)), float(one), bits)
            for count, one in zip(counts, reaches, strict=True)
        ]
    length = tasks.features[0].shape[1]
    return asyncio.run(
        descend(
            PlainExchange(parties),
            objective,
            gradients,
            length,
            wakes,
            bits,
            start=start,
            noise=noise,
            source=source,
        )
    )


def _measures(
    given: Ratings, published: Sequence[float], epsilons: Sequence[float], seed: int
) -> Iterator[tuple[str, str, float | None, bool, float]]:
    """Yield kind of features, method, epsilon, whether it holds for a rating, and the error."""
    kinds = (("as published", published_tasks, PUBLISHED_COUPLING), ("public", public_tasks, COUPLING))
    for features, make, coupling in kinds:
        tasks, of_public = make(given, seed), features == "public"
        local = tasks.local()
        yield features, "offset alone", None, of_public, tasks.rmse(local * 0)
        yield features, "local", None, of_public, tasks.rmse(local)
        reached = _descend(tasks, tasks, coupling, CONVERGED, seed, start=local)
        yield features, "CD", None, False, tasks.rmse(reached)
        for epsilon in epsilons if of_public else published:
            if of_public:
                models = _descend(
                    tasks, tasks, PRIVATE_COUPLING.get(epsilon, 0.1), UPDATES, seed, epsilon=epsilon
                )
            else:
                # A party updates about so often, and as often as that its budget is split.
                each = split_epsilon(epsilon, PUBLISHED_UPDATES, PUBLISHED_DELTA)
                noisy = PublishedNoise(tasks, each, np.random.default_rng([seed, 7]))
                models = _descend(tasks, noisy, coupling, PUBLISHED_UPDATES, seed)
            yield features, "private CD", epsilon, of_public, tasks.rmse(models)


def movielens(
    given: Ratings,
    *,
    published: Sequence[float] = PUBLISHED_EPSILONS,
    epsilons: Sequence[float] = EPSILONS,
    problems: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
) -> Movielens:
    """Measure test errors over `problems` splits; raise ConfigError for arguments out of range."""
    refuse(within("problems", problems, 1, 100), within("parties", given.shape[0], 20))
    began, measured, count = time.perf_counter(), Measured(), Steps(progress, "splits", problems)
    for number in range(problems):
        for features, method, epsilon, protected, rmse in _measures(
            given, published, epsilons, 1_000 * seed + number
        ):
            measured.add(rmse, features=features, method=method, epsilon=epsilon, protected=protected)
        count()
    parties, movies = given.shape
    return Movielens(
        points=measured.points(Point, "rmse"),
        data=given.name,
        parties=parties,
        movies=movies,
        ratings=len(given.table),
        problems=problems,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def plot(result: Movielens, path: Path) -> None:
    """Write the errors against epsilon, with the lines without privacy."""

    def panel(axes: Axes, features: str) -> None:
        of = [point for point in result.points if point.features == features]
        private = sorted((point.epsilon or 0.0, point.rmse) for point in of if point.epsilon is not None)
        holds = all(point.protected for point in of if point.epsilon is not None)
        axes.plot(*zip(*private, strict=True), "o-" if holds else "s:", label="private CD")
        for index, point in enumerate(point for point in of if point.epsilon is None):
            axes.axhline(point.rmse, color=f"C{index + 1}", linestyle="--", label=point.method)
        axes.set(xscale="log", xlabel="epsilon of one rating", ylabel="test RMSE")
        finish_axes(axes, f"features {features}" + ("" if holds else ": epsilon does NOT hold"), fontsize=8)

    kinds = dict.fromkeys(point.features for point in result.points)
    write_plot(path, (10.0, 4.2), *(lambda axes, of=of: panel(axes, of) for of in kinds), title=result.data)
