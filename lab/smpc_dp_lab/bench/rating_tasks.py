"""Tasks of personalised linear models of movie ratings, and those of public features.

[Bellet, Guerraoui, Taziki, Tommasi: Personalized and Private Peer-to-Peer Machine Learning, 5.2]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.topology import watts_strogatz
from smpc_dp.privacy.record_gradients import contributions
from smpc_dp_lab.bench.ratings import Ratings, features_of

Floats = NDArray[np.float64]

NEIGHBOURS = 10
# Of the public features: the part of the parties whose ratings are public, and records that an item's mean is
# shrunk by.
PUBLIC, SHRINK = 0.2, 5.0


@dataclass(frozen=True)
class Tasks:
    """The parties' features and ratings, their graph, and test records; loss (theta phi - r)^2.

    `smoothness`: of the loss at the features of any movie, rated here or not: steps depend on it.
    """

    features: list[Floats]
    ratings: list[Floats]
    weights: sparse.csr_array
    test: list[tuple[Floats, Floats]]
    clip: float
    smoothness: float

    @property
    def sizes(self) -> NDArray[np.intp]:
        """The number of training ratings of each party, m_u."""
        return np.array([len(one) for one in self.ratings])

    def slopes(self, party: int, model: Floats) -> Floats:
        """Return the gradients of a party's losses, one row for each rating."""
        features = self.features[party]
        return np.asarray(2 * (features @ model - self.ratings[party])[:, None] * features)

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return the gradient of the mean loss of each party in `rows` at its model, without the ridge."""
        return np.array(
            [self.slopes(party, model).mean(axis=0) for party, model in zip(rows, models, strict=True)]
        )

    def contributions(
        self, models: Floats, rows: NDArray[np.intp], factor: Floats, bits: int
    ) -> NDArray[np.int64]:
        """Return each party's sum of clipped gradients times its factor, on the grid of `bits`."""
        slopes = (self.slopes(party, model) for party, model in zip(rows, models, strict=True))
        each = zip(slopes, factor, strict=True)
        return np.concatenate([contributions(one[None], np.array([by]), self.clip, bits) for one, by in each])

    def local(self) -> Floats:
        """Return each party's own minimiser of its mean loss + |theta|^2 / m."""
        result = []
        for features, ratings in zip(self.features, self.ratings, strict=True):
            gram = features.T @ features + np.eye(features.shape[1])
            result.append(np.linalg.solve(gram, features.T @ ratings))
        return np.array(result)

    def pooled(self) -> Floats:
        """Return the minimiser of all records' losses + |theta|^2, for each party."""
        features, ratings = np.concatenate(self.features), np.concatenate(self.ratings)
        gram = features.T @ features + np.eye(features.shape[1])
        return np.tile(np.linalg.solve(gram, features.T @ ratings), (len(self.sizes), 1))

    def derivatives(self, party: int, model: Floats) -> tuple[Floats, Floats]:
        """Return (gradient, Hessian) of a party's mean loss at a model."""
        features = self.features[party]
        return self.slopes(party, model).mean(axis=0), 2 * features.T @ features / len(features)

    def objective(self, coupling: float) -> PersonalizedObjective:
        """Return what personalised models minimise, with the penalty |theta|^2 / m."""
        return PersonalizedObjective(self.weights, self.sizes, coupling, 1 / self.sizes, self.smoothness)

    def rmse(self, models: Floats) -> float:
        """Return the root mean squared test error of a party, mean over the parties."""
        errors = (x @ model - y for (x, y), model in zip(self.test, models, strict=True))
        return float(np.mean([np.sqrt((one**2).mean()) for one in errors]))


def public_tasks(given: Ratings, seed: int) -> Tasks:
    """Return the tasks of four fifths of the parties; features and means come from the others, public ones.

    A rating is taken less the public mean of the movie, and features have an intercept, so that nothing is
    centred by private data. The graph is drawn at random.
    """
    tested, (everyone, movies) = given.tested(seed), given.shape
    order = np.random.default_rng([seed, 5]).permutation(everyone)
    count = round(PUBLIC * everyone)
    public = np.isin(given.table[:, 0], order[:count])
    item, stars = given.table[:, 1].astype(int), given.table[:, 2]
    overall = stars[public].mean()
    sums = np.bincount(item[public], stars[public] - overall, movies)
    offset = overall + sums / (np.bincount(item[public], minlength=movies) + SHRINK)
    left = stars - offset[item]
    features = features_of(given.matrix(public, left), seed)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    features = np.c_[features, np.ones(movies)]
    parties = np.sort(order[count:])
    graph = watts_strogatz(len(parties), NEIGHBOURS, 1.0, 1 + seed).adjacency
    return tasks_of(given, tested, left, features, graph, parties, clip=2.0)


def tasks_of(
    given: Ratings,
    tested: NDArray[np.bool_],
    values: Floats,
    features: Floats,
    graph: sparse.csr_array,
    parties: NDArray[np.intp],
    clip: float,
) -> Tasks:
    """Return the tasks of `parties`: `values` of their ratings, those in `tested` for the test."""

    def of(keep: NDArray[np.bool_]) -> list[tuple[Floats, Floats]]:
        raters, item, rated = given.table[keep, 0], given.table[keep, 1].astype(int), values[keep]
        order = np.argsort(raters, kind="stable")
        parts = np.split(order, np.searchsorted(raters[order], np.arange(1, given.shape[0])))
        return [(features[item[parts[party]]], rated[parts[party]]) for party in parties]

    train, smoothness = of(~tested), 2 * float((features**2).sum(axis=1).max())
    return Tasks([x for x, _ in train], [y for _, y in train], graph, of(tested), clip, smoothness)
