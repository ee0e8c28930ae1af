"""Weights of the graph of personalised models, by decentralised descent [Bellet 2021, Algorithm 2.4].

Minimises G(w) = sum_{u<v} w_uv p_uv + s (density |w|^2 + sum_u r(d_u)) over w >= 0, with
p_uv = c_u F_u + c_v F_v + lambda_1/2 |theta_u - theta_v|^2, s = lambda_1, and r(d) = -log(d + FLOOR)
[Kalofolias 2016] or (d - 1)^2/2. A step of a party changes its weights to `peers` others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.schedule import PublicDraws, by_level
from smpc_dp.errors import ConfigCheck, ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Regulariser = Literal["log", "square"]

# Inside the logarithm, so that it is smooth at degree 0.
FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class GraphObjective:
    """Function G of a graph's edge weights that is minimised to learn the graph, for given models.

    Attributes:
        costs: p, shape (n, n), symmetric; its diagonal counts for nothing.
        scale: s > 0, lambda_2 of the paper.
        density: lambda_3 > 0: the larger, the more even the weights.
        regulariser: of the degrees.
    """

    costs: Floats
    scale: float
    density: float
    regulariser: Regulariser = "log"

    def __post_init__(self) -> None:
        if self.costs.ndim != 2 or self.costs.shape[0] != self.costs.shape[1] or len(self.costs) < 2:
            reason = f"shape must be (n, n), n at least 2, is {self.costs.shape}"
            raise ConfigError.at("costs", reason, ConfigCheck.SHAPE)
        if not np.isfinite(self.costs).all():
            raise ConfigError.at("costs", "must be finite", ConfigCheck.RANGE)
        if not (0 < self.scale < np.inf and 0 < self.density < np.inf):
            raise ConfigError.at("density", "and scale must be above 0 and finite", ConfigCheck.RANGE)

    @property
    def strong_convexity(self) -> float:
        """The strong convexity constant mu of the objective G, 2 s density."""
        return 2 * self.scale * self.density

    def smoothness(self, peers: int) -> float:
        """Return the largest Lipschitz constant of the gradient in a step with `peers` other parties."""
        most = 1 / FLOOR**2 if self.regulariser == "log" else 1.0
        return self.scale * (2 * self.density + (peers + 1) * most)

    def contraction(self, peers: int) -> float:
        """Return the factor of Theorem 2.1: a step multiplies the expected excess of G by this at most."""
        n = len(self.costs)
        return 1 - 2 * peers * self.strong_convexity / (n * (n - 1) * self.smoothness(peers))

    def uniform(self) -> Floats:
        """Return the equal edge weights that minimise G if all costs are 0, up to the constant FLOOR."""
        n = len(self.costs)
        weight = 1 / np.sqrt(self.density * (n - 1))
        if self.regulariser == "square":
            # 2 density w n (n-1)/2 + n (n-1) ((n-1) w - 1) = 0.
            weight = 1 / (n - 1 + self.density)
        return np.asarray(weight * (1 - np.eye(n)))

    def value(self, weights: Floats) -> float:
        """Return the objective G at edge weights, shape (n, n), symmetric, without a diagonal."""
        degrees = weights.sum(axis=1)
        regular = self.density * (weights**2).sum() / 2 + self._degree(degrees).sum()
        return float((weights * self.costs).sum() / 2 + self.scale * regular)

    def _degree(self, degrees: Floats) -> Floats:
        """Return the regulariser's value at each party's degree (its sum of edge weights)."""
        if self.regulariser == "log":
            return np.asarray(-np.log(degrees + FLOOR))
        return np.asarray((degrees - 1) ** 2 / 2)

    def _slope(self, degrees: Floats) -> Floats:
        """Return the regulariser's first derivative at each party's degree."""
        return np.asarray(-1 / (degrees + FLOOR) if self.regulariser == "log" else degrees - 1)

    def _curvature(self, degrees: Floats) -> Floats:
        """Return the regulariser's second derivative at each party's degree."""
        return np.asarray(1 / (degrees + FLOOR) ** 2 if self.regulariser == "log" else np.ones_like(degrees))

    def gradient(self, weights: Floats) -> Floats:
        """Return the derivative of G with respect to each pair's weight, shape (n, n), symmetric.

        Args:
            weights: shape (n, n), symmetric, without a diagonal; the result's diagonal means nothing.
        """
        slope = self._slope(weights.sum(axis=1))
        return np.asarray(self.costs + self.scale * (2 * self.density * weights + slope[:, None] + slope))

    def excesses(self, weights: Floats) -> Floats:
        """Return how much G can fall at most if one pair's weight changes, for each pair, (n, n).

        The sum over all pairs u < v bounds G(weights) - min G, as G is strongly convex. At weights that
        minimise G with some pairs left out, at 0, the other pairs have 0: the sum is the price of leaving out
        pairs of models that are far apart [Bellet 2021, Remark 2.5].

        Args:
            weights: shape (n, n), symmetric, not negative, without a diagonal.
        """
        gradient, curvature = self.gradient(weights), self.strong_convexity
        moved = np.maximum(-weights, -gradient / curvature)
        np.fill_diagonal(moved, 0.0)
        return np.asarray(-moved * (gradient + curvature / 2 * moved))

    def step(self, own: Floats, peers: Floats, weights: Floats, costs: Floats) -> Floats:
        """Return the edge weights of k parties after one gradient step (2.8) from `weights`.

        The step size is 1/L, L doubled from the curvature at the weights, to L_max at most, until the
        quadratic bound holds: the guarantee of Theorem 2.1 with steps that are much longer.

        Args:
            own: degrees of the k parties, shape (k,). peers: of their peers, (k, rho), none twice in all.
            weights, costs: between them, (k, rho).
        """
        slope = 2 * self.density * weights + self._slope(own)[:, None] + self._slope(peers)
        gradient = costs + self.scale * slope
        count, most = weights.shape[1], self.smoothness(weights.shape[1]) / self.scale - 2 * self.density
        curvature = count * self._curvature(own) + self._curvature(peers).max(axis=1)
        while True:
            curvature = np.minimum(curvature, most)
            length = self.scale * (2 * self.density + curvature)
            moved = np.maximum(0.0, weights - gradient / length[:, None]) - weights
            summed = moved.sum(axis=1)
            excess = self._degree(np.maximum(own + summed, 0)) - self._degree(own) - self._slope(own) * summed
            each = self._degree(np.maximum(peers + moved, 0)) - self._degree(peers)
            excess += (each - self._slope(peers) * moved).sum(axis=1)
            # A little more than rounding.
            short = excess > curvature / 2 * (moved**2).sum(axis=1) + 1e-12
            if not (short & (curvature < most)).any():
                return np.asarray(weights + moved)
            curvature = np.where(short, 2 * curvature, curvature)


def pair_costs(models: Floats, losses: Floats, coupling: float) -> Floats:
    """Return each pair's cost in the graph objective, from models and losses, shape (n, n), symmetric.

    Args:
        losses: c_u F_u, shape (n,). coupling: lambda_1.
    """
    squares = (models**2).sum(axis=1)
    distances = np.maximum(0.0, squares[:, None] + squares - 2 * models @ models.T)
    costs = losses[:, None] + losses + coupling / 2 * distances
    # Whatever multiplies the matrices.
    return np.asarray((costs + costs.T) / 2)


def nearest_pairs(models: Floats, count: int) -> NDArray[np.bool_]:
    """Return, (n, n), which pairs have a party among the other's `count` nearest models [Remark 2.5].

    A pair is kept if either party keeps it, so that each party has a neighbour; of models at the same
    distance the first is kept. In all at most n count of n (n - 1)/2 pairs.

    Args:
        models: shape (n, length). count: from 1 to n - 1.

    Raises:
        ConfigError: `count` is out of range.
    """
    n = len(models)
    if not 1 <= count < n:
        raise ConfigError.at("count", f"must be from 1 to {n - 1}, is {count}", ConfigCheck.RANGE)
    distances = np.stack([((models - model) ** 2).sum(axis=1) for model in models])
    np.fill_diagonal(distances, np.inf)
    result = np.zeros((n, n), dtype=np.bool_)
    np.put_along_axis(result, np.argsort(distances, axis=1, kind="stable")[:, :count], values=True, axis=1)
    return np.asarray(result | result.T)


def draw_steps(draws: PublicDraws, parties: int, peers: int, steps: int) -> Ints:
    """Draw from `draws` the parties of each step, one and `peers` others, shape (steps, 1 + peers)."""
    drawn = draws.uniform((1 + peers) * steps).reshape(steps, 1 + peers)
    result = (drawn * (parties - np.arange(1 + peers))).astype(np.intp)
    for column in range(1, 1 + peers):
        # The number among those that are left becomes one among all.
        for before in np.sort(result[:, :column], axis=1).T:
            result[:, column] += result[:, column] >= before
    return result


def independent_steps(steps: Ints, parties: int) -> list[Ints]:
    """Return step numbers in batches whose steps share no party, with each party's steps in order."""
    level, last = np.empty(len(steps), dtype=np.intp), [0] * parties
    for number, members in enumerate(steps.tolist()):
        level[number] = now = 1 + max([last[member] for member in members])
        for member in members:
            last[member] = now
    return by_level(level)


def descend_graph(objective: GraphObjective, weights: Floats, steps: Ints) -> Floats:
    """Run the descent over edge weights (Algorithm 2.4) in the drawn steps; return the weights.

    Args:
        weights: to start with, shape (n, n), symmetric, not negative, without a diagonal.
        steps: shape (T, 1 + rho): the party of each step and its peers.

    Raises:
        ConfigError: the weights are refused.
    """
    n = len(objective.costs)
    if weights.shape != (n, n):
        raise ConfigError.at("weights", f"shape must be ({n}, {n}), is {weights.shape}", ConfigCheck.SHAPE)
    # Written so that NaN fails.
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ConfigError.at("weights", "must be finite and not negative", ConfigCheck.RANGE)
    if (weights != weights.T).any() or weights.diagonal().any():
        raise ConfigError.at("weights", "must be symmetric, without a diagonal", ConfigCheck.CONFLICT)
    result = weights.copy()
    degrees = result.sum(axis=1)
    for chosen in independent_steps(steps, n):
        own, peers = steps[chosen, :1], steps[chosen, 1:]
        before = result[own, peers]
        after = objective.step(degrees[own[:, 0]], degrees[peers], before, objective.costs[own, peers])
        result[own, peers] = result[peers, own] = after
        moved = after - before
        degrees[own[:, 0]] += moved.sum(axis=1)
        degrees[peers] += moved
        # Rounding alone takes a degree below 0.
        np.maximum(degrees, 0, out=degrees)
    return result
