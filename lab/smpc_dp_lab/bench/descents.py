"""Personalised models by the product's coordinate descent, of all parties in one process."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.coordinate_descent import Gradients, PersonalizedObjective, Watch, descend
from smpc_dp.privacy.record_gradients import grid_bits, plan_gradient_noise
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]


def descended(
    objective: PersonalizedObjective,
    gradients: Gradients,
    length: int,
    wakes: NDArray[np.intp],
    seed: int,
    *,
    budget: tuple[float, float] | None = None,
    clip: float = 1.0,
    start: Floats | None = None,
    watch: Watch | None = None,
) -> Floats:
    """Return the models after updates of these parties, shape (n, length).

    Args:
        wakes: the party of each tick. seed: of the noise.
        budget: epsilon and delta of a record, split evenly over a party's updates; None: no noise.
        clip: of the gradients, in the L2 norm. start: models; None: zeros. watch: see `descend`.
    """
    parties = len(objective.sizes)
    bits, noise, source = 30, None, None
    if budget is not None:
        reaches, counts = clip * objective.reaches, np.bincount(wakes, minlength=parties)
        bits, source = grid_bits(reaches), NoiseSource.keyed(bytes(32), seed.to_bytes(8, "big"))
        noise = [
            plan_gradient_noise(*budget, [1.0] * max(1, int(count)), float(reach), bits)
            for count, reach in zip(counts, reaches, strict=True)
        ]
    exchange = PlainExchange(parties)
    return asyncio.run(
        descend(
            exchange,
            objective,
            gradients,
            length,
            wakes,
            bits,
            start=start,
            noise=noise,
            source=source,
            watch=watch,
        )
    )
