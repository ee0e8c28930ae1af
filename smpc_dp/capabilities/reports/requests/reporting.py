"""Signed local reports between processes: parties send theirs to the analyst, who estimates.

A party's report is in a folder beside its key before it is sent, and those bytes are sent again at every
later call. What the analyst has confirmed is in its folder: it, too, can be stopped and started again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from smpc_dp.capabilities.reports.local_names import LocalNames, NamedCategories
from smpc_dp.capabilities.reports.report_parameters import AnyReport
from smpc_dp.capabilities.reports.reports import (
    MAX_BYTES,
    REPORT,
    STORED,
    SUFFIX,
    ReportedEstimate,
    ReportRequest,
    Sent,
    SentReport,
    Stored,
)
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, PeerFault
from smpc_dp.files import read_bounded
from smpc_dp.privacy.accountant.store import write_durably
from smpc_dp.session.connection_pool import ConnectionPool, InboundEvent
from smpc_dp.session.deadline import now
from smpc_dp.session.events import Event, OnEvent, ignore, with_logging
from smpc_dp.session.member import Membership
from smpc_dp.session.tasks import checked_for
from smpc_dp.wire.signing import decode

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.session.connection import AggregatorConnection, Connection
    from smpc_dp.web_settings import WebSettings

__all__ = ["collect_reports"]

# Beside a party's key.
FOLDER = "reports"
# Every session has one request.
REQUEST = 1


def report_parameters(membership: Membership) -> AnyReport:
    """Return the parameters of a session that collects reports; raise ConfigError for other sessions."""
    return cast("AnyReport", checked_for(membership.session, "report"))


def is_reported(membership: Membership) -> bool:
    """Return whether a file for the party's report exists already, so that no record is needed."""
    request = report_parameters(membership).request(membership.session.roster)
    return request.path(membership.name, membership.key_file.with_name(FOLDER)).exists()


async def send_report(connection: Connection, ledger: Ledger | None, record: Any) -> SentReport:
    """Draw (or read) a party's report, send it to the analyst, and return once it is stored there.

    Arguments and errors as of `Session.report`.
    """
    membership: Membership = connection.membership
    parameters = report_parameters(membership)
    if ledger is None:
        reason = f"{membership.name}: a report needs one, so that it is drawn and charged once"
        raise ConfigError.at("ledger", reason, ConfigCheck.MISSING)
    request = parameters.request(membership.session.roster)
    folder, identity = membership.key_file.with_name(FOLDER), membership.identity
    again = is_reported(membership)
    within, clipped = (None, 0) if again else parameters.clipped(record, membership.name)
    content = await asyncio.to_thread(request.report, within, identity, ledger, folder)
    analyst, context = membership.aggregator, membership.context(REQUEST)
    [message] = context.write(identity, context.session_digest, REPORT, (analyst,), Sent(content))
    to_analyst = cast("AggregatorConnection", connection)
    body = await to_analyst.fetch(REQUEST, message, STORED, membership.session.timeouts.step)
    if decode(body, Stored, analyst).digest != hashlib.sha256(content).digest():
        raise PeerFault(analyst, "confirms another report than was sent", Check.OTHER_STATEMENT)
    return SentReport(
        party=membership.name,
        analyst=analyst,
        request=request.digest.hex(),
        report=hashlib.sha256(content).hexdigest(),
        again=again,
        clipped=clipped,
        privacy=parameters.plan.privacy,
    )


class StoredReports:
    """The analyst's folder of received reports: one a party, and a second that contradicts it."""

    def __init__(self, folder: Path, request: ReportRequest) -> None:
        self._folder, self._request = folder / f"reports-{request.digest.hex()[:16]}", request

    def load(self) -> dict[str, list[bytes]]:
        """Return each party's stored reports, one or two; create the folder if it does not exist."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{self._folder}: cannot be a folder for reports ({error.strerror})") from None
        names = self._request.roster.party_names
        paths = {name: [path for path in self._paths(name) if path.exists()] for name in names}
        return {
            name: [read_bounded(path, "the report", MAX_BYTES) for path in present]
            for name, present in paths.items()
            if present
        }

    def _paths(self, party: str) -> tuple[Path, Path]:
        """Return the files for a party's report, and for a second one that differs."""
        return self._folder / f"{party}{SUFFIX}", self._folder / f"{party}~{SUFFIX}"

    def add(self, party: str, content: bytes) -> bool:
        """Store a party's report if it is new; return False once the party has sent two that differ.

        Raises PeerFault for a report that does not count, LocalError for one that cannot be stored.
        """
        self._request.check(content, party)
        first, second = self._paths(party)
        for path in (first, second):
            if not path.exists():
                try:
                    write_durably(path, content, new=True)
                except LocalError as error:
                    if path == first:
                        raise
                    # Without the second one the first would count.
                    raise LocalError(f"{party}: sent two different reports to one request; {error}") from None
            if path.read_bytes() == content:
                break
        return not second.exists()


async def collect_reports(
    session: str | os.PathLike[str],
    *,
    name: str | None = None,
    key: str | os.PathLike[str] | None = None,
    listen_on: str | None = None,
    on_event: OnEvent = ignore,
    folder: str | os.PathLike[str] | None = None,
    web: WebSettings | None = None,
) -> ReportedEstimate | NamedCategories:
    """Run a session's analyst: collect parties' reports; return their estimate, or the released names.

    Ends when each party's report is there, or `connect` seconds are over. Called again it waits for those
    that are still missing.

    Args:
        session: path of a session file with protocol "reports".
        folder: of received reports; by default `board` beside the session file.
        name, key, listen_on, on_event, web: as of `serve`.

    Raises:
        ConfigError: too few reports for an estimate, or none with names; those that came stay.
        LocalError: the key, the port or the folder.
    """
    membership = Membership.load(session, name, key, "aggregator", web=web)
    parameters = report_parameters(membership)
    request = parameters.request(membership.session.roster)
    stored = StoredReports(Path(folder if folder is not None else Path(session).parent / "board"), request)
    received = await asyncio.to_thread(stored.load)
    names = membership.names
    on_event = with_logging(on_event)
    if len(received) < len(names):
        await _receive(membership, listen_on, on_event, stored, set(received))
        received = await asyncio.to_thread(stored.load)
    every = [content for of_party in received.values() for content in of_party]
    made = await asyncio.to_thread(_result, request, every, parameters)
    on_event(Event(membership.name, "done", REQUEST, "done", survivors=made.reported, absent=made.missing))
    return made


def _result(
    request: ReportRequest, every: list[bytes], parameters: AnyReport
) -> ReportedEstimate | NamedCategories:
    """Return the estimate, or the released names, that follow from all collected reports."""
    if isinstance(request.plan, LocalNames):
        return request.names(every)
    names = request.roster.party_names
    labels = None if parameters.labels is None else dict(zip(names, parameters.labels, strict=True))
    return request.estimate(every, labels=labels)


async def _receive(
    membership: Membership, listen_on: str | None, on_event: OnEvent, stored: StoredReports, there: set[str]
) -> None:
    """Listen for parties, store their reports and confirm them, until none is missing or the time is over."""
    host, port = membership.address(listen_on)
    pool = ConnectionPool(membership, on_event)
    endpoint = membership.endpoint(aggregator=True)
    listener = await endpoint.listen(host, port, pool.welcome, pool.refused)
    until = now() + membership.session.timeouts.connect
    try:
        pool.awaited.begin(REQUEST, REPORT, lambda: set(membership.names) - there)
        while len(there) < len(membership.names):
            inbound = await pool.next(until)
            if inbound is None:
                break
            if inbound.failure is not None:
                raise inbound.failure
            if inbound.envelope is None:
                continue
            try:
                answer = await asyncio.to_thread(_store, stored, inbound)
            except PeerFault as error:
                pool.refused(inbound.peer, error)
                pool.connections[inbound.peer].channel.abort()
                continue
            there.add(inbound.peer)
            waiting = len(membership.names) - len(there)
            on_event(Event(membership.name, "step", REQUEST, REPORT, waiting))
            context, to = membership.context(REQUEST), (inbound.peer,)
            pool.send(
                inbound.request,
                context.write(membership.identity, context.session_digest, STORED, to, answer),
            )
        await pool.close()
    finally:
        pool.abort()
        await listener.close()


def _store(stored: StoredReports, inbound: InboundEvent) -> Stored:
    """Store the report in a party's message, and return the confirmation to send; or raise PeerFault."""
    envelope, peer = inbound.envelope, inbound.peer
    if envelope is None or envelope.step != REPORT:
        step = "" if envelope is None else envelope.step
        raise PeerFault(peer, f"sent '{step}' in the place of a report", Check.UNEXPECTED_STEP)
    content = decode(envelope.body, Sent, peer).report
    if not stored.add(peer, content):
        raise PeerFault(peer, "sent two different reports to one request", Check.EQUIVOCATION)
    return Stored(hashlib.sha256(content).digest())
