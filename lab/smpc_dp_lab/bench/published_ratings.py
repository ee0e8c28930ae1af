"""Tasks of movie ratings, and noise, as published: no epsilon holds [Bellet et al. 2018, 5.2].

Features and graph are exact functions of the ratings, and a party's mean, which is subtracted from each of
its m ratings, moves all its residuals when one rating changes: by up to 2 (r_max - r_min) B_phi/m,
8 B_phi/m for 1 to 5, in the l1 norm of the mean gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smpc_dp.privacy.accountant.theorems import kairouz_oh_viswanath
from smpc_dp_lab.bench.rating_tasks import NEIGHBOURS, Floats, Tasks, tasks_of
from smpc_dp_lab.bench.ratings import Ratings, features_of

# 1/mu of the paper; delta of its advanced composition; updates of a party, which the paper tunes.
COUPLING, DELTA, UPDATES = 25.0, math.exp(-5), 5


def published_tasks(given: Ratings, seed: int) -> Tasks:
    """Return the tasks of the paper: features, graph and means are exact functions of all training ratings.

    The graph joins parties with one of their ten nearest, by the cosine of their centred training ratings.
    """
    tested, (parties, _) = given.tested(seed), given.shape
    own, stars = given.table[:, 0].astype(int), given.table[:, 2]
    means = np.bincount(own[~tested], stars[~tested], parties) / np.bincount(own[~tested], minlength=parties)
    centred = stars - means[own]
    train = given.matrix(~tested, centred)
    features = features_of(train, seed)
    lengths = np.sqrt(np.maximum(train.multiply(train).sum(axis=1), 1e-12))
    cosines = (train @ train.T).toarray() / lengths[:, None] / lengths
    np.fill_diagonal(cosines, -np.inf)
    near = np.zeros((parties, parties))
    np.put_along_axis(near, np.argsort(-cosines, axis=1)[:, :NEIGHBOURS], 1.0, axis=1)
    graph = sparse.csr_array(np.maximum(near, near.T))
    return tasks_of(given, tested, centred, features, graph, np.arange(parties), clip=10.0)


@dataclass(frozen=True)
class PublishedNoise:
    """Mean gradients of clipped records with Laplace noise of the paper's scale 2 C/(epsilon_t m)."""

    tasks: Tasks
    epsilon: float
    rng: np.random.Generator

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return the parties' mean clipped gradients at their models, with Laplace noise."""
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
        """Return each party's sum of clipped gradients times its factor, without the paper's noise."""
        return self.tasks.contributions(models, rows, factor, bits)


def published_noise(tasks: Tasks, epsilon: float, seed: int) -> PublishedNoise:
    """Return the paper's noise for `epsilon`, split over UPDATES, an expected number of updates."""
    return PublishedNoise(tasks, split_epsilon(epsilon, UPDATES, DELTA), np.random.default_rng([seed, 7]))


def split_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Return the largest epsilon of each of `count` mechanisms that compose to `epsilon`, by bisection."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        within_it = kairouz_oh_viswanath([(middle, 0.0)] * count, delta)[0] <= epsilon
        low, high = (middle, high) if within_it else (low, middle)
    return low
