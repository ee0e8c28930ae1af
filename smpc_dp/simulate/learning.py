"""`simulate.learn`: a learner over a whole network in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn.averager import Averager, PeerExchange, PlainAverager, PlainExchange
from smpc_dp.learn.methods import Averaging
from smpc_dp.learn.needs import Learned, Means
from smpc_dp.learn.registry import LearnParameters, check_learn
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.simulate.averagers import IdealAverager, IdealExchange, MachineAverager
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation

Fidelity = Literal["ideal", "machines", "plain"]


def learn(
    parameters: Mapping[str, object] | LearnParameters,
    data: Sequence[ArrayLike],
    *,
    fidelity: Fidelity = "ideal",
    seed_for_simulation: int | None = None,
) -> Learned:
    """Run a learner over the users whose tables these are.

    Args:
        parameters: the `[parameters]` of a session with protocol "learn", or what `check_learn` made of them.
        data: a table for each user, shape (points, columns), the label last.
        fidelity: "ideal": the protocols' rounding and noise law without their cryptography; "machines": every
            message of every group; "plain": exact averages, no privacy.
        seed_for_simulation: makes the noise reproducible and thereby insecure; None: the system's randomness.

    Raises:
        ConfigError: parameters or data are refused, or the model diverges.
    """
    if isinstance(parameters, LearnParameters):
        checked: LearnParameters | None = parameters
    else:
        checked, faults = check_learn(parameters, len(data))
        if faults:
            raise ConfigError(faults)
    if checked is None or checked.users != len(data):
        raise ConfigError([Fault("data", f"{len(data)} tables, planned for another number of users")])
    if fidelity not in ("ideal", "machines", "plain"):
        raise ConfigError([Fault("fidelity", f"must be 'ideal', 'machines' or 'plain', is {fidelity!r}")])
    tables = [np.asarray(table, dtype=np.float64) for table in data]
    for user, table in enumerate(tables):
        checked.learner.check_data(table, f"user {user}")
    users, seed = len(data), seed_for_simulation
    randomness = SystemRandomness() if seed is None else SeededRandomnessForSimulation(seed, "learn")

    def averager(averaging: Averaging | None) -> Averager | None:
        if averaging is None:
            return None
        if fidelity == "plain":
            return PlainAverager(users)
        if fidelity == "machines":
            return MachineAverager(users, averaging, seed)
        return IdealAverager(
            users, averaging, NoiseSource.keyed(randomness.bytes(32), b"learn"), coins=randomness
        )

    exchange: PeerExchange | None = None
    if checked.exchange is not None and fidelity == "plain":
        exchange = PlainExchange(users)
    elif checked.exchange is not None:
        exchange = IdealExchange(users, checked.exchange, NoiseSource.keyed(randomness.bytes(32), b"learn"))
    means = Means(averager(checked.average), averager(checked.mix), exchange)
    learned = asyncio.run(checked.learner.run(means, tables))
    return learned if fidelity == "plain" else checked.completed(learned)
