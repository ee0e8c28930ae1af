"""`simulate.similarities`: the comparisons of all parties in one process."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.capabilities.pairs.kernels.cosine import unit_codes
from smpc_dp.capabilities.pairs.statistics.similarity import plan_similarities
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.memory.randomness import randomness_of
from smpc_dp.values import vector_of


def similarities(
    vectors: ArrayLike, epsilon: float, *, levels: int = 7, seed_for_simulation: int | None = None
) -> NDArray[np.float64]:
    """Return the simulated noisy cosines of all vectors, shape (n, n), NaN on the diagonal.

    Args:
        vectors: shape (n, length), one of each party.
        epsilon: for a party's vector, its n - 1 comparisons together.
        levels, seed_for_simulation: as of `Session.similarities` and `simulate.pairwise`.

    Returns:
        shape (n, n), symmetric, NaN on the diagonal.

    Raises:
        ConfigError: an argument is out of range.
    """
    rows = np.asarray(vector_of(vectors, "vectors"), dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise ConfigError.at("vectors", f"shape must be (n, length), is {rows.shape}", ConfigCheck.SHAPE)
    plan = plan_similarities(rows.shape[1], len(rows), epsilon, levels)
    codes, (first, second) = unit_codes(rows, levels), np.triu_indices(len(rows), 1)
    source = randomness_of(seed_for_simulation, "similarities")
    drawn = plan.scores(plan.noise.draw(plan.kernel.integer(codes[first], codes[second]), source))
    result = np.full((len(rows), len(rows)), np.nan)
    result[first, second] = result[second, first] = drawn
    return result
