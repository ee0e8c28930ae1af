"""Coordinate descent whose neighbour terms are secure sums of models.

At each tick the neighbours of one party add up their models, each clipped and times its weight; the party
takes part with zeros. What a sum says of a model is the averager's matter: noise, or nothing. Its parties are
public, and so is each sum. Exact sums give models away: see docs/proofs/personalized.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ALONE, FAILURES, Averager, Rows
from smpc_dp.capabilities.learn.coordinate_descent import Gradients, PersonalizedObjective, pulled_models
from smpc_dp.capabilities.learn.models import clip_rows


def members(objective: PersonalizedObjective, party: int) -> NDArray[np.intp]:
    """Return the parties of the secure sum that updates one party: its neighbours and itself, ascending."""
    weights = objective.weights
    near = weights.indices[weights.indptr[party] : weights.indptr[party + 1]]
    return np.unique(np.append(near, party)).astype(np.intp)


async def descend_by_sums(
    averager: Averager,
    objective: PersonalizedObjective,
    gradients: Gradients,
    length: int,
    wakes: NDArray[np.intp],
    bound: float,
) -> tuple[Rows, NDArray[np.intp], list[str]]:
    """Run coordinate descent with secure sums of neighbours; return models, sums done, and failures.

    Args:
        wakes: shape (T,): the party of each tick.
        bound: L2 norm that a model is clipped to in a sum; its vector has at most this norm.
    """
    here, failures = averager.here, list[str]()
    models, done = np.zeros((len(here), length)), np.zeros(len(here), np.intp)
    dense = objective.weights
    for party in wakes.tolist():
        group = np.full(averager.parties, ALONE)
        group[members(objective, party)] = 0
        share = dense[[party]].toarray()[0][here] / objective.degrees[party]
        try:
            averaged = await averager.average(clip_rows(models, bound) * share[:, None], group=group)
        except FAILURES as error:
            failures.append(str(error))
            continue
        row = np.flatnonzero(here == party)
        if len(row):
            near = averaged.values[row] * int((group == 0).sum())
            moved = pulled_models(objective, models[row], near, here[row])
            models[row] = moved - objective.factors[party] * gradients.mean(models[row], row)
            done[row] += 1
    return models, done, list(dict.fromkeys(failures))
