"""The log of a verifiable run, served to its parties over the channels of the session."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    LocalError,
    PeerFault,
    VerificationError,
)
from smpc_dp.files import replace_file
from smpc_dp.logs.board import BoardFolder
from smpc_dp.logs.followed import Followed
from smpc_dp.logs.log_messages import FETCH, LINES, Fetch, Lines
from smpc_dp.session.connection import AggregatorConnection, Connection
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.member import Membership
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode

if TYPE_CHECKING:
    from smpc_dp.logs.audits.audit_report import Report

# Bytes of an answer, or one line if that is more: within the least `largest_message`.
ANSWER_BYTES = 48 << 10
# Bytes of a fetched log in memory; the rest goes to a file until the audit is over.
SPOOL_BYTES = 8 << 20


def is_log_request(inbound: InboundEvent) -> bool:
    """Tell whether a message that the aggregator received asks for lines of a log."""
    return inbound.envelope is not None and inbound.envelope.step == FETCH


def answer(membership: Membership, board: BoardFolder | None, inbound: InboundEvent) -> Sequence[Envelope]:
    """Return the aggregator's message with the asked lines of a log; no lines if there are none.

    Raises PeerFault for a malformed request.
    """
    envelope = inbound.envelope
    if envelope is None:
        return ()
    requested = decode(envelope.body, Fetch, inbound.peer)
    lines = [] if board is None else board.lines(inbound.request, requested.first, ANSWER_BYTES)
    context = membership.context(inbound.request)
    answered = Lines(requested.first, lines)
    return context.write(membership.identity, context.session_digest, LINES, (inbound.peer,), answered)


class ServedLog:
    """Log of one request as a party downloads it from the aggregator, checked against signed hashes.

    An aggregator that shows another log than the one that parties signed is detected: PeerFault names it.
    """

    def __init__(
        self, membership: Membership, connection: AggregatorConnection, request: int, followed: Followed
    ) -> None:
        self._membership = membership
        self._connection = connection
        self._request = request
        self._followed = followed

    def __len__(self) -> int:
        """Number of entries that this party has followed; the header is line 0."""
        return len(self._followed)

    async def lines(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """Download and check lines `first` to `last` (both included) of the log; line 0 is the header.

        Raises:
            ConfigError: no such range. PeerFault: a line is not the one that this party's quorum signed, or
                the aggregator does not have it. TimeoutFault: the aggregator does not answer.
        """
        last = len(self) if last is None else last
        if not 0 <= first <= last <= len(self):
            raise ConfigError.at(
                "first", f"lines {first} to {last} of a log with {len(self)} entries", ConfigCheck.RANGE
            )
        result: list[bytes] = []
        while first + len(result) <= last:
            result += await self._some(first + len(result))
        return result[: last - first + 1]

    async def audit(self, keep: str | os.PathLike[str] | None = None) -> Report:
        """Download the whole log, audit it for this session and run, and copy it to file `keep` if given.

        See `smpc_dp.audit`; raises the errors of `lines`, and LocalError if the log cannot be written.
        """
        # An aggregator serves logs and audits none.
        from smpc_dp.logs.audits.audit import audit_stream
        from smpc_dp.logs.audits.audit_selection import Wanted

        session, head = self._membership.session.digest.hex(), self._followed.head.hex()
        wanted = Wanted(session=session, request=self._request, head=head)
        # In memory or in a file without a name; a thread reads it when it is complete.
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
            number = 0
            while number <= len(self):
                some = await self._some(number)
                _put_aside(spool, some)
                number += len(some)
            read = cast("BinaryIO", spool)
            if keep is not None:
                await asyncio.to_thread(_keep, read, keep)
            read.seek(0)
            return await asyncio.to_thread(lambda: audit_stream(read, wanted=wanted))

    async def _some(self, first: int) -> list[bytes]:
        """Ask the aggregator for log lines from `first` on, and return them; PeerFault if they differ."""
        membership, relay = self._membership, self._membership.aggregator
        context = membership.context(self._request)
        [request] = context.write(membership.identity, context.session_digest, FETCH, (relay,), Fetch(first))
        seconds = membership.session.timeouts.step
        body = await self._connection.fetch(self._request, request, LINES, seconds)
        reported = decode(body, Lines, relay)
        if reported.first != first or not reported.lines or first + len(reported.lines) > len(self) + 1:
            raise PeerFault(
                relay, f"does not show line {first} of the log that it had signed", Check.NOT_SHOWN
            )
        for number, line in enumerate(reported.lines, first):
            try:
                self._followed.check(number, line)
            except VerificationError as error:
                raise PeerFault(
                    relay, f"shows another log than it had signed: {error}", Check.LOG_DIFFERS
                ) from None
        return reported.lines


def _put_aside(spool: tempfile.SpooledTemporaryFile[bytes], lines: Sequence[bytes]) -> None:
    """Append log lines to a temporary file; raise LocalError if the disk is full."""
    try:
        spool.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise LocalError(f"cannot put the log aside ({error.strerror})") from None


def _keep(log: BinaryIO, path: str | os.PathLike[str]) -> None:
    """Copy a downloaded log to the file at `path`; raise LocalError if it cannot be written."""
    log.seek(0)
    try:
        replace_file(path, lambda out: shutil.copyfileobj(log, out))
    except OSError as error:
        raise LocalError(f"{path}: cannot write the log ({error.strerror})") from None


def served_log(connection: Connection, request: int) -> ServedLog:
    """Return the log of the last request, to download; LocalError if it was no verifiable run, or failed."""
    if connection.followed is None:
        raise LocalError("there is no log: no verifiable request has ended well in this session")
    return ServedLog(
        connection.membership, cast("AggregatorConnection", connection), request, connection.followed
    )
