"""Runs a learner between processes: each average of a group is a request of a session.

Every process runs the same learner: a party with its own row, the aggregator with no row. Each call takes as
many request numbers as it has groups, in the order of their labels; since the groups are public, all members
count alike, and a party in none of them goes on at once.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import SmpcError
from smpc_dp.learn.data import read_table
from smpc_dp.learn.methods import PlannedAverages
from smpc_dp.learn.registry import LearnParameters
from smpc_dp.learn.requirements import Learned, LearnerContext
from smpc_dp.net.aggregator import log_folder, open_aggregator
from smpc_dp.net.averaging import LearnerRequests, PartyAverager, ServingAverager
from smpc_dp.net.events import Event, OnEvent, ignore, with_logging
from smpc_dp.net.exchanging import AggregatorExchange, PartyExchange
from smpc_dp.net.member import Membership, aggregator_name, learn_parameters
from smpc_dp.net.opening import open_connection
from smpc_dp.net.requests import Counter, EverybodyLeftError
from smpc_dp.net.session import open_ledger
from smpc_dp.net.session_file import load_session

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger


async def learn(
    session: str | os.PathLike[str],
    party: str,
    data: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    on_event: OnEvent = ignore,
) -> Learned:
    """Run one party of a session that learns, with the points in the file `data`.

    Args:
        session: path of a session file with protocol "learn".
        data: a table, one point a line, the label last; see `learn.data.read_table`.
        key, ledger, on_event: as for `connect`. Each average of private vectors that the party takes part in,
            and each message or all together, is charged before anything that depends on its data leaves.

    Raises:
        ConfigError: the session, the data or a rate that diverges.
        PrivacyError: the ledger's budget is too small for the steps planned; nothing was sent.
        AggregatorLostError, ServerLostError: the aggregator, or a server, is gone.
        LocalError, TimeoutFault, PeerFault: as for `connect`.
    """
    on_event = with_logging(on_event)
    membership = Membership.load(session, party, key)
    parameters = learn_parameters(membership)
    table = await asyncio.to_thread(read_table, data)
    parameters.learner.check_data(table, party)
    book = None if ledger is None else await asyncio.to_thread(open_ledger, ledger, party)
    names = [member.name for member in membership.session.roster.parties]
    if book is not None:
        await asyncio.to_thread(check_budget, book, parameters, names.index(party))
    connection = await open_connection(membership, on_event)
    counter = Counter()

    def averager(
        averaging: PlannedAverages | None, purpose: str, charged: Ledger | None
    ) -> PartyAverager | None:
        if averaging is None:
            return None
        requested = parameters.requested(purpose)
        return PartyAverager(connection, averaging, counter, purpose, requested, charged, on_event)

    try:
        exchange = None
        if parameters.exchange is not None and not membership.servers:
            # Where steps are not private one by one, all at once, before the first message.
            whole = None if book is None else own_release(parameters, names.index(party))
            requested = parameters.requested("exchange")
            exchange = PartyExchange(
                membership, parameters.exchange, counter, connection, book, whole, requested
            )
        context = LearnerContext(
            averager(parameters.average, "average", book),
            averager(parameters.mix, "mix", None),
            exchange,
        )
        learned = await parameters.learner.run(context, [table])
    except SmpcError as error:
        await connection.quit(counter.taken + 1, error)
        raise
    finally:
        await connection.close()
    on_event(Event(party, "done", counter.taken, "done"))
    return parameters.with_guarantee(learned)


def check_budget(ledger: Ledger, parameters: LearnParameters, party: int) -> None:
    """Raise PrivacyError unless the ledger affords all planned averages and messages of the party."""
    requirements = parameters.learner.requirements(parameters.parties)
    planned: list[ReleaseEvent] = []
    if requirements.average is not None and parameters.average is not None:
        # Groups of different sizes have noise for the same epsilon.
        event = next(iter(parameters.average.plans.values())).event()
        planned += [event] * int(requirements.average.participations[party])
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
    """Return the release that a party's ledger is charged for a whole run; None where each message is.

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
) -> dict[int, str]:
    """Run the aggregator of a session that learns, or one of its servers, to the end of its schedule.

    Arguments as of `serve`; a server is named, and has no board. It begins when `begin_with` parties (None:
    all) have connected, or `connect` seconds have passed. A party that connects later takes part in its
    groups from then on.

    Returns the errors of groups that failed, by request number.
    """
    on_event = with_logging(on_event)
    role = "server" if name is not None and load_session(session).roster.servers else "aggregator"
    membership = Membership.load(session, name or aggregator_name(session), key, role)
    parameters, counter = learn_parameters(membership), Counter()
    opening: AbstractAsyncContextManager[Any]
    if membership.servers:
        # Sessions without servers do not load them.
        from smpc_dp.net.servers.computing_server import open_computing_server

        opening = open_computing_server(membership, on_event, listen_on, keep=True)
    else:
        logs = log_folder(membership, session, board)
        opening = open_aggregator(membership, listen_on, logs=logs, on_event=on_event)
    async with opening as server:
        await server.gather(begin_with)
        failures = await _serve(LearnerRequests(membership, server.request), parameters, counter)
    on_event(Event(membership.name, "done", counter.taken, "done"))
    return failures


async def _serve(served: LearnerRequests, parameters: LearnParameters, counter: Counter) -> dict[int, str]:
    """Serve the requests of a learner to the end of its schedule; return the errors of failed groups."""

    def averager(averaging: PlannedAverages | None) -> ServingAverager | None:
        return None if averaging is None else ServingAverager(served, averaging, counter)

    exchange = None
    if parameters.exchange is not None and not served.membership.servers:
        exchange = AggregatorExchange(served, parameters.exchange, counter)
    context = LearnerContext(averager(parameters.average), averager(parameters.mix), exchange)
    try:
        await parameters.learner.run(context, [])
    except EverybodyLeftError as error:
        served.failures[counter.taken] = str(error)
    return served.failures
