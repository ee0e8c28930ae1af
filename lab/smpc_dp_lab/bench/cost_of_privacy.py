"""A central learner with data owners: the cost of privacy, measured beside its forecast.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.learn.data import Dataset
from smpc_dp.learn.data_owners import CentralSteps, most_answers
from smpc_dp.privacy.collaboration import bound_10, laplace_scale
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp_lab.bench.figures import Progress, Steps, refuse, within
from smpc_dp_lab.bench.plots import finish_axes, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Mechanism = Literal["none", "gaussian", "laplace"]

EPSILONS, SIZES, OWNERS = (0.1, 0.3, 1.0, 3.0, 10.0), (300, 1_000, 2_600), (3, 6, 12)
DELTA, RIDGE, CLIP, COMPONENTS = 1e-6, 2e-5, 0.25, 10
# Rates that are tried for each curve; the best by its median is shown, which is not private.
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
# Rows at the end of the file that count as public: scales, principal components and bounds come from them.
PUBLIC = {"lending": 2_000, "houses": 3_000}
HOUSES_OWNERS, HOUSES_SIZE = 86, 200
NOTABLE = (0.01, 0.5)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """psi = f(theta)/f(theta*) - 1 after T ticks, over the runs; forecast: psi without noise + (11)."""

    data: str
    owners: int
    size: int
    epsilon: float
    mechanism: Mechanism
    rate: float
    low: float
    median: float
    high: float
    forecast: float
    alone: float
    trace: tuple[tuple[int, float, float, float], ...]


class CostOfPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """What `cost_of_privacy` measured; constants: c of (11) by data, the least for forecasts above psi."""

    points: tuple[Point, ...]
    constants: dict[str, float]
    sources: tuple[str, ...]
    steps: int
    runs: int
    seed: int
    seconds: float


@dataclass(frozen=True)
class Owners:
    """Rows of norm at most 1 with an intercept, and labels in [-1, 1], of each owner."""

    features: Floats
    labels: Floats

    @property
    def _whole(self) -> tuple[Floats, Floats]:
        return self.features.reshape(-1, self.features.shape[-1]), self.labels.ravel()

    def fitness(self, models: Floats) -> Floats:
        """Return f of each model, shape (runs, length) to (runs,)."""
        features, labels = self._whole
        errors = models @ features.T - labels
        return np.asarray(0.5 * (errors**2).mean(axis=1) + RIDGE / 2 * (models**2).sum(axis=1))

    def best(self, owner: int | None = None) -> Floats:
        """Return the minimiser of all records, or of one owner's, shape (1, length)."""
        features, labels = self._whole if owner is None else (self.features[owner], self.labels[owner])
        left = features.T @ features / len(labels) + RIDGE * np.eye(features.shape[1])
        return np.asarray(np.linalg.solve(left, features.T @ labels / len(labels))[None])

    def answers(self, owner: NDArray[np.intp], query: Floats) -> Floats:
        """Return the mean clipped gradient of an owner in each run."""
        result = np.empty_like(query)
        for one in np.unique(owner):
            runs, features = np.flatnonzero(owner == one), self.features[one]
            bound = CLIP / np.linalg.norm(features, axis=1)[:, None]
            errors = np.clip(features @ query[runs].T - self.labels[one][:, None], -bound, bound)
            result[runs] = errors.T @ features / len(features)
        return result


def owners_of(data: Dataset, public: int, owners: int, size: int) -> Owners:
    """Return rows of the principal components that the last `public` rows have."""
    rows = data.table[: owners * size]
    refuse(within("owners times size", owners * size, 1, len(data.table) - public))
    known = data.table[-public:]
    centre, width = known.mean(axis=0), known.std(axis=0) + 1e-12
    scaled, reference = (rows - centre) / width, (known - centre) / width
    _, _, axes = np.linalg.svd(reference[:, :-1], full_matrices=False)
    features, seen = (part[:, :-1] @ axes[:COMPONENTS].T for part in (scaled, reference))
    features = features / np.quantile(np.linalg.norm(seen, axis=1), 0.95)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    features = np.c_[features, np.ones(len(features))] / math.sqrt(2)
    labels = np.clip(scaled[:, -1] / 3, -1, 1)
    return Owners(features.reshape(owners, size, -1), labels.reshape(owners, size))


def descend(
    data: Owners, epsilon: float, mechanism: Mechanism, rate: float, steps: int, runs: int, seed: int
) -> tuple[Floats, list[tuple[int, Floats]]]:
    """Return the learner's models after all ticks, and psi at ten ticks between, of all runs.

    gaussian: the noise of the product, in continuous form, for the answers that are planned; laplace: the
    paper's, for T answers each, by simple composition: it takes an l2 for an l1 bound, and protects less.
    """
    owners, size, length = data.features.shape
    rng = np.random.default_rng([seed, owners, size])
    most, update = most_answers(steps, owners), CentralSteps(np.full(owners, 1 / owners), rate, RIDGE, 10.0)
    central, local, asked = (
        np.zeros((runs, length)),
        np.zeros((owners, runs, length)),
        np.zeros((owners, runs)),
    )
    deviation = 2 * CLIP / size * math.sqrt(most) / gaussian_mu(epsilon, DELTA)
    scale = laplace_scale(2 * CLIP, steps, size, epsilon)
    all_runs, least = np.arange(runs), data.fitness(data.best())
    seen = []
    for tick in range(1, steps + 1):
        owner = rng.integers(0, owners, runs)
        query = update.query(central, local[owner, all_runs])
        answer = data.answers(owner, query)
        gaussian = mechanism == "gaussian"
        if gaussian:
            answer += rng.normal(0, deviation, answer.shape)
        elif mechanism == "laplace":
            answer += rng.laplace(0, scale, answer.shape)
        moved, pulled = update.move(query, owner, answer)
        # Beyond its planned answers an owner refuses.
        taken = (asked[owner, all_runs] < most)[:, None] if gaussian else np.ones((runs, 1), dtype=bool)
        local[owner, all_runs] = np.where(taken, moved, local[owner, all_runs])
        central = np.where(taken, pulled, central)
        asked[owner, all_runs] += 1
        if tick % max(1, steps // 10) == 0:
            seen.append((tick, data.fitness(central) / least - 1))
    return central, seen


def _point(
    name: str, data: Owners, epsilon: float, mechanism: Mechanism, steps: int, runs: int, seed: int
) -> Point:
    least = data.fitness(data.best())
    tried = [(rate, descend(data, epsilon, mechanism, rate, steps, runs, seed)[1]) for rate in RATES]
    rate, seen = min(tried, key=lambda one: float(np.median(one[1][-1][1])))
    trace = []
    for tick, psi in seen:
        low, middle, high = np.quantile(psi, (0.25, 0.5, 0.75))
        trace.append((tick, float(low), float(middle), float(high)))
    return Point(
        data=name,
        owners=data.features.shape[0],
        size=data.features.shape[1],
        epsilon=epsilon,
        mechanism=mechanism,
        rate=rate,
        low=trace[-1][1],
        median=trace[-1][2],
        high=trace[-1][3],
        forecast=0.0,
        alone=float((data.fitness(data.best(0)) / least - 1)[0]),
        trace=tuple(trace),
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
    refuse(within("steps", steps, 10, 100_000), within("runs", runs, 1, 10_000))
    began = time.perf_counter()
    settings = [("lending", lending, 3, size, epsilon) for size in SIZES for epsilon in epsilons]
    settings += [("lending", lending, owners, 600, epsilon) for owners in OWNERS[1:] for epsilon in epsilons]
    if houses is not None:
        settings += [("houses", houses, HOUSES_OWNERS, HOUSES_SIZE, epsilon) for epsilon in epsilons]
    count, points = Steps(progress, "settings", len(settings)), []
    for name, source, owners, size, epsilon in settings:
        data = owners_of(source, PUBLIC[name], owners, size)
        mechanisms: tuple[Mechanism, ...] = ("none", "gaussian", "laplace")
        for mechanism in mechanisms if epsilon == epsilons[0] else mechanisms[1:]:
            points.append(_point(name, data, epsilon, mechanism, steps, runs, seed))
        count()

    def unit(point: Point) -> float:
        return bound_10(point.owners * point.size, [point.epsilon] * point.owners, 0.0, 1.0)

    plain = {(p.data, p.owners, p.size): p.median for p in points if p.mechanism == "none"}
    private = [p for p in points if p.mechanism != "none"]
    constants = {name: 0.0 for name in sorted({point.data for point in points})}
    for p in private:
        excess = p.median - plain[p.data, p.owners, p.size]
        # Where the noise counts, and the model is not lost in it.
        if p.mechanism == "gaussian" and NOTABLE[0] < excess < NOTABLE[1]:
            constants[p.data] = max(constants[p.data], excess / unit(p))

    def expected(p: Point) -> float:
        noise = 0.0 if p.mechanism == "none" else constants[p.data] * unit(p)
        return plain[p.data, p.owners, p.size] + noise

    forecast = [msgspec.structs.replace(p, forecast=expected(p)) for p in points]
    sources = tuple(one.source for one in (lending, houses) if one is not None)
    took = time.perf_counter() - began
    return CostOfPrivacy(
        points=tuple(forecast),
        constants=constants,
        sources=sources,
        steps=steps,
        runs=runs,
        seed=seed,
        seconds=took,
    )


def plot(result: CostOfPrivacy, path: Path) -> None:
    """Write psi against epsilon for each data set, medians and quartiles, with the forecast as a line."""

    def panel(name: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            of = [point for point in result.points if point.data == name]
            sizes = sorted({(p.owners, p.size) for p in of if p.owners != 3 or p.size == max(SIZES)})
            for index, (owners, size) in enumerate(sizes):
                for mechanism, style in (("gaussian", "o-"), ("laplace", "s:")):
                    few = [p for p in of if (p.owners, p.size, p.mechanism) == (owners, size, mechanism)]
                    middle = np.array([p.median for p in few])
                    errors = [middle - [p.low for p in few], np.array([p.high for p in few]) - middle]
                    label = f"{owners} owners of {size}, {mechanism}"
                    axes.errorbar(
                        [p.epsilon for p in few], middle, errors, fmt=style, color=f"C{index}", label=label
                    )
                    if mechanism == "gaussian":
                        axes.plot(
                            [p.epsilon for p in few], [p.forecast for p in few], "--", color=f"C{index}"
                        )
            axes.set(xscale="log", yscale="log", xlabel="epsilon of each owner, for a record", ylabel="psi")
            finish_axes(axes, f"{name}; dashed: the forecast (11)", fontsize=7)

        return draw

    names = sorted({point.data for point in result.points}, reverse=True)
    write_plot(path, (5.5 * len(names), 4.5), *(panel(name) for name in names), title="Cost of privacy")
