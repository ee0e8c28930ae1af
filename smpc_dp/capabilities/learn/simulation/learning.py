"""`simulate.learn`: a learner over a whole network in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from smpc_dp.capabilities.learn.averager import Averager, PeerExchange, PlainAverager, PlainExchange
from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.capabilities.learn.own import LocalFunction, Metric, OwnFunctions
from smpc_dp.capabilities.learn.registry import LearnParameters, check_learn
from smpc_dp.capabilities.learn.requirements import (
    AverageEvidence,
    Learned,
    LearnerContext,
    OnStep,
    Step,
    ignore_step,
)
from smpc_dp.capabilities.learn.simulation.averagers import IdealAverager, IdealExchange, SharesAverager
from smpc_dp.capabilities.learn.written import LEARN
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import run_members, simulated_session
from smpc_dp.session.memory.randomness import checked_seed, randomness_of
from smpc_dp.session.session import Session

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
    executor: Executor | None = None,
) -> Learned:
    """Run a learner over the data of all parties in one process, and return its result.

    Args:
        parameters: the `[parameters]` of a session with protocol "learn", or what `check_learn` made of them.
        data: a table for each party, shape (points, columns), the label last; with `model = "own"` anything.
        model, gradient, update, metric, on_step: as of `Session.learn`, for all parties. `weights`: of each.
            `on_step` is called once for each step.
        fidelity: "ideal": the protocols' rounding and noise distribution without their cryptography;
            "machines": the sessions of all parties and their aggregator, over connections in memory; averages
            by servers: every message, and the program on shares; "plain": exact averages, no privacy.
        seed_for_simulation: makes the noise reproducible and thereby insecure; None: the system's randomness.
        executor: of averages by servers, for "machines": computes the groups of a step, whose vectors are
            sent to it; None: this process does.

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
    weighted = [None] * len(data) if weights is None else weights
    own = checked.own_model(functions, names, data, weighted)
    tables: list[Any] = list(data)
    if own is None:
        tables = [checked.read(table, name) for table, name in zip(data, names, strict=True)]
    parties, seed = len(data), checked_seed(seed_for_simulation)
    if fidelity == "machines" and checked.on_shares is None:
        return _run_sessions(checked, functions, tables, weighted, on_step, seed)
    randomness = randomness_of(seed, "learn")

    def averager(averaging: PlannedAverages | None) -> Averager | None:
        if averaging is None:
            return None
        if fidelity == "plain":
            return PlainAverager(parties)
        if fidelity == "machines":
            return SharesAverager(parties, averaging, seed, executor)
        return IdealAverager(
            parties, averaging, NoiseSource.keyed(randomness.bytes(32), b"learn"), coins=randomness
        )

    exchange: PeerExchange | None = None
    if checked.exchange is not None and fidelity == "plain":
        exchange = PlainExchange(parties)
    elif checked.exchange is not None:
        exchange = IdealExchange(parties, checked.exchange, NoiseSource.keyed(randomness.bytes(32), b"learn"))
    # The same with and without noise of averages and messages.
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
    learned = run_simulation(lambda: checked.learner.run(context, tables))
    completed = replace(
        checked.complete(learned), model=None if own is None else own.restore(learned.values[0])
    )
    return replace(completed, guarantee=learned.guarantee) if fidelity == "plain" else completed


def _checked(parameters: Mapping[str, object] | LearnParameters, parties: int) -> LearnParameters:
    """Return checked parameters; raise ConfigError if refused, or planned for another number of parties."""
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


def _run_sessions(
    parameters: LearnParameters,
    functions: OwnFunctions,
    data: Sequence[Any],
    weights: Sequence[float | None],
    on_step: OnStep,
    seed: int | None,
) -> Learned:
    """Simulate real sessions of all parties; return the joint result or raise a party's first error."""
    simulated = simulated_session(LEARN, parameters.declared, parameters.parties, seed_for_simulation=seed)
    # Those of the caller may be others than a session plans.
    simulated = replace(simulated, session=replace(simulated.session, checked_parameters=parameters))
    given = dict(zip(simulated.parties, zip(data, weights, strict=True), strict=True))
    errors: list[SmpcError] = []
    reported: set[int] = set()

    def report(step: Step) -> None:
        if step.number not in reported:
            reported.add(step.number)
            on_step(step)

    async def take_part(session: Session) -> Learned:
        table, weight = given[session.party]
        try:
            return await session.learn(
                table,
                model=functions.model,
                gradient=functions.gradient,
                update=functions.update,
                metric=functions.metric,
                weight=weight,
                on_step=report,
            )
        except SmpcError as error:
            errors.append(error)
            raise

    ended = run_simulation(lambda: run_members(simulated, take_part))
    learned: list[Learned] = []
    for result in [*errors, *ended.results.values()]:
        if isinstance(result, SmpcError):
            raise result
        learned.append(result)
    return _joint(learned)


def _joint(learned: Sequence[Learned]) -> Learned:
    """Return the results of all single parties combined into one result."""
    graphs = [one.graph for one in learned if one.graph is not None]
    return replace(
        learned[0],
        values=np.concatenate([one.values for one in learned]),
        steps=np.concatenate([one.steps for one in learned]),
        done=np.concatenate([one.done for one in learned]),
        failures=tuple(dict.fromkeys(text for one in learned for text in one.failures)),
        # Each party has those of its own groups.
        metrics=tuple(sorted(dict(entry for one in learned for entry in one.metrics).items())),
        graph=None if not graphs else np.concatenate(graphs),
        evidence=AverageEvidence.of_all(one.evidence for one in learned),
    )
