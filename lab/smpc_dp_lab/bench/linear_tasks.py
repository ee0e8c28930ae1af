"""100 related linear classification tasks, whose targets lie in a plane [Bellet 2021, section 2.4]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from smpc_dp.privacy.record_gradients import contributions

Floats = NDArray[np.float64]
Rows = Literal["cube", "unit"]

PARTIES, FLIPPED, SPREAD, LEAST_WEIGHT, TESTED, MOST = 100, 0.05, 0.1, 0.01, 100, 100


@dataclass(frozen=True)
class Problem:
    """Synthetic linear classification tasks, one for each party, with train and test records.

    Attributes:
        features, labels: shapes (n, most records, p) and (n, most records), labels 1, -1, or 0 for no record.
        sizes: m_u. weights: of the graph. test: features and labels of test records.
    """

    features: Floats
    labels: Floats
    sizes: NDArray[np.intp]
    weights: sparse.csr_array
    test: tuple[Floats, Floats]

    def _slopes(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        signs = self.labels[rows] * np.einsum("rpf,rf->rp", self.features[rows], models)
        return np.asarray(-self.labels[rows] * 0.5 * (1 - np.tanh(signs / 2)))

    def mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return the gradient of the mean loss of each party in `rows`, at its model."""
        sums = np.einsum("rp,rpf->rf", self._slopes(models, rows), self.features[rows])
        return np.asarray(sums / self.sizes[rows][:, None])

    def clipped_mean(self, models: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return parties' mean gradients, unclipped: rows of norm 1 have gradients of norm at most 1."""
        return self.mean(models, rows)

    def losses(self, models: Floats) -> Floats:
        """Return the mean loss of each party at its model, without a ridge."""
        signs = self.labels * np.einsum("rpf,rf->rp", self.features, models)
        return np.asarray((np.abs(self.labels) * np.logaddexp(0, -signs)).sum(axis=1) / self.sizes)

    def smoothness(self) -> float:
        """Return the greatest Lipschitz constant of a party's mean gradient, from its records: not public."""
        return max(
            float(np.linalg.norm(features[labels != 0], 2) ** 2 / (4 * size))
            for features, labels, size in zip(self.features, self.labels, self.sizes, strict=True)
        )

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
            losses = (self.losses(models) + (models**2).sum(axis=1) / self.sizes).sum()
            return float(losses), (self.mean(models, everyone) + 2 * models / self.sizes[:, None]).ravel()

        start = np.zeros(self.features.shape[0] * self.features.shape[2])
        result = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
        return np.asarray(result.x.reshape(len(self.sizes), -1))

    def pooled(self) -> Floats:
        """Return the model of all records together, with the ridge 1 over their number, for each party."""
        held = self.labels != 0
        return np.tile(logistic(self.features[held], self.labels[held], 1.0), (len(self.sizes), 1))

    def derivatives(self, party: int, model: Floats) -> tuple[Floats, Floats]:
        """Return (gradient, Hessian) of a party's mean loss at a model."""
        features, labels = (part[party, : self.sizes[party]] for part in (self.features, self.labels))
        chance = 0.5 * (1 - np.tanh(labels * (features @ model) / 2))
        gradient = -(chance * labels) @ features / len(labels)
        return gradient, (features * (chance * (1 - chance))[:, None]).T @ features / len(labels)

    def accuracies(self, models: Floats) -> Floats:
        """Return each party's share of test labels that its model gets right; a score of 0 counts a half."""
        features, labels = self.test
        scores = labels * np.einsum("rpf,rf->rp", features, models)
        return np.asarray(((scores > 0) + 0.5 * (scores == 0)).mean(axis=1))

    def perturbed(self, epsilon: float, seed: int) -> Problem:
        """Return the tasks after epsilon-local DP of every record, of rows of L2 norm at most 1.

        Half of epsilon: noise of density proportional to exp(-epsilon/2 |b|/2) on the features, whose L2
        distance is at most 2. Half: randomised response of the label.
        """
        rng, dimension = np.random.default_rng([seed, 4]), self.features.shape[2]
        noise = rng.normal(size=self.features.shape)
        noise /= np.linalg.norm(noise, axis=2, keepdims=True)
        noise *= rng.gamma(dimension, 4 / epsilon, noise.shape[:2])[..., None]
        flips = np.where(rng.random(self.labels.shape) < 1 / (1 + np.exp(epsilon / 2)), -1, 1)
        return replace(self, features=self.features + noise, labels=self.labels * flips)


def logistic(features: Floats, signs: Floats, ridge: float) -> Floats:
    """Return the minimiser of the sum of logistic losses + ridge |theta|^2; labels are signs."""

    def value(model: Floats) -> tuple[float, Floats]:
        margins = signs * (features @ model)
        slopes = -signs * 0.5 * (1 - np.tanh(margins / 2))
        loss = float(np.logaddexp(0, -margins).sum() + ridge * model @ model)
        return loss, slopes @ features + 2 * ridge * model

    return np.asarray(minimize(value, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x)


def problem(seed: int, dimension: int, rows: Rows) -> Problem:
    """Return tasks by the paper's recipe; "unit" scales rows down to an L2 norm of at most 1."""
    rng = np.random.default_rng([seed, dimension])
    targets = rng.normal(size=(PARTIES, 2))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    weights = np.exp((targets @ targets.T - 1) / SPREAD)
    weights[weights < LEAST_WEIGHT] = 0
    np.fill_diagonal(weights, 0)
    sizes = rng.integers(10, MOST + 1, PARTIES)

    def draw(records: int) -> tuple[Floats, Floats]:
        features = rng.uniform(-1, 1, (PARTIES, records, dimension))
        if rows == "unit":
            features /= np.maximum(1, np.linalg.norm(features, axis=2, keepdims=True))
        return features, np.sign(np.einsum("rpf,rf->rp", features[..., :2], targets))

    features, labels = draw(MOST)
    labels = np.where(rng.random(labels.shape) < FLIPPED, -labels, labels)
    labels *= np.arange(MOST) < sizes[:, None]
    return Problem(features, labels, sizes, sparse.csr_array((weights + weights.T) / 2), draw(TESTED))
