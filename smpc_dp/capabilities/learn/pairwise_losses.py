"""Pairwise losses with their gradients, and regularisers by their proximal operators [Bellet 2021, 3.2].

Functions of rows: parameters (m, p), own and auxiliary records (m, length) give losses (m,) and gradients
(m, p). A record that has a label has it in its last column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks

Floats = NDArray[np.float64]
PairLoss = Callable[[Rows, Rows, Rows], Floats]
PairGradient = Callable[[Rows, Rows, Rows], Rows]
Prox = Callable[[Rows, Floats], Rows]
"""prox of c psi at each row: takes (m, p) and the factors c, (m,), and returns (m, p)."""


@dataclass(frozen=True)
class PairwiseLoss:
    """A loss h(theta; x, x') of a model on two records, convex and differentiable in theta.

    Attributes:
        name: for results and messages.
        dimension: p, from the length of a record.
        value: of h. gradient: in theta.
    """

    name: str
    dimension: Callable[[int], int]
    value: PairLoss
    gradient: PairGradient


def sigmoid(score: Floats) -> Floats:
    """Return the logistic function 1 / (1 + exp(-score)), without overflow."""
    # Not at the top: the command line needs only the settings of learners.
    from scipy.special import expit

    return np.asarray(expit(score))


def logistic_auc() -> PairwiseLoss:
    """Return the logistic surrogate of the AUC, (3.5), for linear scores.

    1[y > y'] log(1 + exp(theta'(x' - x))). A record is (features, label).
    """

    def margin(theta: Rows, own: Rows, other: Rows) -> tuple[Rows, Floats]:
        """Return (x' - x, theta'(x' - x))."""
        difference = other[..., :-1] - own[..., :-1]
        return difference, np.asarray((theta * difference).sum(axis=-1))

    def value(theta: Rows, own: Rows, other: Rows) -> Floats:
        loss = np.logaddexp(0.0, margin(theta, own, other)[1])
        return np.where(own[..., -1] > other[..., -1], loss, 0.0)

    def gradient(theta: Rows, own: Rows, other: Rows) -> Rows:
        difference, scores = margin(theta, own, other)
        slope = np.where(own[..., -1] > other[..., -1], sigmoid(scores), 0.0)
        return np.asarray(slope[..., None] * difference)

    return PairwiseLoss("logistic AUC", lambda length: length - 1, value, gradient)


def logistic_metric(threshold: float = 1.0) -> PairwiseLoss:
    """Return the logistic loss of a learned distance: near pairs below `threshold`, others above.

    log(1 + exp(s ((x - x')' M (x - x') - threshold))), s = 1 for equal labels, else -1. theta is M by rows,
    p = d^2; `positive_semidefinite` keeps it a metric. A record is (features, label).
    """

    def margin(theta: Rows, own: Rows, other: Rows) -> tuple[Floats, Rows, Floats]:
        difference = own[..., :-1] - other[..., :-1]
        outer = difference[..., :, None] * difference[..., None, :]
        # Not -1, which numpy cannot infer without rows: an aggregator has none.
        flat = outer.reshape(*difference.shape[:-1], difference.shape[-1] ** 2)
        sign = np.where(own[..., -1] == other[..., -1], 1.0, -1.0)
        return sign, flat, sign * ((theta * flat).sum(axis=-1) - threshold)

    def value(theta: Rows, own: Rows, other: Rows) -> Floats:
        return np.asarray(np.logaddexp(0.0, margin(theta, own, other)[2]))

    def gradient(theta: Rows, own: Rows, other: Rows) -> Rows:
        sign, flat, scores = margin(theta, own, other)
        return np.asarray((sign * sigmoid(scores))[..., None] * flat)

    return PairwiseLoss("logistic metric", lambda length: (length - 1) ** 2, value, gradient)


def no_regulariser(point: Rows, _factor: Floats) -> Rows:
    """Return the point unchanged: the proximal operator of no regulariser (psi = 0)."""
    return point


def l1(weight: float) -> Prox:
    """Return the proximal operator of psi = weight ||theta||_1: soft thresholding.

    Raises ConfigError unless weight is above 0.
    """
    _above(weight, "weight")

    def prox(point: Rows, factor: Floats) -> Rows:
        return np.sign(point) * np.maximum(np.abs(point) - weight * factor[:, None], 0.0)

    return prox


def squared_l2(weight: float) -> Prox:
    """Return the proximal operator of psi = weight ||theta||_2^2: scaling.

    Raises ConfigError unless weight is above 0.
    """
    _above(weight, "weight")
    return lambda point, factor: point / (1.0 + 2.0 * weight * factor[:, None])


def l2_ball(radius: float) -> Prox:
    """Return the projection on the ball ||theta||_2 <= radius, as a proximal operator.

    Raises ConfigError unless radius is above 0.
    """
    _above(radius, "radius")

    def prox(point: Rows, _factor: Floats) -> Rows:
        norm = np.linalg.norm(point, axis=1, keepdims=True)
        return np.asarray(point * (radius / np.maximum(norm, radius)))

    return prox


def positive_semidefinite(point: Rows, _factor: Floats) -> Rows:
    """Return theta, a matrix by rows, projected on the symmetric positive semidefinite matrices."""
    side = round(point.shape[1] ** 0.5)
    if side * side != point.shape[1]:
        raise ConfigError.at(
            "theta", f"has {point.shape[1]} entries, not those of a square matrix", ConfigCheck.SHAPE
        )
    matrix = point.reshape(-1, side, side)
    values, vectors = np.linalg.eigh((matrix + matrix.transpose(0, 2, 1)) / 2)
    recorded = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return np.asarray(recorded.reshape(point.shape))


def _above(value: float, name: str) -> None:
    """Raise ConfigError unless the value is finite and above 0."""
    checks = ArgumentChecks()
    checks.require_positive(name, value)
    checks.raise_issues()
