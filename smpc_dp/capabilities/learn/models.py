"""Linear models with a loss on a party's points: gradients of the mean loss, and clipped ones of records.

A party's table has its features in the first columns and the label in the last. The model is linear with an
intercept: length features + 1, times the classes for "softmax".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.record_gradients import Integers, clip_records, contributions

__all__ = ["Model"]

ModelName = Literal["logistic", "softmax", "linear"]
# Features and labels up to this have gradients whose norm does not overflow: it would be clipped to nothing.
LARGEST = 1e50


@dataclass(frozen=True, slots=True)
class Points:
    """Features and labels of the local parties as arrays, padded to an equal number of points each.

    Attributes:
        features: shape (rows, most points, features + 1), the last column ones.
        labels: shape (rows, most points).
        share: shape (rows, most points): 1 / points of its party, 0 for padding.
    """

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    share: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Model:
    """A linear model with its loss (squared, logistic or softmax) and its metric.

    "logistic": labels 0 and 1; "softmax": labels 0 to classes - 1; "linear": any number, half the squared
    error.
    """

    kind: ModelName
    features: int
    classes: int = 2

    @property
    def length(self) -> int:
        """The number of coordinates of the model, its intercept included."""
        return (self.features + 1) * (self.classes if self.kind == "softmax" else 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model's coordinates, in their order."""
        one = (*(f"w{index}" for index in range(self.features)), "intercept")
        if self.kind != "softmax":
            return one
        return tuple(f"{name} of {label}" for label in range(self.classes) for name in one)

    def check(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless the table has features and labels that fit."""
        issues: list[ConfigIssue] = []
        if table.ndim != 2 or table.shape[1] != self.features + 1:
            columns = table.shape[1] if table.ndim == 2 else 0
            reason = f"has {columns} columns, needs {self.features} features and a label"
            raise ConfigError.at(party, reason, ConfigCheck.SHAPE)
        if not len(table):
            issues.append(ConfigIssue(party, "has no points", ConfigCheck.MISSING))
        labels = table[:, -1]
        # Written so that NaN fails.
        if len(bad := np.flatnonzero(~(np.abs(table[:, :-1]) <= LARGEST).all(axis=1))):
            issues.append(
                ConfigIssue(
                    party,
                    f"a feature of point {bad[0]} is not finite, or beyond {LARGEST:g}",
                    ConfigCheck.RANGE,
                )
            )
        if len(bad := np.flatnonzero(~np.isfinite(labels))):
            issues.append(ConfigIssue(party, f"the label of point {bad[0]} is missing", ConfigCheck.MISSING))
        elif len(bad := np.flatnonzero(np.abs(labels) > LARGEST)):
            issues.append(
                ConfigIssue(party, f"the label of point {bad[0]} is beyond {LARGEST:g}", ConfigCheck.RANGE)
            )
        elif self.kind != "linear":
            most = 1 if self.kind == "logistic" else self.classes - 1
            bad = np.flatnonzero((labels != np.rint(labels)) | (labels < 0) | (labels > most))
            if len(bad):
                reason = (
                    f"the label of point {bad[0]} is {labels[bad[0]]:g}, must be an integer from 0 to {most}"
                )
                issues.append(ConfigIssue(party, reason, ConfigCheck.RANGE))
        if issues:
            raise ConfigError(issues)

    def points(self, data: list[Table]) -> Points:
        """Return the local parties' checked tables as padded arrays of features and labels."""
        most = max((len(table) for table in data), default=0)
        features = np.zeros((len(data), most, self.features + 1))
        labels, share = np.zeros((len(data), most)), np.zeros((len(data), most))
        for row, table in enumerate(data):
            count = len(table)
            features[row, :count, :-1], features[row, :count, -1] = table[:, :-1], 1.0
            labels[row, :count], share[row, :count] = table[:, -1], 1 / max(count, 1)
        return Points(features, labels, share)

    def scores(self, weights: Rows, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the linear scores, shape (rows, points) or for softmax (rows, points, classes)."""
        if self.kind == "softmax":
            shaped = weights.reshape(len(weights), self.classes, self.features + 1)
            return np.asarray(np.einsum("rpf,rcf->rpc", features, shaped))
        return np.asarray(np.einsum("rpf,rf->rp", features, weights))

    def gradient(self, weights: Rows, points: Points, rows: NDArray[np.intp]) -> Rows:
        """Return the gradient of the mean loss of each party in `rows` at its weights, unclipped."""
        features, share = points.features[rows], points.share[rows]
        scores, labels = self.scores(weights, features), points.labels[rows]
        if self.kind == "softmax":
            scores -= scores.max(axis=-1, keepdims=True)
            error = np.exp(scores)
            error /= error.sum(axis=-1, keepdims=True)
            error -= labels[..., None] == np.arange(self.classes)
            graded = np.einsum("rpc,rpf->rcf", error * share[..., None], features)
            return np.asarray(graded.reshape(len(weights), self.length))
        predicted = scores if self.kind == "linear" else 0.5 * (1 + np.tanh(scores / 2))
        return np.asarray(np.einsum("rp,rpf->rf", (predicted - labels) * share, features))

    def accuracy(self, weights: NDArray[np.float64], table: Table) -> float:
        """Return the fraction of a table's labels that a model predicts right; for a linear model R^2.

        For "linear" the fraction of the labels' variance that it explains.
        """
        features = np.concatenate([table[:, :-1], np.ones((len(table), 1))], axis=1)[None]
        scores, labels = self.scores(weights[None], features)[0], table[:, -1]
        if self.kind == "linear":
            return 1.0 - float(np.mean((scores - labels) ** 2) / np.var(labels))
        result = scores.argmax(axis=-1) if self.kind == "softmax" else scores > 0
        return float(np.mean(result == labels))

    def metric(self, weights: NDArray[np.float64], table: Table) -> float:
        """Return a model's accuracy on a table; for a linear model, its mean squared error."""
        if self.kind != "linear":
            return self.accuracy(weights, table)
        features = np.concatenate([table[:, :-1], np.ones((len(table), 1))], axis=1)
        # What overflows is clipped to the metric's bounds.
        with np.errstate(over="ignore"):
            return float(np.mean((features @ weights - table[:, -1]) ** 2))


@dataclass(frozen=True)
class TableModel:
    """A linear model with its loss on each local party's table, as gradient descent uses models."""

    model: Model
    points: Points
    data: list[Table]

    @property
    def start(self) -> NDArray[np.float64]:
        """The model at which training starts: all zeros."""
        return np.zeros(self.model.length)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model's coordinates, in their order."""
        return self.model.names

    @property
    def weights(self) -> None:
        """None: parties count alike, or by their tables' numbers of points."""

    async def gradient(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return the gradients of the local parties `rows` at their models, unclipped."""
        return self.model.gradient(models, self.points, rows)

    async def metric(self, models: Rows, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return each party's accuracy on its table; for a linear model, its mean squared error."""
        measured = [
            self.model.metric(models[index], self.data[row]) for index, row in enumerate(rows.tolist())
        ]
        return np.array(measured, dtype=np.float64)


@dataclass(frozen=True)
class RecordGradients:
    """Gradients of a linear model's loss at the local parties' records, each clipped to a norm."""

    model: Model
    points: Points
    clip: float
    order: Literal[1, 2] = 2

    def _of_records(self, models: Rows, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return unclipped gradients at all records of `rows`, shape (rows, points, p), 0 for padding."""
        features, labels = self.points.features[rows], self.points.labels[rows]
        scores = self.model.scores(models, features)
        predicted = scores if self.model.kind == "linear" else 0.5 * (1 + np.tanh(scores / 2))
        here = self.points.share[rows] > 0
        return np.asarray(((predicted - labels) * here)[..., None] * features)

    def mean(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return the gradient of each party's mean loss at its model, unclipped and without the ridge."""
        return self.model.gradient(models, self.points, rows)

    def clipped_mean(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return, for each party in `rows`, the mean of its records' clipped gradients at its model.

        It is the gradient of a convex loss with the same smoothness: one that is linear far out.
        """
        clipped = clip_records(self._of_records(models, rows), self.clip, self.order)
        return np.asarray(np.einsum("rp,rpf->rf", self.points.share[rows], clipped))

    def contributions(
        self, models: Rows, rows: NDArray[np.intp], factor: NDArray[np.float64], bits: int
    ) -> Integers:
        """Return each party's sum of clipped gradients times a factor, as grid integers."""
        return contributions(self._of_records(models, rows), factor, self.clip, bits, self.order)

    def sum_losses(self, models: Rows, rows: NDArray[np.intp], bound: float, steps: int) -> Integers:
        """Return each party's sum of losses in steps of bound/steps, each clipped and rounded down."""
        scores, labels = self.model.scores(models, self.points.features[rows]), self.points.labels[rows]
        if self.model.kind == "linear":
            losses = (scores - labels) ** 2 / 2
        else:
            losses = np.logaddexp(0.0, np.where(labels > 0, -scores, scores))
        clipped = np.clip(losses, 0.0, bound) * (self.points.share[rows] > 0)
        taken = np.minimum(np.floor(clipped / bound * steps), steps)
        return np.asarray(taken.astype(np.int64).sum(axis=1))


def clip_rows(vectors: Rows, bound: float) -> Rows:
    """Return the vectors, each scaled down to an L2 norm of at most `bound` if it is longer."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    # A little below, so that rounding cannot lift a norm over the bound.
    return np.asarray(vectors * np.minimum(1.0, bound * (1 - 1e-12) / np.maximum(norms, 1e-300)))


def bound_features(table: Table, bound: float) -> Table:
    """Return a table in which each row's features are scaled down to an L2 norm of at most `bound`."""
    norms = np.linalg.norm(table[:, :-1], axis=1, keepdims=True)
    # A little below, so that rounding cannot lift a norm over the bound.
    scale = np.minimum(1.0, bound * (1 - 1e-12) / np.maximum(norms, 1e-300))
    return np.concatenate([table[:, :-1] * scale, table[:, -1:]], axis=1)
