"""How an error travels: what others are told when a run is over for somebody."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from smpc_dp.errors import (
    ConfigError,
    PeerFault,
    PrivacyError,
    SmpcError,
    TimeoutFault,
    VerificationError,
)
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, printable

# The step of a hub's last message to a party, and of a party's to the hub.
ABORT = "abort"
LEAVE = "leave"
# The step of a party's last message in a session, of whatever request.
QUIT = "quit"

REASON_LIMIT = 500


class Abort(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Aggregator or party: the run is over for the receiver, and why; names are from the roster."""

    kind: str
    culprit: str
    missing: list[str]
    reason: Annotated[str, Meta(max_length=REASON_LIMIT)]


def equivocation(
    envelope: Envelope, context: Context, run_id: bytes, earlier: bytes, signature: bytes
) -> PeerFault:
    """Return the fault of a second, different message for one step; both signatures are the evidence.

    `run_id` is that of the first message, `earlier` the SHA-256 of its body. Before there is a run id,
    messages
    are signed under the session digest: an honest party says hello to each request and rerun, so two of those
    prove nothing and are not kept.
    """
    reason = f"sent two different messages for step '{envelope.step}'"
    if context.session_digest in (run_id, envelope.run_id):
        return PeerFault(envelope.sender, reason)
    return PeerFault(
        envelope.sender,
        reason,
        {
            "first run id": run_id,
            "first": earlier,
            "first signature": signature,
            "second run id": envelope.run_id,
            "second": hashlib.sha256(envelope.body).digest(),
            "second signature": envelope.signature,
        },
    )


def abort_of(error: SmpcError) -> Abort:
    """Return what others are told of an error: never more than names and one line."""
    reason = " ".join(str(error).split())[:REASON_LIMIT]
    if isinstance(error, PeerFault):
        return Abort("peer", error.culprit, [], error.reason[:REASON_LIMIT])
    if isinstance(error, TimeoutFault):
        return Abort("timeout", "", sorted(error.missing), error.step)
    if isinstance(error, PrivacyError):
        # What is wrong with a private value is the party's own business.
        return Abort("local", "", [], error.told)
    if isinstance(error, VerificationError):
        return Abort("verification", "", [], reason)
    if isinstance(error, ConfigError):
        return Abort("config", "", [], reason)
    return Abort("local", "", [], reason)


def late_of(missing: Sequence[str], step: str, detail: str) -> Abort:
    """Return what is told to who goes without the parties in `missing`, with what is known of why."""
    return Abort("timeout", "", sorted(missing), f"{step}; {detail}"[:REASON_LIMIT])


def quit_of(error: SmpcError) -> Abort:
    """Return what the others are told of a party's error that ends the session for it."""
    text = error.told if isinstance(error, PrivacyError) else str(error)
    return Abort("local", "", [], " ".join(text.split())[:REASON_LIMIT])


def error_of(abort: Abort, context: Context) -> SmpcError:
    """Return the error that an aggregator's `Abort` stands for; names must be in the roster."""
    teller = context.aggregator
    known = set(context.names) | {teller}
    reason = printable(abort.reason)
    if abort.kind == "peer" and abort.culprit in known:
        return PeerFault(abort.culprit, f"{reason} (said by {teller})", said_by=teller)
    if abort.kind == "timeout" and set(abort.missing) <= known:
        step, _, detail = reason.partition("; ")
        return TimeoutFault(
            abort.missing, step, f"{detail}; said by {teller}" if detail else f"said by {teller}"
        )
    if abort.kind == "verification":
        return VerificationError(f"{reason} (said by {teller})")
    if abort.kind in ("local", "config"):
        return PeerFault(teller, f"stopped the run: {reason}")
    return PeerFault(teller, "sent a malformed abort")


def reason_of(abort: Abort, sender: str, context: Context) -> str:
    """Return in one line why a party leaves; raise PeerFault if it names anyone outside of the roster."""
    if not {abort.culprit, *abort.missing} <= {"", context.aggregator, *context.names}:
        raise PeerFault(sender, "left and named somebody who is not in the roster")
    return f"left: {abort.culprit + ': ' if abort.culprit else ''}{printable(abort.reason)}"
