"""What a party does before its first request: it checks what it has, and connects to the members it needs."""

from __future__ import annotations

import asyncio
import os
import warnings
from functools import partial
from typing import TYPE_CHECKING

from smpc_dp.engine.session_protocol import MakeParty
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.session.charging import open_ledger
from smpc_dp.session.connection import AggregatorConnection, Connection
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.member import Membership
from smpc_dp.session.planned import UnchargedWarning, warn_of_noise
from smpc_dp.session.session_state import SessionState, StateFolder
from smpc_dp.session.tasks import task_of
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.records.requests.record_requests import ReadyRows
    from smpc_dp.records.table import Source, Table
    from smpc_dp.web_settings import WebSettings


async def prepare(
    session: str | os.PathLike[str],
    party: str,
    key: str | os.PathLike[str] | None,
    ledger: str | os.PathLike[str] | None,
    table: Source | Table | None,
    web: WebSettings | None,
    *,
    saved: bool = False,
) -> tuple[Membership, Ledger | None, ReadyRows | None]:
    """Load and check a party's files before it connects; return (member, ledger or None, rows or None).

    `saved`: whether it has a state, which says how many requests its ledger still has to afford.
    """
    membership = Membership.load(session, party, key, web=web)
    await membership.load_generators()
    warn_of_noise(membership.session)
    if ledger is None and membership.session.parameters.keys() & {"epsilon", BUDGET}:
        reason = f"{party}: without a ledger, what the session's requests cost is charged nowhere"
        warnings.warn(reason, UnchargedWarning, stacklevel=3)
    book = None if ledger is None else await asyncio.to_thread(open_ledger, ledger, party)
    if book is not None and not saved:
        # A ledger of another unit or relation, or a spent one, never disturbs the others.
        await asyncio.to_thread(task_of(membership.session).check_ledger, book, membership)
    if table is None:
        return membership, book, None
    # Not at the top: most sessions ask nothing of records.
    from smpc_dp.records.requests.record_requests import prepared_rows

    return membership, book, await asyncio.to_thread(prepared_rows, table, membership)


async def open_state(
    membership: Membership,
    state: StateFolder | None,
    counter: str | os.PathLike[str] | None,
    on_event: OnEvent,
) -> SessionState:
    """Open and return what a member stores of its session: in a folder, or in memory if `state` is None.

    Arguments and errors as of `connect`. The watcher is told what is restored.
    """
    if isinstance(state, SessionState):
        return state
    if state is None:
        if counter is not None:
            raise ConfigError.at("counter", "is for a state: give its folder too", ConfigCheck.MISSING)
        return SessionState()
    # Not at the top: most sessions are not saved.
    from smpc_dp.session.saved_session import SavedSessionState

    opened = await finish_in_thread(
        partial(SavedSessionState, membership, state, counter), SavedSessionState.close
    )
    try:
        on_event(Event(membership.name, "warned", detail=opened.notice))
    except BaseException:
        opened.close()
        raise
    return opened


async def open_saved(
    membership: Membership,
    on_event: OnEvent,
    listen_on: str | None,
    role: MakeParty | None,
    state: StateFolder | None,
    counter: str | os.PathLike[str] | None,
) -> Connection:
    """Open a party's stored state and connect the party; return the connection."""
    opened = await open_state(membership, state, counter, on_event)
    try:
        return await open_connection(membership, on_event, listen_on, role, opened)
    except BaseException:
        opened.close()
        raise


async def open_connection(
    membership: Membership,
    on_event: OnEvent,
    listen_on: str | None = None,
    role: MakeParty | None = None,
    state: SessionState | None = None,
) -> Connection:
    """Connect a party to aggregator, servers or other parties; return the connection, or raise an error."""
    if role is not None and membership.session.roster.aggregator is None:
        raise ConfigError.at(
            "role", "is for sessions with an aggregator: here there is none", ConfigCheck.UNSUPPORTED
        )
    topology = membership.session.topology
    if listen_on is not None and topology != "direct":
        raise ConfigError.at(
            "listen_on", "is for the direct topology: here others listen", ConfigCheck.UNSUPPORTED
        )
    opened = membership.session.described.connections.get(topology)
    if opened is not None:
        connection: Connection = await opened(membership, on_event, listen_on, state)
        return connection
    return await AggregatorConnection.open(membership, membership.endpoint(), on_event, role, state)
