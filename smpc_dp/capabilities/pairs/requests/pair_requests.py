"""Requests for evaluations of two parties, and for statistics of pairs by them, by a party."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from smpc_dp.capabilities.pairs.garbled.evaluation import Operation
from smpc_dp.capabilities.pairs.garbled.messages import PAIR_COPIES
from smpc_dp.capabilities.pairs.garbled.params import copies_of, refuse_garbling
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.requests.convictions import Convictions
from smpc_dp.capabilities.pairs.requests.evaluation import Evaluations
from smpc_dp.capabilities.pairs.requests.similarity import compare
from smpc_dp.capabilities.pairs.requests.statistic import StatisticRequest, estimate
from smpc_dp.capabilities.pairs.ustatistic.messages import HELLO
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.session.events import Event
from smpc_dp.session.party_requests import PartyRequests, check_label
from smpc_dp.session.tasks import BESIDE, find_task

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from smpc_dp.capabilities.pairs.garbled.evaluation import AnyCircuit, Evaluation, Input, Role
    from smpc_dp.capabilities.pairs.garbled.params import Mode, Output, Security
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.pairs.statistics.similarity import Similarities
    from smpc_dp.capabilities.pairs.ustatistic.plan import Engine
    from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
    from smpc_dp.privacy.circuit_noise import NoiseKind, PairDistribution
    from smpc_dp.session.connection import AggregatorConnection
    from smpc_dp.transport.tls import Contexts

# What a session without an aggregator does not have.
NO_EVALUATIONS = "evaluations: its addresses are for its averages"
NO_STATISTICS = "pairwise statistics: it learns them"


def _contexts(requests: PartyRequests, lacking: str) -> Contexts:
    """Return the TLS contexts to connect to other parties; raise ConfigError where there are none.

    Raises ConfigError in a simulation, and without an aggregator: `lacking` is what such a session does not
    have.
    """
    if requests.membership.one_process is not None:
        reason = (
            "two parties compute nothing alone in a simulation; see smpc_dp.simulate.evaluate and pairwise"
        )
        raise ConfigError.at("session", reason, ConfigCheck.UNSUPPORTED)
    if (contexts := requests.connection.contexts) is None:
        reason = f"a session without an aggregator has no {lacking}"
        raise ConfigError.at("topology", reason, ConfigCheck.UNSUPPORTED)
    return contexts


async def _evaluating(requests: PartyRequests, lacking: str) -> Evaluations:
    """Return the session's manager of evaluations with other parties, made at the first call.

    Calls return in their order.
    """
    async with requests.evaluations_lock:
        if requests.evaluations is None:
            contexts = _contexts(requests, lacking)
            member = requests.membership
            folder, roster = member.certificate_folder, member.session.roster
            convictions = await asyncio.to_thread(Convictions, folder, roster)
            requests.evaluations = Evaluations(member.session, member.identity, contexts, convictions)
    evaluations: Evaluations = requests.evaluations
    return evaluations


async def request_evaluation(
    requests: PartyRequests,
    circuit: AnyCircuit,
    inputs: Sequence[Input],
    *,
    peer: str,
    role: Role,
    output: Output = "both",
    evaluator_inputs: Sequence[int] | None = None,
    instances: int | None = None,
    mode: Mode | None = None,
    covert: int | None = None,
    security: Security | None = None,
    label: str = "",
) -> Evaluation:
    """Evaluate a circuit with another party of a session, as one request; return the result."""
    check_label(label)
    evaluations, party = await _evaluating(requests, NO_EVALUATIONS), requests.party
    evaluations.check_peer(peer)
    if role not in ("garbler", "evaluator"):
        raise ConfigError.at("role", f"{role!r} is neither 'garbler' nor 'evaluator'", ConfigCheck.CHOICE)
    garbler, evaluator = (party, peer) if role == "garbler" else (peer, party)
    make = partial(
        Operation.make,
        circuit,
        inputs,
        garbler=garbler,
        evaluator=evaluator,
        own=party,
        output=output,
        mode=mode,
        covert=covert,
        security=security,
        evaluator_inputs=evaluator_inputs,
        instances=instances,
    )

    def on_step(step: str) -> None:
        requests.on_event(Event(party, "step", step=step, waiting=1, detail=f"evaluation with {peer}"))

    return await evaluations.evaluate(make, peer, label, on_step)


async def request_similarities(
    requests: PartyRequests,
    vector: ArrayLike,
    epsilon: float,
    *,
    levels: int,
    covert: int | None,
    security: Security | None,
) -> Similarities:
    """Charge the ledger, compare this party's vector with all other parties'; return noisy cosines."""
    evaluations = await _evaluating(requests, NO_EVALUATIONS)
    return await compare(
        requests.party,
        requests.membership.session.roster.party_names,
        partial(request_evaluation, requests),
        evaluations.check_peer,
        requests.ledger,
        vector,
        epsilon,
        levels,
        covert=copies_of(security, covert),
        malicious=security == "malicious",
    )


async def request_statistic(  # noqa: PLR0913 - as of `Session.pairwise`
    requests: PartyRequests,
    kernel: str | Kernel,
    data: Any,
    epsilon: float,
    partners: int | None,
    *,
    delta: float,
    noise: NoiseKind | PairDistribution,
    zetas: tuple[float, float] | None,
    public_label: int | None,
    engine: Engine | None,
    covert: int | None,
    security: Security | None,
    label: str,
    number: int | None,
) -> StatisticResult:
    """Run one request for a noisy statistic of pairs of the parties' records; return the result."""
    requests.membership.refuse_others("vector", "records")
    session = requests.membership.session
    has_servers = session.topology == "servers"
    expected: Engine = "mpyc" if has_servers else "garbled"
    if engine not in (None, expected):
        raise ConfigError.at(
            "engine",
            f"is {engine!r}, this session's members compute by {expected!r}",
            ConfigCheck.DIFFERS,
        )
    check_label(label)
    if has_servers:
        if label:
            reason = "is for a state, which a session with servers does not have"
            raise ConfigError.at("label", reason, ConfigCheck.UNSUPPORTED)
        refuse_garbling(covert, security)
        shared: StatisticResult = await find_task("pairs-on-shares").request(
            requests,
            kernel,
            data,
            epsilon,
            partners,
            delta=delta,
            noise=noise,
            zetas=zetas,
            public_label=public_label,
            number=number,
        )
        return shared
    _contexts(requests, NO_STATISTICS)
    requests.take(number, label)
    async with requests.declining(BESIDE[HELLO]):
        evaluations = await _evaluating(requests, NO_STATISTICS)
        requested = await asyncio.to_thread(
            lambda: StatisticRequest.check(
                find_kernel(kernel),
                data,
                parties=len(session.roster.parties),
                epsilon=epsilon,
                delta=delta,
                partners=partners,
                noise=cast("NoiseKind", noise),
                zetas=zetas,
                public_label=public_label,
                covert=copies_of(security, covert, PAIR_COPIES),
                malicious=security == "malicious",
            )
        )
    own = [label, "" if public_label is None else str(public_label)]
    await requests.begin(" ".join(["pairs", *filter(None, own), requested.operation]))
    aggregator = cast("AggregatorConnection", requests.connection)
    with requests.noting_others():
        result = await estimate(requested, aggregator, requests.number, evaluations, requests.ledger)
    requests.notify_done(result.survivors, result.absent)
    return result
