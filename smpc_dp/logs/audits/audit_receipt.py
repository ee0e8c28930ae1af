"""Whether a log has the entry of a party's receipt."""

from __future__ import annotations

from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import Check, PeerFault, VerificationError
from smpc_dp.logs.log import Entry
from smpc_dp.logs.receipt import ATTEST_TALLY, PUBLISH, LogReceipt
from smpc_dp.wire.signing import Context, encode


def check_log(receipt: LogReceipt, session: str, run_id: str) -> None:
    """Raise VerificationError unless a party's receipt is of this session and this run."""
    if receipt.session != session:
        raise VerificationError(
            f"the receipt of {receipt.party} is of session {receipt.session}, the log of session {session}",
            Check.OTHER_SESSION,
        )
    if receipt.run_id != run_id:
        raise VerificationError(
            f"the receipt of {receipt.party} is of run {receipt.run_id}, the log of run {run_id}",
            Check.OTHER_RUN,
        )


def check_entry(receipt: LogReceipt, entry: Entry) -> None:
    """Raise VerificationError if the entry with a receipt's number differs from it; ignore other entries."""
    if entry.sequence != receipt.index:
        return
    if (entry.party, entry.kind, entry.digest().hex()) != (receipt.party, PUBLISH, receipt.entry):
        raise VerificationError(
            f"entry {receipt.index} is not that of the receipt of {receipt.party}", Check.LOG_DIFFERS
        )


def check_end(
    receipt: LogReceipt, context: Context, quorum: int, attested: str, head: str, entries: int
) -> None:
    """Raise VerificationError unless a receipt names this log's end, with valid signatures of a quorum."""
    whose = f"the receipt of {receipt.party}"
    if receipt.index > entries:
        raise VerificationError(f"{whose} is of entry {receipt.index}, the log has {entries}", Check.LOG_CUT)
    if (receipt.attested, receipt.head) != (attested, head):
        raise VerificationError(f"{whose} is of a log with another end", Check.LOG_DIFFERS)
    names = {*context.names}
    if len(receipt.signatures) < quorum or not names.issuperset(receipt.signatures):
        raise VerificationError(f"{whose} has no quorum's signatures: {quorum} are due", Check.NO_QUORUM)
    run_id, body = bytes.fromhex(receipt.run_id), encode(m.Attestation(bytes.fromhex(attested)))
    for name, signature in receipt.signatures.items():
        try:
            context.check_detached(
                run_id, ATTEST_TALLY, name, context.aggregator, body, bytes.fromhex(signature)
            )
        except PeerFault:
            raise VerificationError(
                f"{whose} has a signature of {name} that is not over this log", Check.BAD_CERTIFICATE
            ) from None
