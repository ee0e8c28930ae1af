"""Runs of a central learner with data owners, all at once, on rows of principal components.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.data import Dataset
from smpc_dp.capabilities.learn.data_owners import CentralSteps, most_answers
from smpc_dp.privacy.collaboration import laplace_scale
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp_lab.bench.figures import refuse, within

Floats = NDArray[np.float64]
Mechanism = Literal["none", "gaussian", "laplace"]

DELTA, RIDGE, CLIP, COMPONENTS = 1e-6, 2e-5, 0.25, 10
# The greatest L1 norm of a gradient, intercept included, over the L2 norm that it is clipped to.
L1_RATIO = math.sqrt(COMPONENTS + 1)


@dataclass(frozen=True)
class Owners:
    """Rows of norm at most 1 with an intercept, and labels in [-1, 1], of each owner; zeros for no record.

    Shapes (owners, most records, length), (owners, most records) and (owners,).
    """

    features: Floats
    labels: Floats
    sizes: NDArray[np.intp]

    def fitness(self, models: Floats) -> Floats:
        """Return the regularised mean squared error of each run's model, shape (runs,)."""
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

    @cached_property
    def _norms(self) -> Floats:
        """L2 norms of all rows, shape (owners, most records of an owner)."""
        return np.asarray(np.linalg.norm(self.features, axis=2))

    def answers(self, owner: NDArray[np.intp], query: Floats) -> Floats:
        """Return, by run, the mean clipped gradient of that run's owner at its query."""
        result = np.empty_like(query)
        for one in np.unique(owner):
            runs, size = np.flatnonzero(owner == one), self.sizes[one]
            features = self.features[one, :size]
            bound = CLIP / self._norms[one, :size, None]
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
    data: Owners,
    epsilon: float,
    mechanism: Mechanism,
    rates: Sequence[float],
    steps: int,
    runs: int,
    seed: int,
) -> list[tuple[int, Floats]]:
    """Return psi of the learner's models at ten ticks, the last included, of all runs, shape (rates, runs).

    Each rate has the same draws of clocks and noise.

    gaussian: the noise of the product, in continuous form, for the answers that are planned; laplace: the
    paper's, for T answers each, by simple composition: it takes an l2 for an l1 bound, and they
    cost up to L1_RATIO epsilon.
    """
    owners, _, length = data.features.shape
    rng = np.random.default_rng([seed, owners, data.sizes[0]])
    most, count = most_answers(steps, owners), len(rates)
    update = CentralSteps(data.sizes / data.sizes.sum(), np.repeat(rates, runs)[:, None], RIDGE, 10.0)
    central, local = np.zeros((count * runs, length)), np.zeros((owners, count * runs, length))
    asked, all_runs = np.zeros((owners, count * runs)), np.arange(count * runs)
    deviation = 2 * CLIP / data.sizes * math.sqrt(most) / gaussian_mu(epsilon, DELTA)
    scale = np.array([laplace_scale(2 * CLIP, steps, int(size), epsilon) for size in data.sizes])
    least, seen = float(data.fitness(data.best()[-1:])[0]), []
    for tick in range(1, steps + 1):
        drawn = rng.integers(0, owners, runs)
        owner = np.tile(drawn, count)
        query = update.query(central, local[owner, all_runs])
        answer = data.answers(owner, query)
        if mechanism == "gaussian":
            answer += np.tile(rng.normal(0, deviation[drawn][:, None], (runs, length)), (count, 1))
        elif mechanism == "laplace":
            answer += np.tile(rng.laplace(0, scale[drawn][:, None], (runs, length)), (count, 1))
        moved, pulled = update.move(query, owner, answer)
        # Beyond its planned answers an owner refuses.
        taken = (asked[owner, all_runs] < (most if mechanism == "gaussian" else steps))[:, None]
        local[owner, all_runs] = np.where(taken, moved, local[owner, all_runs])
        central = np.where(taken, pulled, central)
        asked[owner, all_runs] += 1
        if tick % max(1, steps // 10) == 0:
            seen.append((tick, (data.fitness(central) / least - 1).reshape(count, runs)))
    return seen
