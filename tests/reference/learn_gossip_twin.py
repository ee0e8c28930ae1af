"""The gossip algorithms as the papers print them: a loop over ticks, and in it one over parties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.pairwise_losses import PairwiseLoss

Floats = NDArray[np.float64]
Pairs = NDArray[np.intp]
Scalar = Callable[[Any, Any], float]


def objective(loss: PairwiseLoss, theta: Floats, records: Floats) -> Floats:
    """Return (1/n^2) sum over u, v of h(theta; x_u, x_v) for each row of theta."""
    own, other = records[:, None, :], records[None, :, :]
    return np.array([loss.value(point, own, other).mean() for point in theta])


def gosta(records: Floats, kernel: Scalar, pairs: Pairs) -> list[float]:
    """Thesis, Algorithm 3.1; one edge a tick."""
    n = len(records)
    z, a = [0.0] * n, [records[u] for u in range(n)]
    for t, (i, j) in enumerate(pairs, 1):
        for u in range(n):
            z[u] = (t - 1) / t * z[u] + kernel(records[u], a[u]) / t
        z[i] = z[j] = (z[i] + z[j]) / 2
        a[i], a[j] = a[j], a[i]
    return z


def gosta_asynchronous(records: Floats, kernel: Scalar, pairs: Pairs, chances: Floats) -> list[float]:
    """With m_u, the unbiased estimates of the iteration number."""
    n = len(records)
    z, a, m = [0.0] * n, [records[u] for u in range(n)], [0.0] * n
    for i, j in pairs:
        z[i] = z[j] = (z[i] + z[j]) / 2
        for u in (i, j):
            m[u] += 1 / chances[u]
            weight = 1 / (m[u] * chances[u])
            z[u] = (1 - weight) * z[u] + weight * kernel(records[u], a[u])
        a[i], a[j] = a[j], a[i]
    return z


def u2_gossip(records: Floats, kernel: Scalar, pairs: Pairs) -> list[float]:
    """Two edges a tick, for the first records and for the second ones."""
    n = len(records)
    first, second = ([records[u] for u in range(n)] for _ in range(2))
    z = [0.0] * n
    for t in range(1, len(pairs) // 2 + 1):
        i, j = pairs[2 * t - 2]
        k, l = pairs[2 * t - 1]  # noqa: E741
        first[i], first[j] = first[j], first[i]
        second[k], second[l] = second[l], second[k]
        for u in range(n):
            z[u] = (t - 1) / t * z[u] + kernel(first[u], second[u]) / t
    return z


Gradient = Callable[[Floats, Any, Any], Floats]
Step = Callable[[float], float]
Point = Callable[[Floats, float], Floats]


def dual_averaging(
    records: Floats, gradient: Gradient, pairs: Pairs, p: int, gamma: Step, prox: Point
) -> list[Floats]:
    """Thesis, Algorithm 3.2, with pi_t(z) the minimiser of +z'theta + |theta|^2/(2 gamma) + t psi."""
    n = len(records)
    a = [records[u] for u in range(n)]
    z, theta, average = ([np.zeros(p) for _ in range(n)] for _ in range(3))
    for t, (i, j) in enumerate(pairs, 1):
        z[i] = z[j] = (z[i] + z[j]) / 2
        a[i], a[j] = a[j], a[i]
        for u in range(n):
            z[u] = z[u] + gradient(theta[u], records[u], a[u])
            theta[u] = prox(-gamma(t) * z[u], t * gamma(t))
            average[u] = (1 - 1 / t) * average[u] + theta[u] / t
    return average


def dual_averaging_asynchronous(
    records: Floats, gradient: Gradient, pairs: Pairs, chances: Floats, gamma: Step, prox: Point, p: int
) -> list[Floats]:
    """With m_u, the unbiased estimates of the iteration number."""
    n = len(records)
    a = [records[u] for u in range(n)]
    z, theta, average = ([np.zeros(p) for _ in range(n)] for _ in range(3))
    m = [0.0] * n
    for i, j in pairs:
        z[i] = z[j] = (z[i] + z[j]) / 2
        a[i], a[j] = a[j], a[i]
        for u in (i, j):
            z[u] = z[u] + gradient(theta[u], records[u], a[u]) / chances[u]
            m[u] += 1 / chances[u]
            theta[u] = prox(-gamma(m[u]) * z[u], m[u] * gamma(m[u]))
            weight = 1 / (m[u] * chances[u])
            average[u] = (1 - weight) * average[u] + weight * theta[u]
    return average


def mean_bias(gradient: Callable[..., Floats], theta: Floats, records: Floats, auxiliary: Floats) -> Floats:
    """Return the average bias of the parties' gradients, the bar epsilon of Theorem 3.2, shape (p,).

    The mean over u of the gradient at (x_u, a_u) less that over all (x_u, x_v); O(n^2).

    Args:
        theta: shape (n, p). records, auxiliary: shape (n, length), of all parties.
    """
    parties = len(records)
    taken = gradient(theta, records, auxiliary).mean(axis=0)
    full = np.zeros(theta.shape[1])
    for party in range(parties):
        full += gradient(theta[party], records[party], records).mean(axis=0)
    return np.asarray(taken - full / parties)
