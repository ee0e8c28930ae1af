"""Requests for statistics of records, by a party."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple, cast

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, OtherRequestError, SmpcError
from smpc_dp.records.record_result import BEYOND_ROWS, KIND, RecordResult
from smpc_dp.records.requests.record_steps import begin_steps
from smpc_dp.records.step_sums import StepSums
from smpc_dp.session.events import Event
from smpc_dp.session.party_requests import EncodedVector, PartyRequests, check_label
from smpc_dp.session.planned import RowsWarning
from smpc_dp.session.tasks import checked_for
from smpc_dp.session.threads import finish_in_thread

if TYPE_CHECKING:
    from smpc_dp.encoding import RingVector
    from smpc_dp.engine.result import Outcome
    from smpc_dp.records.parameters import RecordParameters, SteppedRecordParameters
    from smpc_dp.records.table import Source, Table
    from smpc_dp.session.member import Membership


class Shown(NamedTuple):
    """Settings of how answers are shown: interval level, whether intervals hold at once, hiding of counts."""

    level: float
    simultaneous: bool
    hide: float | None


async def request_statistics(
    requests: PartyRequests,
    source: Source | Table | ReadyRows | None,
    ask: str | Sequence[str] | None,
    *,
    expect: Mapping[str, object],
    label: str,
    number: int | None,
    level: float,
    simultaneous: bool,
    hide: float | None,
) -> RecordResult:
    """Run all requests of a session's statistics as a party; return the last answers, or raise an error."""
    parameters = _parameters_of(requests, ask)
    requests.check_expected(expect)
    check_label(label)
    # Before the request: afterwards it would be charged, and its result lost.
    if not 0 < level < 1:
        raise ConfigError.at("level", f"must be in (0, 1), is {level}", ConfigCheck.RANGE)
    if hide is not None and (isinstance(hide, bool) or not isinstance(hide, Real) or not hide >= 0):
        raise ConfigError.at("hide", f"must be a number from 0 on, is {shown(hide)}", ConfigCheck.RANGE)
    display = Shown(level, simultaneous, hide)
    if source is None:
        raise ConfigError.at("table", "is needed, here or by `connect`", ConfigCheck.MISSING)
    steps = parameters.steps
    if isinstance(number, Integral) and (number - 1) % steps:
        reason = f"{requests.party}: must be that of a first step, of which each has {steps}: is {number}"
        raise ConfigError.at("number", reason, ConfigCheck.RANGE)
    call = await finish_in_thread(partial(begin_steps, requests, number, label, steps))
    try:
        table: Source | Table | ReadyRows = source
        for current in range(call.first, call.last):
            if (sums := call.sums(current)) is None:
                call.take(current)
                ready, _, outcome = await request_step(requests, table, parameters, label, display)
                table = ready.table
                sums = StepSums.of(outcome, requests.membership.names)
                await finish_in_thread(partial(call.keep, current, sums))
            parameters = sums.following(cast("SteppedRecordParameters", parameters))
        call.take(call.last)
        _, result, _ = await request_step(requests, table, parameters, label, display)
    except SmpcError as error:
        await finish_in_thread(partial(call.fail, error))
        if not isinstance(error, OtherRequestError):
            raise
        # A regression that has begun cannot be joined: its steps need the answers of the earlier ones.
        later = error.postponed(1 - (1 - error.next) // steps * steps)
        requests.behind = requests.behind and later
        raise later from None
    finally:
        # Numbers of all steps are used up: others may still be at a later one of this call.
        requests.number = max(requests.number, call.last)
    return replace(result, resumed=result.resumed or call.resumed)


async def request_step(
    requests: PartyRequests,
    table: Source | Table | ReadyRows,
    parameters: RecordParameters,
    label: str,
    display: Shown,
) -> tuple[ReadyRows, RecordResult, Outcome]:
    """Run one request with a party's table; return the prepared table, the answers and the raw outcome."""
    async with requests.declining():
        ready = await asyncio.to_thread(ready_rows, table, parameters, requests.membership)
        if requests.membership.opened_tables is not None:
            await asyncio.to_thread(requests.membership.opened_tables.check)
    if ready.table.dropped.beyond_rows:
        requests.on_event(Event(requests.party, "warned", requests.number, detail=BEYOND_ROWS))
        # Where it is made an error, others would see that by the absence of this party.
        with suppress(RowsWarning):
            reason = f"{requests.party}: request {requests.number}: {BEYOND_ROWS}"
            warnings.warn(reason, RowsWarning, stacklevel=4)
    outcome, receipt = await requests.outcome(
        KIND, EncodedVector(ready.ring_vector), label, parameters.planned()
    )
    names = requests.membership.names
    result = await asyncio.to_thread(
        lambda: parameters.result(
            outcome,
            names,
            **display._asdict(),
            receipt=receipt,
            dropped=ready.table.dropped,
            resumed=requests.connection.resumed,
        )
    )
    return ready, result, outcome


def _parameters_of(requests: PartyRequests, ask: str | Sequence[str] | None) -> RecordParameters:
    """Return the parameters of the session's statistics; raise ConfigError if `ask` is another question."""
    from smpc_dp.records.parameters import asked

    parameters = record_parameters(requests.membership)
    if ask is not None and asked(ask) != asked(parameters.texts):
        reason = f"is {asked(ask)}, the session file says {asked(parameters.texts)}"
        raise ConfigError.at("ask", reason, ConfigCheck.DIFFERS)
    return parameters


def read_rows(source: Source | Table, parameters: RecordParameters, membership: Membership) -> Table:
    """Read a party's table as the session's schema declares; raise ConfigError if it does not fit.

    Raises:
        ConfigError: a column is missing, or of another length; with public rows their number is another one.
        LocalError: the file cannot be read.
    """
    from smpc_dp.records.table import Table, read_table

    party = membership.name
    if isinstance(source, Table):
        if source.schema != parameters.schema:
            raise ConfigError.at("table", f"{party}: was read for another schema", ConfigCheck.DIFFERS)
        table = source
    else:
        table = read_table(source, parameters.schema, party=party)
    rows = parameters.rows_of([membership.names.index(party)])
    if rows is not None and table.rows != rows:
        reason = f"{party}: the table has {table.rows} rows, public_rows says {rows}"
        raise ConfigError.at("public_rows", reason, ConfigCheck.DIFFERS)
    return table


@dataclass(frozen=True)
class ReadyRows:
    """A party's table with its vector encoded for the secure sum, prepared before other parties wait."""

    table: Table
    ring_vector: RingVector
    planned: str


def ready_rows(
    source: Source | Table | ReadyRows, parameters: RecordParameters, membership: Membership
) -> ReadyRows:
    """Read a party's table and encode its vector; return ready rows unchanged; ConfigError for unfit ones.

    Raises the errors of `read_rows`, and ConfigError for `ReadyRows` that were made for another session.
    """
    if isinstance(source, ReadyRows):
        read_rows(source.table, parameters, membership)
        if source.planned != parameters.planned():
            reason = f"{membership.name}: was made ready for another session"
            raise ConfigError.at("table", reason, ConfigCheck.DIFFERS)
        return source
    table = read_rows(source, parameters, membership)
    vector = parameters.request.vector(table)
    ring_vector, _ = parameters.encoding.encode(vector, party=membership.name)
    return ReadyRows(table, ring_vector, parameters.planned())


def prepared_rows(source: Source | Table, membership: Membership) -> ReadyRows:
    """Read and encode a party's table before it connects; ConfigError if it does not fit, or is too long.

    Raises ConfigError for a session that asks nothing of records and for more rows than `max_rows`, besides
    the errors of `read_rows`.
    """
    ready = ready_rows(source, record_parameters(membership), membership)
    ready.table.check_rows(membership.name)
    return ready


def record_parameters(membership: Membership) -> RecordParameters:
    """Return a session's parameters for statistics; raise ConfigError if it has no such statistics."""
    return cast("RecordParameters", checked_for(membership.session, "records"))
