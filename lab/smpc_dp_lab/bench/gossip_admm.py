"""Personalised models by asynchronous gossip ADMM, a baseline without privacy.

[Vanhaesebrouck, Bellet and Tommasi 2017, section 4, after Wei and Ozdaglar 2013.] Each party has its model
and a copy of each neighbour's. At a tick two neighbours solve their own parts of the augmented Lagrangian,
and send each other both models and both multipliers of their edge: eight vectors. It has the minimiser of
`learn.coordinate_descent`, whose objective is split evenly over the two ends of each edge.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective

Floats = NDArray[np.float64]

# Vectors sent in a tick; Newton steps of a party's part, from its last solution.
VECTORS, _NEWTON = 8, 3


class Losses(Protocol):
    """Interface of the parties' loss functions, as gossip ADMM needs them."""

    def derivatives(self, party: int, model: Floats) -> tuple[Floats, Floats]:
        """Return (gradient, Hessian) of a party's mean loss at a model."""
        ...


class GossipAdmm:
    """One run; `models`: shape (n, p). `penalty`: rho of the augmented Lagrangian."""

    def __init__(
        self, records: Losses, objective: PersonalizedObjective, start: Floats, penalty: float, seed: int
    ) -> None:
        self._records, self._objective, self._penalty = records, objective, penalty
        self._rng, n = np.random.default_rng(seed), len(start)
        self._weights = objective.coupling / 2 * objective.weights.toarray()
        self._near = [np.flatnonzero(row) for row in self._weights]
        self.models = start.copy()
        # At [u, v]: of u's own model and of its copy of v's, on their edge.
        self._copies = np.broadcast_to(start, (n, *start.shape)).copy()
        self._agreed = {0: np.repeat(start[:, None], n, axis=1), 1: self._copies.copy()}
        self._prices = {0: np.zeros_like(self._copies), 1: np.zeros_like(self._copies)}

    def _solve(self, party: int) -> None:
        """Minimise a party's part: its model by Newton steps, the copies in closed form."""
        near, rho, objective = self._near[party], self._penalty, self._objective
        scale = float(objective.degrees[party] * objective.confidence[party])
        weights = self._weights[party, near][:, None]
        owns, copies = (self._agreed[end][party, near] for end in (0, 1))
        prices, copied = (self._prices[end][party, near] for end in (0, 1))
        theta, ridge = self.models[party], float(objective.ridges[party])
        for _ in range(_NEWTON):
            others = (weights * theta + rho * copies - copied) / (weights + rho)
            slope, hessian = self._records.derivatives(party, theta)
            gradient = scale * (slope + 2 * ridge * theta)
            gradient = gradient + (weights * (theta - others) + prices + rho * (theta - owns)).sum(axis=0)
            diagonal = float((weights * rho / (weights + rho) + rho).sum()) + 2 * scale * ridge
            theta = theta - np.linalg.solve(scale * hessian + diagonal * np.eye(len(theta)), gradient)
        self.models[party] = theta
        self._copies[party, near] = (weights * theta + rho * copies - copied) / (weights + rho)

    def run(self, ticks: int) -> Floats:
        """Take so many ticks of a party and a neighbour, both drawn uniformly; return the models."""
        rho = self._penalty
        for _ in range(ticks):
            u = int(self._rng.integers(len(self.models)))
            v = int(self._rng.choice(self._near[u]))
            self._solve(u)
            self._solve(v)
            for a, b in ((u, v), (v, u)):
                # a's model: its own, and b's copy of it.
                mean = (self.models[a] + self._copies[b, a]) / 2
                mean = mean + (self._prices[0][a, b] + self._prices[1][b, a]) / (2 * rho)
                self._agreed[0][a, b] = self._agreed[1][b, a] = mean
                self._prices[0][a, b] += rho * (self.models[a] - mean)
                self._prices[1][b, a] += rho * (self._copies[b, a] - mean)
        return self.models
