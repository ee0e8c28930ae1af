"""A central learner with data owners: the cost of privacy, measured beside its forecast.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.learn.data import Dataset
from smpc_dp.learn.data_owners import CentralSteps, most_answers
from smpc_dp.privacy.collaboration import bound_10, laplace_scale
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp_lab.bench.figures import Progress, Steps, budgets, refuse, within

Floats = NDArray[np.float64]
Mechanism = Literal["none", "gaussian", "laplace"]

EPSILONS, SIZES, OWNERS, SHARED = (0.1, 0.3, 1.0, 3.0, 10.0), (300, 1_000, 2_600), (3, 6, 12), 600
DELTA, RIDGE, CLIP, COMPONENTS = 1e-6, 2e-5, 0.25, 10
# Rates that are tried for each point with TUNED runs of their own; the best median is taken: not private.
RATES, TUNED = (0.03, 0.1, 0.3, 1.0, 3.0), 20
# Rows at the end of the file that count as public: scales, principal components and bounds come from them.
PUBLIC = {"lending": 2_000, "houses": 3_000}
# Of the 86 hospitals' stand-in.
HOSPITALS = tuple(range(60, 318, 3))
NOTABLE = (0.01, 0.5)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """psi = f(theta)/f(theta*) - 1 after T ticks, over the runs; forecast: psi without noise + (11)."""

    data: str
    owners: int
    size: float
    epsilon: float
    mechanism: Mechanism
    rate: float
    low: float
    median: float
    high: float
    forecast: float
    alone: tuple[float, ...]
    trace: tuple[tuple[int, float, float, float], ...]


class CostOfPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of `cost_of_privacy`; constants: c of (11) by data, the least for forecasts above psi."""

    points: tuple[Point, ...]
    constants: dict[str, float]
    hospitals: tuple[int, ...]
    sources: tuple[str, ...]
    steps: int
    runs: int
    seed: int
    seconds: float


@dataclass(frozen=True)
class Owners:
    """Rows of norm at most 1 with an intercept, and labels in [-1, 1], of each owner; zeros for no record.

    Shapes (owners, most records, length), (owners, most records) and (owners,).
    """

    features: Floats
    labels: Floats
    sizes: NDArray[np.intp]

    def fitness(self, models: Floats) -> Floats:
        """Return f of each model, shape (runs, length) to (runs,)."""
        features = self.features.reshape(-1, self.features.shape[-1])
        errors = models @ features.T - self.labels.ravel()
        return np.asarray(
            0.5 * (errors**2).sum(axis=1) / self.sizes.sum() + RIDGE / 2 * (models**2).sum(axis=1)
        )

    def best(self) -> Floats:
        """Return the minimisers of each owner's records, and last of all, shape (owners + 1, length)."""
        left = np.einsum("opf,opg->ofg", self.features, self.features)
        right = np.einsum("opf,op->of", self.features, self.labels)
        left, right = np.concatenate([left, left.sum(axis=0)[None]]), np.r_[right, right.sum(axis=0)[None]]
        counts = np.r_[self.sizes, self.sizes.sum()]
        left = left / counts[:, None, None] + RIDGE * np.eye(left.shape[-1])
        return np.asarray(np.linalg.solve(left, (right / counts[:, None])[..., None])[..., 0])

    def answers(self, owner: NDArray[np.intp], query: Floats) -> Floats:
        """Return the mean clipped gradient of an owner in each run."""
        result = np.empty_like(query)
        for one in np.unique(owner):
            runs, size = np.flatnonzero(owner == one), self.sizes[one]
            features = self.features[one, :size]
            bound = CLIP / np.linalg.norm(features, axis=1)[:, None]
            errors = features @ query[runs].T - self.labels[one, :size, None]
            result[runs] = np.clip(errors, -bound, bound, out=errors).T @ features / size
        return result


def owners_of(data: Dataset, public: int, sizes: Sequence[int]) -> Owners:
    """Return rows of the principal components that the last `public` rows have."""
    refuse(within("records of all owners", sum(sizes), 1, len(data.table) - public))
    rows, known = data.table[: sum(sizes)], data.table[-public:]
    centre, width = known.mean(axis=0), known.std(axis=0) + 1e-12
    scaled, reference = (rows - centre) / width, (known - centre) / width
    _, _, axes = np.linalg.svd(reference[:, :-1], full_matrices=False)
    features, seen = (part[:, :-1] @ axes[:COMPONENTS].T for part in (scaled, reference))
    features = features / np.quantile(np.linalg.norm(seen, axis=1), 0.95)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    features = np.c_[features, np.ones(len(features))] / math.sqrt(2)
    counts = np.array(sizes, dtype=np.intp)
    held = np.arange(counts.max()) < counts[:, None]
    padded, labels = np.zeros((*held.shape, features.shape[1])), np.zeros(held.shape)
    padded[held], labels[held] = features, np.clip(scaled[:, -1] / 3, -1, 1)
    return Owners(padded, labels, counts)


def descend(
    data: Owners, epsilon: float, mechanism: Mechanism, rate: float, steps: int, runs: int, seed: int
) -> list[tuple[int, Floats]]:
    """Return psi of the learner's models at ten ticks, the last included, of all runs.

    gaussian: the noise of the product, in continuous form, for the answers that are planned; laplace: the
    paper's, for T answers each, by simple composition: it takes an l2 for an l1 bound, and protects less.
    """
    owners, _, length = data.features.shape
    rng = np.random.default_rng([seed, owners, data.sizes[0]])
    most, update = most_answers(steps, owners), CentralSteps(data.sizes / data.sizes.sum(), rate, RIDGE, 10.0)
    central, local = np.zeros((runs, length)), np.zeros((owners, runs, length))
    asked, all_runs = np.zeros((owners, runs)), np.arange(runs)
    deviation = 2 * CLIP / data.sizes * math.sqrt(most) / gaussian_mu(epsilon, DELTA)
    scale = np.array([laplace_scale(2 * CLIP, steps, int(size), epsilon) for size in data.sizes])
    least, seen = float(data.fitness(data.best()[-1:])[0]), []
    for tick in range(1, steps + 1):
        owner = rng.integers(0, owners, runs)
        query = update.query(central, local[owner, all_runs])
        answer = data.answers(owner, query)
        if mechanism == "gaussian":
            answer += rng.normal(0, deviation[owner][:, None], answer.shape)
        elif mechanism == "laplace":
            answer += rng.laplace(0, scale[owner][:, None], answer.shape)
        moved, pulled = update.move(query, owner, answer)
        # Beyond its planned answers an owner refuses.
        taken = (asked[owner, all_runs] < (most if mechanism == "gaussian" else steps))[:, None]
        local[owner, all_runs] = np.where(taken, moved, local[owner, all_runs])
        central = np.where(taken, pulled, central)
        asked[owner, all_runs] += 1
        if tick % max(1, steps // 10) == 0:
            seen.append((tick, data.fitness(central) / least - 1))
    return seen


def _point(
    name: str, data: Owners, epsilon: float, mechanism: Mechanism, steps: int, runs: int, seed: int
) -> Point:
    def tried(rate: float) -> float:
        last = descend(data, epsilon, mechanism, rate, steps, min(runs, TUNED), seed + 1_000)[-1]
        return float(np.median(last[1]))

    rate = min(RATES, key=tried)
    seen = descend(data, epsilon, mechanism, rate, steps, runs, seed)
    quartiles = [(tick, *np.quantile(psi, (0.25, 0.5, 0.75)).tolist()) for tick, psi in seen]
    fits = data.fitness(data.best())
    return Point(
        data=name,
        owners=len(data.sizes),
        size=float(data.sizes.mean()),
        epsilon=epsilon,
        mechanism=mechanism,
        rate=rate,
        low=quartiles[-1][1],
        median=quartiles[-1][2],
        high=quartiles[-1][3],
        forecast=0.0,
        alone=tuple((fits[:-1] / fits[-1] - 1).tolist()),
        trace=tuple(quartiles),
    )


def cost_of_privacy(
    lending: Dataset,
    houses: Dataset | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    steps: int = 1_000,
    runs: int = 100,
    seed: int = 1,
    progress: Progress | None = None,
) -> CostOfPrivacy:
    """Measure psi by epsilon, size and number of owners; raise ConfigError for arguments out of range."""
    refuse(within("steps", steps, 10, 100_000), within("runs", runs, 1, 10_000), budgets(epsilons))
    began = time.perf_counter()
    settings: list[tuple[str, Dataset, tuple[int, ...]]]
    settings = [("lending", lending, (size,) * 3) for size in SIZES]
    settings += [("lending", lending, (SHARED,) * owners) for owners in OWNERS]
    if houses is not None:
        # In the file neighbours stand side by side: an owner would be a region.
        order = np.random.default_rng(len(HOSPITALS)).permutation(len(houses.table))
        houses = replace(houses, table=houses.table[order], source=f"{houses.source}, in random order")
        settings.append(("houses", houses, HOSPITALS))
    count, points = Steps(progress, "settings", len(settings) * len(epsilons)), []
    for name, source, sizes in settings:
        data = owners_of(source, PUBLIC[name], sizes)
        for epsilon in epsilons:
            mechanisms: tuple[Mechanism, ...] = ("none", "gaussian", "laplace")
            for mechanism in mechanisms if epsilon == epsilons[0] else mechanisms[1:]:
                points.append(_point(name, data, epsilon, mechanism, steps, runs, seed))
            count()
    constants, forecast = _forecast(points)
    return CostOfPrivacy(
        points=forecast,
        constants=constants,
        hospitals=HOSPITALS,
        sources=tuple(one.source for one in (lending, houses) if one is not None),
        steps=steps,
        runs=runs,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _forecast(points: Sequence[Point]) -> tuple[dict[str, float], tuple[Point, ...]]:
    """Return the constant of (11) of each data set, and the points with their forecasts."""
    plain = {(p.data, p.owners, p.size): p.median for p in points if p.mechanism == "none"}

    def unit(point: Point) -> float:
        return bound_10(round(point.owners * point.size), [point.epsilon] * point.owners, 0.0, 1.0)

    constants = {point.data: 0.0 for point in points}
    for p in points:
        excess = p.median - plain[p.data, p.owners, p.size]
        # Where the noise counts, and the model is not lost in it.
        if p.mechanism == "gaussian" and NOTABLE[0] < excess < NOTABLE[1]:
            constants[p.data] = max(constants[p.data], excess / unit(p))

    def expected(p: Point) -> float:
        noise = 0.0 if p.mechanism == "none" else constants[p.data] * unit(p)
        return plain[p.data, p.owners, p.size] + noise

    return constants, tuple(msgspec.structs.replace(p, forecast=expected(p)) for p in points)
