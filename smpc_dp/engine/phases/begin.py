"""The beginning of a run with a log: a quorum signs its line in the session log before anything else.

Both protocols with logs do this after `start`, when the run id is there: `begin`
(aggregator), `attest-begin` (party), `begun` (aggregator), which has the first entry of the run's log,
`certify-begin`. Specification: protocols/gopa/verifiable.md. Nothing here does I/O, but that the aggregator
reads the board.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.collector import Collector, Inbox, Item
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate, make_certificate
from smpc_dp.engine.phases.run_log import LoggingAggregator, RunLog
from smpc_dp.engine.result import LoggedRun
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.logs.log import Chain, Header
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, SessionLog, check_shown, head_after, start_of
from smpc_dp.seen import MOST_BEHIND, Seen
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context, decode


def attestation_digest(context: Context, run_id: bytes, head: bytes, present: bytes) -> bytes:
    """Return the digest that parties sign of the session log's hash and the parties present."""
    return digest(Label.BOARD_ATTESTATION, *context.bound, run_id, m.ATTEST_BEGIN.encode(), head, present)


def check_begin(
    context: Context, quorum: int, run_id: bytes, head: bytes, members: PartySet, certified: m.Certified
) -> None:
    """Raise PeerFault unless a quorum has signed this hash of the session log and these members."""
    if certified.members != members.packed:
        raise PeerFault(
            context.aggregator, f"certificate of '{m.ATTEST_BEGIN}' is of another set", Check.BAD_CERTIFICATE
        )
    check_certificate(
        context,
        quorum,
        run_id,
        m.ATTEST_BEGIN,
        attestation_digest(context, run_id, head, members.packed),
        members,
        m.Certificate(certified.signers, certified.signatures),
    )


def session_head(header: Header, scope: bytes) -> bytes:
    """Return the session log's hash after the run in a log's header; VerificationError for a wrong start.

    Raises VerificationError if it is the first line and does not begin the log of that scope.
    """
    if header.number == 1 and (header.runs, header.before) != (start_of(scope).hex(), NO_HEAD.hex()):
        raise VerificationError(
            "the run is not the first in the session log of this session", Check.LOG_DIFFERS
        )
    earlier, run_id, before = map(bytes.fromhex, (header.runs, header.run_id, header.before))
    return head_after(earlier, header.number, header.request, run_id, before)


def logged_run(seen: Seen) -> LoggedRun:
    """Return evidence, for a result, about the log of the last closed run."""
    return LoggedRun(seen.number, seen.head, seen.closed_head)


# The party's part


def attest_begin(
    context: Context, seen: Seen, run_id: bytes, present: PartySet, body: bytes
) -> tuple[Seen, m.Attestation]:
    """Check the session log that is shown; return the state to save, and the attestation, or raise PeerFault.

    Raises PeerFault where the session log that is shown does not extend the one that the party has seen.
    """
    aggregator, shown = context.aggregator, decode(body, m.Begin, context.aggregator)
    if shown.lines[-1][:2] != (context.request, run_id):
        raise PeerFault(aggregator, "shows a session log that does not end with this run", Check.OTHER_RUN)
    try:
        head = check_shown(seen, context.scope, shown.base, shown.head, shown.lines)
    except VerificationError as error:
        raise PeerFault(aggregator, str(error), error.check) from None
    retained = replace(seen, number=shown.base + len(shown.lines), head=head)
    return retained, m.Attestation(attestation_digest(context, run_id, head, present.packed))


def check_begun(
    context: Context, quorum: int, run_id: bytes, seen: Seen, present: PartySet, body: bytes
) -> m.Begun:
    """Check the aggregator's message that a quorum signed the session log, and return the message.

    Raises PeerFault unless a quorum has signed this party's head of the session log.
    """
    aggregator = context.aggregator
    message = decode(body, m.Begun, aggregator)
    certified = decode(message.payload, m.Certified, aggregator)
    check_begin(context, quorum, run_id, seen.head, present, certified)
    context.check_detached(
        run_id, m.CERTIFY_BEGIN, aggregator, aggregator, message.payload, message.signature
    )
    return message


def close_run(seen: Seen, head: bytes) -> Seen:
    """Return the session-log state to store when the run's log has ended with this hash."""
    return replace(seen, closed=seen.number, closed_head=head)


# The aggregator's part


def why_behind(runs: SessionLog, known: int) -> str:
    """Return why a party that knows `known` lines has missed too many; "" if it has not, or if 0."""
    missed = len(runs.lines) + 1 - known
    if not known or missed <= MOST_BEHIND:
        return ""
    return f"has missed {missed} lines of the session log, {MOST_BEHIND} may be missed"


def begin_log(
    collector: LoggingAggregator[Any],
    inbox: Inbox,
    run_id: bytes,
    operation: str,
    present: bytes,
    root: bytes,
) -> tuple[RunLog, SessionLog]:
    """Add a run to a copy of the session log, and queue its first lines; return run log and copy."""
    board, runs, request = collector.board, collector.runs.copy(), collector.context.request
    before = board.head_of(runs.lines[-1]) if runs.lines else NO_HEAD
    line = runs.begin(request, run_id, before)
    chain = Chain.begin(
        session=board.session,
        request=request,
        operation=operation,
        number=line.number,
        runs=runs.head(line.number - 1).hex(),
        before=line.before,
        present=present,
        root=root,
        run_id=run_id.hex(),
    )
    inbox.unwritten += (line, chain.header)
    return RunLog(line.number, runs.head(), 0, chain.head), runs


class BeginningState(Protocol):
    """Interface of an aggregator's state in which the parties present sign the session log."""

    @property
    def run_id(self) -> bytes:
        """The id of the run that begins, of 16 bytes."""

    @property
    def present(self) -> bytes:
        """The set of parties present in the run, packed with one bit for each."""

    @property
    def log(self) -> RunLog:
        """The public log of the run, which has only its header so far."""


def accept_begin(collector: Collector[Any], state: BeginningState, _party: int, envelope: Envelope) -> Item:
    """Return an item with a party's signature on the session log; PeerFault if it signed another digest."""
    expected = attestation_digest(collector.context, state.run_id, state.log.session_head, state.present)
    if decode(envelope.body, m.Attestation, envelope.sender).set_digest != expected:
        raise PeerFault(
            envelope.sender, "attests another session log than the one that was sent", Check.OTHER_STATEMENT
        )
    return Item(None, b"", envelope.signature)


def certify_begin(collector: Collector[Any], state: Any, quorum: int) -> m.Certified:
    """Queue a log line with a quorum's signatures, and return these; raise TimeoutFault if there are fewer.

    `state`: a `BeginningState` of a collecting role.
    """
    context = collector.context
    signatures = {party: item.signature for party, item in state.inbox.items.items()}
    if len(signatures) < quorum:
        raise collector.too_few(state, quorum)
    made = make_certificate(signatures, quorum, len(context.names))
    certified = m.Certified(state.present, made.signers, made.signatures)
    state.inbox.unwritten.append(
        CertifiedLine(
            state.log.number,
            context.protocol,
            context.version,
            certified.members,
            certified.signers,
            certified.signatures,
        )
    )
    return certified
