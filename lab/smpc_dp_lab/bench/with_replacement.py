"""DP-SGD with replacement, where a record is in five batches, with published and with sufficient noise.

[Jin, He, Dai: Decentralized Differentially Private Without-Replacement SGD, V.A]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.privacy.gaussian import gaussian_mu

Floats = NDArray[np.float64]

BATCH, VISITS = 50, 5


def naive_deviation(epsilon: float, delta: float, visits: int = VISITS) -> float:
    """Return the paper's noise of with-replacement SGD: the classical bound at epsilon/5 and delta/5.

    In units of the sensitivity. Simple composition: 34.5 for epsilon 1, delta 1/60,000^2, 5 visits.
    """
    return math.sqrt(2 * math.log(1.25 * visits / delta)) * visits / epsilon


def composed_deviation(epsilon: float, delta: float, visits: int = VISITS) -> float:
    """Return the noise deviation with which `visits` Gaussian mechanisms are (epsilon, delta)-DP."""
    return math.sqrt(visits) / gaussian_mu(epsilon, delta)


def noise_term(
    rate: float, lipschitz: float, batch: int, epsilon: float, delta: float, dimension: int
) -> float:
    """Return the noise term of Theorem 3, where every step is global; the paper prints it for dimension 1."""
    return 4 * math.log(1.25 / delta) * rate * lipschitz**2 / (batch * epsilon) ** 2 * dimension


def capped_batches(rng: np.random.Generator, nodes: int, each: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield random batches of random nodes until records have had their 5 visits, whatever the data are."""
    visits = np.zeros((nodes, each), dtype=np.intp)
    for _ in range(VISITS * visits.size // BATCH):
        node = int(rng.integers(nodes))
        free = np.flatnonzero(visits[node] < VISITS)
        if len(free) >= BATCH:
            chosen = rng.choice(free, BATCH, replace=False)
            visits[node, chosen] += 1
            yield node, chosen


def with_replacement(tables: Sequence[Floats], deviation: float, ridge: float, seed: int) -> Floats:
    """Run DP-SGD with steps 1/sqrt(t); `deviation`: of the noise, in units of the sensitivity 2 L/b."""
    rng, model = np.random.default_rng(seed), np.zeros(tables[0].shape[1])
    scale = deviation * 2 * math.sqrt(2) / BATCH
    for number, (node, chosen) in enumerate(capped_batches(rng, len(tables), len(tables[0])), 1):
        x, y = np.c_[tables[node][chosen, :-1], np.ones(BATCH)], tables[node][chosen, -1]
        slope = (0.5 * (1 + np.tanh(x @ model / 2)) - y) @ x / BATCH + ridge * model
        model = model - (slope + rng.normal(0, scale, len(model))) / math.sqrt(number)
    return model
