"""Personalised models beside local ones on synthetic tasks [Bellet 2021, Fig. 2.1; Bellet et al. 2018]."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from smpc_dp.learn.averager import PlainExchange
from smpc_dp.learn.coordinate_descent import PersonalizedObjective, descend
from smpc_dp.learn.schedule import PublicDraws
from smpc_dp.privacy.record_gradients import contributions, grid_bits, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench.figures import refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
Rows = Literal["cube", "unit"]

PARTIES, FLIPPED, SPREAD, LEAST_WEIGHT, TESTED = 100, 0.05, 0.1, 0.01, 100
# lambda_1 = 1/mu of the paper, by the rows; tuned once, on other seeds.
COUPLING: dict[Rows, float] = {"cube": 0.5, "unit": 0.25}
PRIVATE_COUPLING = 1.0
DELTA, PAPER_EPSILON, PAPER_MU = 1e-5, 0.15, 0.4
# Updates of a party on average, by epsilon: tuned once, on other seeds.
UPDATES = {0.15: 8, 1.0: 8, 3.0: 8, 10.0: 16, 30.0: 16}
DIMENSIONS = (20, 50, 100)
# Updates of a party on average without noise, from its local model.
CONVERGED = 200


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Mean test accuracy of a method: `protected` tells whether the epsilon holds for a record."""

    dimension: int
    rows: Rows
    method: str
    epsilon: float | None
    protected: bool
    accuracy: float
    deviation: float


class PersonalizedSynthetic(msgspec.Struct, frozen=True, kw_only=True):
    """What `personalized_synthetic` measured; deviations are over the problems."""

    points: tuple[Point, ...]
    problems: int
    seed: int
    seconds: float


@dataclass
class Problem:
    """100 linear tasks whose targets lie in a plane; no intercept. Gradients as of `coordinate_descent`."""

    features: Floats
    labels: Floats
    sizes: NDArray[np.intp]
    weights: sparse.csr_array
    test: tuple[Floats, Floats]

    def _slopes(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        signs = self.labels[rows] * np.einsum("rpf,rf->rp", self.features[rows], models)
        return np.asarray(-self.labels[rows] * 0.5 * (1 - np.tanh(signs / 2)))

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return the gradients of the mean losses."""
        sums = np.einsum("rp,rpf->rf", self._slopes(models, rows), self.features[rows])
        return np.asarray(sums / self.sizes[rows][:, None])

    def contributions(
        self, models: Floats, rows: NDArray[np.intp], factor: Floats, bits: int
    ) -> NDArray[np.int64]:
        """Return sums of the records' contributions; gradients of rows of norm 1 have norm 1 at most."""
        gradients = self._slopes(models, rows)[..., None] * self.features[rows]
        return contributions(gradients, factor, 1.0, bits)

    def local(self) -> Floats:
        """Return each party's own minimiser of its mean loss + |theta|^2 / m."""
        everyone = np.arange(len(self.sizes))

        def value(flat: Floats) -> tuple[float, Floats]:
            models = flat.reshape(len(self.sizes), -1)
            signs = self.labels * np.einsum("rpf,rf->rp", self.features, models)
            here = np.abs(self.labels) / self.sizes[:, None]
            losses = (here * np.logaddexp(0, -signs)).sum() + ((models**2).sum(axis=1) / self.sizes).sum()
            return float(losses), (self.mean(models, everyone) + 2 * models / self.sizes[:, None]).ravel()

        start = np.zeros(self.features.shape[0] * self.features.shape[2])
        result = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
        return np.asarray(result.x.reshape(len(self.sizes), -1))

    def accuracy(self, models: Floats) -> float:
        """Return the mean over the parties of the share of test labels that their models get right."""
        features, labels = self.test
        return float(np.mean(np.sign(np.einsum("rpf,rf->rp", features, models)) == labels))


def problem(seed: int, dimension: int, rows: Rows) -> Problem:
    """Return tasks by the paper's recipe; "unit" scales rows down to an L2 norm of at most 1."""
    rng = np.random.default_rng([seed, dimension])
    targets = rng.normal(size=(PARTIES, 2))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    weights = np.exp((targets @ targets.T - 1) / SPREAD)
    weights[weights < LEAST_WEIGHT] = 0
    np.fill_diagonal(weights, 0)
    sizes = rng.integers(10, 101, PARTIES)

    def draw(records: int) -> tuple[Floats, Floats]:
        features = rng.uniform(-1, 1, (PARTIES, records, dimension))
        if rows == "unit":
            features /= np.maximum(1, np.linalg.norm(features, axis=2, keepdims=True))
        return features, np.sign(np.einsum("rpf,rf->rp", features[..., :2], targets))

    features, labels = draw(100)
    labels = np.where(rng.random(labels.shape) < FLIPPED, -labels, labels)
    labels *= np.arange(100) < sizes[:, None]
    return Problem(features, labels, sizes, sparse.csr_array((weights + weights.T) / 2), draw(TESTED))


def _descend(
    tasks: Problem, rows: Rows, updates: int, seed: int, epsilon: float | None, start: Floats | None = None
) -> float:
    """Return the accuracy after coordinate descent; with `epsilon` by the noise of the product."""
    dimension, sizes = tasks.features.shape[2], tasks.sizes
    coupling = COUPLING[rows] if epsilon is None else PRIVATE_COUPLING
    curvature = (dimension if rows == "cube" else 1.0) / 4
    objective = PersonalizedObjective(tasks.weights, sizes, coupling, 1 / sizes, curvature)
    wakes = PublicDraws(seed).below(PARTIES, updates * PARTIES)
    bits, noise, source = 30, None, None
    if epsilon is not None:
        bits, source = grid_bits(objective.reaches), NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
        counts = np.bincount(wakes, minlength=PARTIES)
        noise = [
            plan_gradient_noise(epsilon, DELTA, [1.0] * max(1, int(count)), float(reach), bits)
            for count, reach in zip(counts, objective.reaches, strict=True)
        ]
    running = descend(
        PlainExchange(PARTIES),
        objective,
        tasks,
        dimension,
        wakes,
        bits,
        start=start,
        noise=noise,
        source=source,
    )
    return tasks.accuracy(asyncio.run(running))


def _paper(tasks: Problem, local: Floats, seed: int) -> float:
    """Return the accuracy of perturbed local models after propagation (16), at scale 2/(epsilon m).

    NOT private: with the ridge 1/m a record moves a local model by an amount that does not shrink with m,
    and rows of the cube have gradients of norm far above 1.
    """
    rng, near = np.random.default_rng(seed), tasks.weights.toarray()
    near /= near.sum(axis=1, keepdims=True)
    pull = PAPER_MU * (tasks.sizes / tasks.sizes.max())[:, None]
    shown = local + rng.laplace(scale=2 / (PAPER_EPSILON * tasks.sizes[:, None]), size=local.shape)
    models = shown
    for _ in range(300):
        models = (near @ models + pull * shown) / (1 + pull)
    return tasks.accuracy(models)


def personalized_synthetic(
    dimensions: Sequence[int] = DIMENSIONS,
    epsilons: Sequence[float] = tuple(UPDATES),
    *,
    problems: int = 10,
    seed: int = 1,
    progress: Progress | None = None,
) -> PersonalizedSynthetic:
    """Measure test accuracies of local, collaborative and private models.

    Raises:
        ConfigError: an argument is out of range.
    """
    refuse(
        within("problems", problems, 1, 100),
        *(within("dimension", dimension, 2, 1_000) for dimension in dimensions),
    )
    began, done, points = time.perf_counter(), 0, []
    for dimension in dimensions:
        measured: dict[tuple[Rows, str, float | None, bool], list[float]] = {}
        for number in range(problems):
            for rows in COUPLING:
                tasks = problem(1_000 * seed + number, dimension, rows)
                local = tasks.local()
                measured.setdefault((rows, "local", None, True), []).append(tasks.accuracy(local))
                reached = _descend(tasks, rows, CONVERGED, number, None, local)
                measured.setdefault((rows, "CD", None, False), []).append(reached)
                if rows == "cube":
                    key: tuple[Rows, str, float | None, bool] = (rows, "paper's scale", PAPER_EPSILON, False)
                    measured.setdefault(key, []).append(_paper(tasks, local, number))
                    continue
                for epsilon in epsilons:
                    updates = UPDATES.get(epsilon, 10)
                    reached = _descend(tasks, rows, updates, number, epsilon)
                    measured.setdefault((rows, "private CD", epsilon, True), []).append(reached)
            done += 1
            if progress is not None:
                progress("problems", done, problems * len(dimensions))
        points += [
            Point(
                dimension=dimension,
                rows=rows,
                method=method,
                epsilon=epsilon,
                protected=protected,
                accuracy=float(np.mean(values)),
                deviation=float(np.std(values)),
            )
            for (rows, method, epsilon, protected), values in measured.items()
        ]
    took = time.perf_counter() - began
    return PersonalizedSynthetic(points=tuple(points), problems=problems, seed=seed, seconds=took)


def plot(result: PersonalizedSynthetic, path: Path) -> None:
    """Write accuracy against epsilon on rows of norm 1, with the lines without privacy."""
    dimensions = sorted({point.dimension for point in result.points})

    def draw(axes: Axes) -> None:
        for index, dimension in enumerate(dimensions):
            of = [one for one in result.points if one.dimension == dimension and one.rows == "unit"]
            private = sorted((one.epsilon or 0, one.accuracy) for one in of if one.method == "private CD")
            colour = f"C{index}"
            axes.plot(*zip(*private, strict=True), "o-", color=colour, label=f"private, p = {dimension}")
            for method, style in (("local", ":"), ("CD", "--")):
                [level] = [one.accuracy for one in of if one.method == method]
                axes.axhline(level, color=colour, linestyle=style, label=f"{method}, p = {dimension}")
        axes.set_xscale("log")
        axes.set_xlabel("epsilon of one record (delta = 1e-5)")
        axes.set_ylabel("test accuracy")
        finish_axes(axes, "mean of the parties and problems", fontsize=8)

    write_plot(path, (7.0, 4.5), draw, title="Personalised models, rows of L2 norm at most 1")
