"""Runs a learner between processes: each average of a group is a request of a session.

Every process runs the same learner: a party with its own row, the aggregator with no row. Each call takes as
many request numbers as it has groups, in the order of their labels; since the groups are public, all members
count alike, and a party in none of them goes on at once.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.capabilities.learn.own import OwnFunctions
from smpc_dp.capabilities.learn.registry import LearnParameters
from smpc_dp.capabilities.learn.requests.averaging import LearnerRequests, PartyAverager, ServingAverager
from smpc_dp.capabilities.learn.requests.exchanging import AggregatorExchange, PartyExchange
from smpc_dp.capabilities.learn.requests.saved_steps import SavedSteps, Tallied
from smpc_dp.capabilities.learn.requirements import (
    AverageEvidence,
    Learned,
    LearnerContext,
    OnStep,
    Step,
    ignore_step,
)
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError, SmpcError
from smpc_dp.session.aggregator import log_folder, open_aggregator
from smpc_dp.session.charging import open_ledger
from smpc_dp.session.events import Event, OnEvent, ignore, with_logging
from smpc_dp.session.member import Membership
from smpc_dp.session.opening import open_connection, open_state
from smpc_dp.session.party_requests import PartyRequests
from smpc_dp.session.requests import Counter, EverybodyLeftError
from smpc_dp.session.session_file import load_session
from smpc_dp.session.tasks import checked_for
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.own import LocalFunction, Metric, OwnModel
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.session.connection import Connection
    from smpc_dp.session.session_state import SessionState, StateFolder
    from smpc_dp.web_settings import WebSettings

__all__ = ["learn", "serve_learning"]


def learn_parameters(membership: Membership) -> LearnParameters:
    """Return the parameters of a learning session; raise ConfigError for a session of another kind."""
    return cast("LearnParameters", checked_for(membership.session, "learner"))


async def learn(
    session: str | os.PathLike[str],
    party: str,
    data: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    on_event: OnEvent = ignore,
    web: WebSettings | None = None,
    state: StateFolder | None = None,
    counter: str | os.PathLike[str] | None = None,
) -> Learned:
    """Run one party of a learning session on the table in the file `data`, and return its result.

    Args:
        session: path of a session file with protocol "learn".
        data: a table, one point a line, the label last; see `data.read_source`.
        key, ledger, on_event, web, state, counter: as for `connect`. Each average of private vectors that
            the party takes part in, and each message or all together, is charged before anything that depends
            on its data leaves.

    Raises:
        ConfigError: the session, the data or a rate that diverges.
        PrivacyError: the ledger's budget is too small for the steps planned; nothing was sent.
        AggregatorLostError, ServerLostError: the aggregator, or a server, is gone.
        LocalError, TimeoutFault, PeerFault: as for `connect`.
    """
    on_event = with_logging(on_event)
    membership = Membership.load(session, party, key, web=web)
    await membership.load_generators()
    parameters = learn_parameters(membership)
    table = await asyncio.to_thread(parameters.read, data, party)
    book = None if ledger is None else await asyncio.to_thread(open_ledger, ledger, party)
    opened = await open_state(membership, state, counter, on_event)
    try:
        await check_ledger(book, membership, opened)
        connection = await open_connection(membership, on_event, state=opened)
    except BaseException:
        opened.close()
        raise
    try:
        return await run_learner(connection, [table], book, on_event)
    finally:
        await connection.close()


async def learn_once(
    requests: PartyRequests,
    data: Any,
    *,
    model: Any,
    gradient: LocalFunction | None,
    update: LocalFunction | None,
    metric: Metric | None,
    weight: float | None,
    on_step: OnStep | None,
) -> Learned:
    """Run the learner of an open session's party; return what it learned; ConfigError a second time."""
    membership, party = requests.membership, requests.party
    parameters = learn_parameters(membership)
    if requests.number and not requests.state.saves:
        reason = f"{party}: a session learns once; open another one to learn again"
        raise ConfigError.at("session", reason, ConfigCheck.CONFLICT)
    functions = OwnFunctions(model, gradient, update, metric)
    own = parameters.own_model(functions, [party], [data], [weight])
    table = data if own is not None else await asyncio.to_thread(parameters.read, data, party)
    await check_ledger(requests.ledger, membership, requests.state)
    requests.number += 1
    return await run_learner(
        requests.connection, [table], requests.ledger, requests.on_event, own, on_step or ignore_step
    )


async def check_ledger(ledger: Ledger | None, membership: Membership, state: SessionState) -> None:
    """Raise PrivacyError if the party's ledger, if any, lacks budget for all requests of a new session.

    A run that goes on was checked when it began, and a part of it is charged.
    """
    if ledger is not None and not (state.saves and state.number):
        await asyncio.to_thread(check_budget, ledger, learn_parameters(membership), _index(membership))


def _index(membership: Membership) -> int:
    """Return the number, from 0, of the local party in the roster."""
    return membership.session.roster.party_names.index(membership.name)


async def run_learner(
    connection: Connection,
    data: list[Any],
    book: Ledger | None,
    on_event: OnEvent,
    own: OwnModel | None = None,
    on_step: OnStep = ignore_step,
) -> Learned:
    """Run the session's learner for a connected party on its checked rows, and return its result.

    Whatever ends it, the others are told that this party has left, unless the run is saved: then the same
    call goes on with it. Errors as of `learn`.
    """
    membership, counter = connection.membership, Counter()
    parameters = learn_parameters(membership)
    of_model = "" if own is None else f" {own.fingerprint}"
    averagers: list[PartyAverager] = []

    def averager(
        averaging: PlannedAverages | None, purpose: str, charged: Ledger | None
    ) -> PartyAverager | None:
        if averaging is None:
            return None
        requested = parameters.requested(f"{purpose}{of_model}")
        averagers.append(PartyAverager(connection, averaging, counter, purpose, requested, charged, on_event))
        return averagers[-1]

    def report(step: Step) -> None:
        on_event(_event(membership.name, counter, step))
        on_step(step)

    state, saved = connection.state, None
    # Functions of the caller may raise anything.
    left: SmpcError | None = LocalError("ended by an error of its caller")
    try:
        exchange = None
        if parameters.exchange is not None and not membership.servers:
            # Where steps are not private one by one, all at once, before the first message.
            whole = None if book is None else own_release(parameters, _index(membership))
            requested = parameters.requested("exchange")
            exchange = PartyExchange(
                membership, parameters.exchange, counter, connection, book, whole, requested
            )
        context = LearnerContext(
            averager(parameters.average, "average", book),
            averager(parameters.mix, "mix", None),
            exchange,
            membership.noise_source(),
            averager(parameters.metric, "metric", book),
            own=own,
            on_step=report,
        )
        if state.saves:
            tallied: list[Tallied] = [*averagers, *([] if exchange is None else [exchange])]
            named = membership.name, state.progress, of_model.strip()
            saved = await finish_in_thread(partial(SavedSteps, *named, counter, tallied))
            context = replace(context, progress=saved)
        learned = await parameters.learner.run(context, data)
        left = None
    except SmpcError as error:
        left = error
        raise
    finally:
        if left is not None and not state.saves:
            await connection.quit(counter.taken + 1, left)
    on_event(Event(membership.name, "done", counter.taken, "done"))
    model = None if own is None else own.restore(learned.values[0])
    evidence = AverageEvidence.of_all(one.evidence for one in averagers)
    resumed = saved is not None and saved.resumed
    return replace(parameters.complete(learned), model=model, evidence=evidence, resumed=resumed)


def _event(name: str, counter: Counter, step: Step) -> Event:
    """Return the event that reports a step of the learner to the caller."""
    return Event(name, "step", counter.taken, str(step), absent=step.absent)


def check_budget(ledger: Ledger, parameters: LearnParameters, party: int) -> None:
    """Raise PrivacyError if the ledger has too little budget for all of the party's planned requests."""
    requirements = parameters.learner.requirements(parameters.parties)
    planned: list[ReleaseEvent] = []
    averages = ((requirements.average, parameters.average), (requirements.metric, parameters.metric))
    for required, averaging in averages:
        if required is not None and averaging is not None:
            # Groups of different sizes have noise for the same epsilon.
            event = next(iter(averaging.plans.values())).event()
            planned += [event] * int(required.participations[party])
    if (
        requirements.exchange is not None
        and parameters.exchange is not None
        and parameters.exchange.guarantee
    ):
        planned += [parameters.exchange.parameters.event()] * int(requirements.exchange.participations[party])
    whole = own_release(parameters, party)
    if whole is not None:
        planned.append(whole)
    ledger.check(planned)


def own_release(parameters: LearnParameters, party: int) -> ReleaseEvent | None:
    """Return the one release charged to a party's ledger for a whole run; None if steps are charged singly.

    Messages without protection are an exact release, which a budget refuses.
    """
    requirements = parameters.learner.requirements(parameters.parties)
    if (
        requirements.own is not None
        or parameters.exchange is None
        or parameters.exchange.guarantee is not None
    ):
        return requirements.own_of(party)
    from smpc_dp.privacy.accountant.events import exact_release

    return exact_release("messages that nothing protects", "substitution")


async def serve_learning(
    session: str | os.PathLike[str],
    *,
    name: str | None = None,
    key: str | os.PathLike[str] | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    board: str | os.PathLike[str] | None = None,
    begin_with: int | None = None,
    web: WebSettings | None = None,
    state: StateFolder | None = None,
    counter: str | os.PathLike[str] | None = None,
) -> dict[int, str]:
    """Run the aggregator or a server of a learning session to its end; return errors by request number.

    Arguments as of `serve`; a server is named, and has no board. It begins when `begin_with` parties (None:
    all) have connected, or `connect` seconds have passed. A party that connects later takes part in its
    groups from then on.

    Returns the errors of groups that failed, by request number.
    """
    on_event = with_logging(on_event)
    role = "server" if name is not None and load_session(session).roster.servers else "aggregator"
    membership = Membership.load(session, name, key, role, web=web)
    await membership.load_generators()
    opened = await open_state(membership, state, counter, on_event)
    try:
        on_shares = learn_parameters(membership).on_shares
        opening: AbstractAsyncContextManager[Any]
        if on_shares is not None:
            opening = on_shares.open_server(membership, on_event, listen_on, keep=True)
        else:
            logs = log_folder(membership, session, board)
            opening = open_aggregator(membership, listen_on, logs=logs, on_event=on_event, state=opened)
        return await serve_steps(membership, opening, on_event, begin_with)
    finally:
        opened.close()


async def serve_steps(
    membership: Membership,
    opening: AbstractAsyncContextManager[Any],
    on_event: OnEvent = ignore,
    begin_with: int | None = None,
) -> dict[int, str]:
    """Serve all steps at the aggregator or server that `opening` opens; return errors by request number."""
    parameters, counter = learn_parameters(membership), Counter()
    async with opening as server:
        goes_on = None if parameters.on_shares is not None else server
        served = LearnerRequests(membership, server.request, goes_on)

        def report(step: Step) -> None:
            if counter.taken >= served.first:
                on_event(_event(membership.name, counter, step))

        await server.gather(begin_with)
        failures = await _serve(served, parameters, counter, report)
        if goes_on is not None and counter.taken >= served.first:
            await server.end()
    on_event(Event(membership.name, "done", counter.taken, "done"))
    return failures


async def _serve(
    served: LearnerRequests, parameters: LearnParameters, counter: Counter, on_step: OnStep
) -> dict[int, str]:
    """Serve a learner's requests to the end of its schedule; return errors of groups by request number."""

    def averager(averaging: PlannedAverages | None) -> ServingAverager | None:
        return None if averaging is None else ServingAverager(served, averaging, counter)

    exchange = None
    if parameters.exchange is not None and not served.membership.servers:
        exchange = AggregatorExchange(served, parameters.exchange, counter)
    context = LearnerContext(
        averager(parameters.average),
        averager(parameters.mix),
        exchange,
        metric=averager(parameters.metric),
        on_step=on_step,
    )
    try:
        await parameters.learner.run(context, [])
    except EverybodyLeftError as error:
        served.failures[counter.taken] = str(error)
    return served.failures
