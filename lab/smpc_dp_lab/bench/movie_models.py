"""Personalised models of movie ratings, as published and private [Bellet et al. 2018, Table 1].

The paper's private rows are not private at their epsilon: see `published_ratings`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from smpc_dp.capabilities.learn.coordinate_descent import Gradients
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench import published_ratings
from smpc_dp_lab.bench.accuracies import Measured
from smpc_dp_lab.bench.descents import descended
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.gossip_admm import GossipAdmm
from smpc_dp_lab.bench.plots import BESIDE, finish_axes, log_ticks, write_plot
from smpc_dp_lab.bench.rating_tasks import Floats, Tasks, public_tasks
from smpc_dp_lab.bench.ratings import Ratings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED_EPSILONS, EPSILONS, DELTA = (1.0, 0.5, 0.1), (30.0, 10.0, 3.0, 1.0, 0.1), 1e-6
# Tuned once, on other seeds; couplings with noise by epsilon.
COUPLING, UPDATES, CONVERGED = 0.01, 6, 30
PRIVATE_COUPLING = {30.0: 0.03, 10.0: 0.03, 3.0: 0.03, 1.0: 0.1, 0.1: 1.0}
# Of gossip ADMM: ticks of a party on average; rho over the coupling.
ADMM_TICKS, ADMM_PENALTY = 20, 0.1


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One method's test RMSE, a mean over parties, and its standard deviation over the splits."""

    features: str
    method: str
    epsilon: float | None
    protected: bool
    rmse: float
    deviation: float


class Movielens(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `movielens`: the points, with the numbers of parties, movies and ratings."""

    points: tuple[Point, ...]
    data: str
    parties: int
    movies: int
    ratings: int
    problems: int
    seed: int
    seconds: float


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
    objective, parties = tasks.objective(coupling), len(tasks.sizes)
    wakes = PublicDraws(1 + seed).below(parties, updates * parties)
    budget, length = None if epsilon is None else (epsilon, DELTA), tasks.features[0].shape[1]
    return descended(objective, gradients, length, wakes, seed, budget=budget, clip=tasks.clip, start=start)


def _measures(
    given: Ratings, published: Sequence[float], epsilons: Sequence[float], seed: int
) -> Iterator[tuple[str, str, float | None, bool, float]]:
    """Yield (kind of features, method, epsilon, if it protects a rating, test error) for one split."""
    kinds = (
        ("as published", published_ratings.published_tasks, published_ratings.COUPLING),
        ("public", public_tasks, COUPLING),
    )
    for features, make, coupling in kinds:
        tasks, of_public = make(given, seed), features == "public"
        local = tasks.local()
        yield features, "offset alone", None, of_public, tasks.rmse(local * 0)
        yield features, "local", None, of_public, tasks.rmse(local)
        yield features, "pooled", None, False, tasks.rmse(tasks.pooled())
        admm = GossipAdmm(tasks, tasks.objective(coupling), local, ADMM_PENALTY * coupling, seed)
        yield features, "gossip ADMM", None, False, tasks.rmse(admm.run(ADMM_TICKS * len(local)))
        reached = _descend(tasks, tasks, coupling, CONVERGED, seed, start=local)
        yield features, "CD", None, False, tasks.rmse(reached)
        for epsilon in epsilons if of_public else published:
            if of_public:
                models = _descend(
                    tasks, tasks, PRIVATE_COUPLING.get(epsilon, 0.1), UPDATES, seed, epsilon=epsilon
                )
            else:
                noisy = published_ratings.published_noise(tasks, epsilon, seed)
                models = _descend(tasks, noisy, coupling, published_ratings.UPDATES, seed)
            yield features, "private CD", epsilon, of_public, tasks.rmse(models)


def _split(*given: Any) -> list[tuple[str, str, float | None, bool, float]]:
    """Return all that `_measures` yields as a list, in a form that an executor can call."""
    return list(_measures(*given))


def movielens(
    given: Ratings,
    *,
    published: Sequence[float] = PUBLISHED_EPSILONS,
    epsilons: Sequence[float] = EPSILONS,
    problems: int = 5,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Movielens:
    """Measure test errors over `problems` splits; raise ConfigError for arguments out of range."""
    refuse(within("problems", problems, 1, 100), within("parties", given.shape[0], 20))
    began, measured, count = time.perf_counter(), Measured(), Steps(progress, "splits", problems)
    calls = [(given, published, epsilons, 1_000 * seed + number) for number in range(problems)]
    for split in run_shards(executor, _split, calls, "split"):
        for features, method, epsilon, protected, rmse in split:
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
        axes.set(xlabel="epsilon of one rating", ylabel="test RMSE")
        log_ticks(axes, (point.epsilon for point in of if point.epsilon))
        heading = f"features {features}" + ("" if holds else ": epsilon does NOT hold")
        finish_axes(axes, heading, fontsize=8, **BESIDE)

    kinds = dict.fromkeys(point.features for point in result.points)
    write_plot(path, (12.0, 4.2), *(lambda axes, of=of: panel(axes, of) for of in kinds), title=result.data)
