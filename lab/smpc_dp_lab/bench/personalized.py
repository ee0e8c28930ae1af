"""Personalised models beside local ones on synthetic tasks [Bellet 2021, Fig. 2.1; Bellet et al. 2018]."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import pairwise

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.executors.shards import run_shards
from smpc_dp_lab.bench.accuracies import Accuracy, Measured
from smpc_dp_lab.bench.descents import descended
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.gossip_admm import GossipAdmm
from smpc_dp_lab.bench.linear_tasks import MOST, PARTIES, Floats, Problem, Rows, problem

# lambda_1 = 1/mu of the paper, by the rows; tuned once, on other seeds.
COUPLING: dict[Rows, float] = {"cube": 0.5, "unit": 0.25}
PRIVATE_COUPLING = 1.0
DELTA, PAPER_EPSILON, PAPER_MU = 1e-5, 0.15, 0.4
# Updates of a party on average, by epsilon: tuned once, on other seeds.
UPDATES = {0.15: 8, 1.0: 8, 3.0: 8, 10.0: 16, 30.0: 16}
DIMENSIONS = (20, 50, 100)
# Updates of a party on average without noise, from its local model.
CONVERGED = 200
# Of gossip ADMM, at the least dimension alone: it takes seconds. Ticks of a party on average; rho.
ADMM_TICKS, ADMM_PENALTY = 60, 0.1
# Accuracy by the records of a party is measured in these bins, at the largest dimension.
BINS = (10, 33, 56, 79, MOST + 1)


class Point(Accuracy, frozen=True, kw_only=True):
    """Test accuracy, mean of the parties; least and most: their records, where it is of some parties."""

    dimension: int
    rows: Rows
    least: int | None
    most: int | None


class PersonalizedSynthetic(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `personalized_synthetic`; deviations are over the problems."""

    points: tuple[Point, ...]
    problems: int
    seed: int
    seconds: float


def objective_of(tasks: Problem, rows: Rows, coupling: float) -> PersonalizedObjective:
    """Return the objective that personalised models minimise, with smoothness for this kind of rows."""
    curvature = (tasks.features.shape[2] if rows == "cube" else 1.0) / 4
    return PersonalizedObjective(tasks.weights, tasks.sizes, coupling, 1 / tasks.sizes, curvature)


def _descend(
    tasks: Problem, rows: Rows, updates: int, seed: int, epsilon: float | None, start: Floats | None = None
) -> Floats:
    """Return the models after coordinate descent; with `epsilon` by the noise of the product."""
    objective = objective_of(tasks, rows, COUPLING[rows] if epsilon is None else PRIVATE_COUPLING)
    wakes = PublicDraws(seed).below(PARTIES, updates * PARTIES)
    budget = None if epsilon is None else (epsilon, DELTA)
    return descended(objective, tasks, tasks.features.shape[2], wakes, seed, budget=budget, start=start)


def papers_models(tasks: Problem, local: Floats, seed: int, epsilon: float = PAPER_EPSILON) -> Floats:
    """Return perturbed local models after propagation (16), at scale 2/(epsilon m).

    NOT private: with the ridge 1/m a record moves a local model by an amount that does not shrink with m,
    and rows of the cube have gradients of norm far above 1.
    """
    rng, near = np.random.default_rng(seed), tasks.weights.toarray()
    near /= near.sum(axis=1, keepdims=True)
    pull = PAPER_MU * (tasks.sizes / tasks.sizes.max())[:, None]
    shown = local + rng.laplace(scale=2 / (epsilon * tasks.sizes[:, None]), size=local.shape)
    models = shown
    for _ in range(300):
        models = (near @ models + pull * shown) / (1 + pull)
    return np.asarray(models)


def _models(
    tasks: Problem, rows: Rows, epsilons: Sequence[float], seed: int, *, admm: bool
) -> Iterator[tuple[str, float | None, bool, Floats]]:
    """Yield (method, epsilon, whether it protects a record, the parties' models) for each method."""
    local = tasks.local()
    yield "local", None, True, local
    yield "pooled", None, False, tasks.pooled()
    if admm:
        run = GossipAdmm(tasks, objective_of(tasks, rows, COUPLING[rows]), local, ADMM_PENALTY, seed)
        yield "gossip ADMM", None, False, run.run(ADMM_TICKS * PARTIES)
    yield "CD", None, False, _descend(tasks, rows, CONVERGED, seed, None, local)
    if rows == "cube":
        yield "paper's scale", PAPER_EPSILON, False, papers_models(tasks, local, seed)
        return
    for epsilon in epsilons:
        yield "private CD", epsilon, True, _descend(tasks, rows, UPDATES.get(epsilon, 10), seed, epsilon)
        yield "local DP", epsilon, True, tasks.perturbed(epsilon, seed).local()


def _accuracies(
    dimensions: Sequence[int], dimension: int, epsilons: Sequence[float], seed: int, number: int
) -> list[tuple[float, dict[str, object]]]:
    """Return the accuracies of one problem, each with the fields of its point."""
    result: list[tuple[float, dict[str, object]]] = []
    bins: list[tuple[int | None, int | None]] = [(None, None)]
    if dimension == max(dimensions):
        bins += [(low, high - 1) for low, high in pairwise(BINS)]
    for rows in COUPLING:
        tasks = problem(1_000 * seed + number, dimension, rows)
        admm = dimension == min(dimensions)
        for method, epsilon, protected, models in _models(tasks, rows, epsilons, number, admm=admm):
            reached = tasks.accuracies(models)
            point = {"dimension": dimension, "rows": rows, "method": method, "epsilon": epsilon}
            for least, most in bins:
                of = reached[(tasks.sizes >= (least or 0)) & (tasks.sizes <= (most or MOST))]
                result.append(
                    (float(of.mean()), {**point, "protected": protected, "least": least, "most": most})
                )
    return result


def personalized_synthetic(
    dimensions: Sequence[int] = DIMENSIONS,
    epsilons: Sequence[float] = tuple(UPDATES),
    *,
    problems: int = 10,
    seed: int = 1,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> PersonalizedSynthetic:
    """Measure test accuracies of local, collaborative and private models.

    Raises:
        ConfigError: an argument is out of range.
    """
    refuse(
        within("problems", problems, 1, 100),
        *(within("dimension", dimension, 2, 1_000) for dimension in dimensions),
    )
    began, measured = time.perf_counter(), Measured()
    count = Steps(progress, "problems", problems * len(dimensions))
    calls = [(dimensions, dimension, epsilons, seed, n) for dimension in dimensions for n in range(problems)]
    for reached in run_shards(executor, _accuracies, calls, "problem"):
        for accuracy, of in reached:
            measured.add(accuracy, **of)
        count()
    took = time.perf_counter() - began
    return PersonalizedSynthetic(points=measured.points(Point), problems=problems, seed=seed, seconds=took)
