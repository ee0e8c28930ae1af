"""`simulate.learn`: a learner over a whole network in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from smpc_dp.capabilities.learn.averager import Averager, PeerExchange, PlainAverager, PlainExchange
from smpc_dp.capabilities.learn.exchanges import PlannedMessages
from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.capabilities.learn.own import LocalFunction, Metric, OwnFunctions
from smpc_dp.capabilities.learn.registry import LearnParameters, check_learn
from smpc_dp.capabilities.learn.requirements import Learned, LearnerContext, OnStep, Table, ignore_step
from smpc_dp.capabilities.learn.simulation.averagers import IdealAverager, IdealExchange, ProtocolAverager
from smpc_dp.capabilities.learn.simulation.exchanging import MemoryRelay
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import checked_seed, randomness_of

Fidelity = Literal["ideal", "machines", "plain"]


def learn(
    parameters: Mapping[str, object] | LearnParameters,
    data: Sequence[Any],
    *,
    model: Any = None,
    gradient: LocalFunction | None = None,
    update: LocalFunction | None = None,
    metric: Metric | None = None,
    weights: Sequence[float] | None = None,
    on_step: OnStep = ignore_step,
    fidelity: Fidelity = "ideal",
    seed_for_simulation: int | None = None,
) -> Learned:
    """Run a learner over all parties in one process.

    Args:
        parameters: the `[parameters]` of a session with protocol "learn", or what `check_learn` made of them.
        data: a table for each party, shape (points, columns), the label last; with `model = "own"` anything.
        model, gradient, update, metric, on_step: as of `Session.learn`, for all parties. `weights`: of each.
        fidelity: "ideal": the protocols' rounding and noise distribution without their cryptography;
            "machines": every message of every group, and of every party in a task of its own where parties
            send to each other; "plain": exact averages, no privacy.
        seed_for_simulation: makes the noise reproducible and thereby insecure; None: the system's randomness.

    Raises:
        ConfigError: parameters or data are refused, or the model diverges.
    """
    checked = _checked(parameters, len(data))
    if fidelity not in ("ideal", "machines", "plain"):
        raise ConfigError.at(
            "fidelity", f"must be 'ideal', 'machines' or 'plain', is {fidelity!r}", ConfigCheck.CHOICE
        )
    names = [f"party {party}" for party in range(len(data))]
    functions = OwnFunctions(model, gradient, update, metric)
    own = checked.own_model(functions, names, data, [None] * len(data) if weights is None else weights)
    tables: list[Any] = list(data)
    if own is None:
        tables = [checked.read(table, name) for table, name in zip(data, names, strict=True)]
    parties, seed = len(data), checked_seed(seed_for_simulation)
    randomness = randomness_of(seed, "learn")

    def averager(averaging: PlannedAverages | None) -> Averager | None:
        if averaging is None:
            return None
        if fidelity == "plain":
            return PlainAverager(parties)
        if fidelity == "machines":
            return ProtocolAverager(parties, averaging, seed)
        return IdealAverager(
            parties, averaging, NoiseSource.keyed(randomness.bytes(32), b"learn"), coins=randomness
        )

    exchanging = checked.exchange
    if exchanging is not None and fidelity == "machines" and checked.average is None and checked.mix is None:
        return checked.complete(asyncio.run(_run_by_messages(checked, exchanging, tables, seed)))
    exchange: PeerExchange | None = None
    if checked.exchange is not None and fidelity == "plain":
        exchange = PlainExchange(parties)
    elif checked.exchange is not None:
        exchange = IdealExchange(parties, checked.exchange, NoiseSource.keyed(randomness.bytes(32), b"learn"))
    # The same whatever the fidelity.
    drawn = randomness_of(seed, "learner")
    context = LearnerContext(
        averager(checked.average),
        averager(checked.mix),
        exchange,
        NoiseSource.keyed(drawn.bytes(32), b"learner"),
        averager(checked.metric),
        own,
        on_step,
    )
    learned = asyncio.run(checked.learner.run(context, tables))
    completed = replace(
        checked.complete(learned), model=None if own is None else own.restore(learned.values[0])
    )
    return replace(completed, guarantee=learned.guarantee) if fidelity == "plain" else completed


def _checked(parameters: Mapping[str, object] | LearnParameters, parties: int) -> LearnParameters:
    """Return the parameters for so many parties; raise ConfigError if they are refused or for others."""
    checked: LearnParameters | None
    if isinstance(parameters, Mapping):
        checked, issues = check_learn(parameters, parties)
        if issues:
            raise ConfigError(issues)
    else:
        checked = parameters
    if checked is None or checked.parties != parties:
        raise ConfigError.at(
            "data", f"{parties} tables, planned for another number of parties", ConfigCheck.DIFFERS
        )
    return checked


async def _run_by_messages(
    parameters: LearnParameters, exchanging: PlannedMessages, tables: list[Table], seed: int | None
) -> Learned:
    """Run the learner once for each party, over the in-memory network, and return the joint result."""
    aggregator = MemoryRelay(parameters.parties, exchanging, seed_for_simulation=seed)
    errors: list[SmpcError] = []

    async def one(party: int) -> Learned | None:
        exchange = aggregator.exchanges[party]
        randomness = randomness_of(seed, f"learner {party}")
        source = NoiseSource.keyed(randomness.bytes(32), b"learner")
        try:
            return await parameters.learner.run(
                LearnerContext(exchange=exchange, source=source), [tables[party]]
            )
        except SmpcError as error:
            errors.append(error)
            return None
        finally:
            exchange.leave()

    result = await asyncio.gather(*(one(party) for party in range(parameters.parties)))
    for error in errors:
        raise error
    learned = [one for one in result if one is not None]
    graphs = [one.graph for one in learned if one.graph is not None]
    return replace(
        learned[0],
        values=np.concatenate([one.values for one in learned]),
        steps=np.concatenate([one.steps for one in learned]),
        done=np.concatenate([one.done for one in learned]),
        failures=tuple(dict.fromkeys(text for one in learned for text in one.failures)),
        graph=None if not graphs else np.concatenate(graphs),
    )
