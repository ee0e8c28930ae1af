"""Errors on the wire: a code of a closed list and names, never a text.

What a party tells others must not depend on its data, its files or the texts of its exceptions. So a message
has no field for a text: the receiver renders the code with a fixed one. The list is in
protocols/channel/README.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from smpc_dp.errors import Check, Code, PeerFault, SmpcError, TimeoutFault, VerificationError, check_of
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

# Step of an aggregator's last message to a party, and of a party's last message to the aggregator.
ABORT = "abort"
LEAVE = "leave"
# Step of a party's last message in a session, in any request.
QUIT = "quit"

# A lost connection and one that never was look alike to a role.
NOT_CONNECTED = "not connected"

TEXTS: Mapping[Code, str] = {
    Code.OWN: "its own input, files, settings or machine do not allow it",
    Code.NEIGHBOURHOOD: "its privacy does not hold in its place of the graph",
    Code.EVIDENCE: "what it was shown does not hold",
    Code.IMPOSSIBLE: "what is asked for cannot be computed over those who take part",
    Code.EVALUATION: "the evaluation failed; of nobody is shown that it deviated",
    Code.STOPPED: "another member has stopped the run",
    Code.FAULT: "broke the protocol",
    Code.OPERATION: "asks for something else than most others",
    Code.KERNEL: "asks for a statistic that the aggregator does not know or cannot plan",
    Code.PARTIAL: "not all servers have the same from it",
    Code.MISSING: "did not send what is due",
    Code.LATE: "deadline passed",
    Code.LOST: NOT_CONNECTED,
    Code.LEFT: "left the run",
    Code.FEW: "fewer are left than are needed",
    Code.PAST: "too late: the others are at another request",
    Code.KIND: "asks for a sum where others ask for a pairwise statistic, or the other way round",
    Code.BEGUN: "the run has begun without it",
    Code.EARLIER: "earlier sums of the session are over other parties",
    Code.TOTAL: "the total is not that of the commitments: the aggregator or at least one party deviates",
}

# Codes that blame the culprit, and codes that list missing members; the others have no names.
BLAMES = frozenset({Code.FAULT, Code.OPERATION, Code.KERNEL, Code.PARTIAL})
LACKS = frozenset(
    {
        Code.MISSING,
        Code.LATE,
        Code.LOST,
        Code.LEFT,
        Code.FEW,
        Code.PAST,
        Code.KIND,
        Code.BEGUN,
        Code.EARLIER,
    }
)
# The number of missing members for which a text gives reasons.
SHOWN = 5


class Abort(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Message that ends a run for its sender or receiver: error code, and names of members concerned.

    `culprit` is set for the codes in BLAMES, `missing` (each name with its own code) and `step` for those in
    LACKS. `number` is the number of parties needed (FEW), or a request: that of the others (PAST), or one
    that can be joined (BEGUN); else 0.
    """

    code: Code
    culprit: str = ""
    missing: list[tuple[str, Code]] = []
    step: Annotated[str, Meta(pattern=r"^[a-z0-9-]{0,40}\Z")] = ""
    number: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0

    @property
    def is_sound(self) -> bool:
        """Whether the message has exactly the fields that belong to its error code, such as a culprit."""
        lacks = self.code in LACKS
        return bool(self.culprit) == (self.code in BLAMES) and (
            lacks or not (self.missing or self.step or self.number)
        )

    def names(self) -> set[str]:
        """Return the names of all members that the message mentions."""
        return {self.culprit, *(name for name, _ in self.missing)} - {""}

    def __str__(self) -> str:
        """Render the code in the receiver's words."""
        text = TEXTS[self.code]
        if self.number:
            text += f" ({'request ' * (self.code in (Code.PAST, Code.BEGUN))}{self.number})"
        apart = [f"{name}: {TEXTS[code]}" for name, code in self.missing if code != self.code]
        return "; ".join([f"{self.culprit}: {text}" if self.culprit else text, *apart[:SHOWN]])


def equivocation(
    envelope: Envelope, context: Context, run_id: bytes, earlier: bytes, signature: bytes
) -> PeerFault:
    """Return the fault of two different signed messages for one step, both as evidence if both have a run id.

    `run_id` is that of the first message, `earlier` the SHA-256 of its body. Before there is a run id,
    messages are signed under the session digest: an honest party sends a hello for each request and rerun, so
    two of those prove nothing and are not kept.
    """
    reason = f"sent two different messages for step '{envelope.step}'"
    if context.session_digest in (run_id, envelope.run_id):
        return PeerFault(envelope.sender, reason, Check.EQUIVOCATION)
    return PeerFault(
        envelope.sender,
        reason,
        Check.EQUIVOCATION,
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
    """Return the message that tells other members of an error: code, names, step and number, no text.

    What another member said is not passed on: it would be taken for an observation of this member.
    """
    if check_of(error, Check.MALFORMED) == Check.REPORTED:
        return Abort(Code.STOPPED)
    if isinstance(error, PeerFault):
        return Abort(error.code, error.culprit)
    if isinstance(error, TimeoutFault):
        return Abort(error.code, "", sorted(error.why.items()), error.step, error.number)
    return Abort(error.code)


def code_of(error: SmpcError, name: str) -> Code:
    """Return the code of an error that others are sent about `name`: of its timeout, else of the error."""
    return error.why.get(name, error.code) if isinstance(error, TimeoutFault) else error.code


def error_of(abort: Abort, context: Context) -> SmpcError:
    """Return the error that an abort message reports; a PeerFault against the aggregator if malformed."""
    teller = context.aggregator
    if not abort.is_sound or not abort.names() <= {teller, *context.names}:
        return PeerFault(teller, "sent a malformed abort", Check.MALFORMED)
    if abort.culprit:
        # An abort has no room for the others' operation; the receiver's own is public.
        differs = abort.code == Code.OPERATION and context.operation
        asks = f": this party asks {context.operation!r}" if differs else ""
        reason = f"{TEXTS[abort.code]}{asks} (said by {teller})"
        return PeerFault(abort.culprit, reason, Check.REPORTED, accuser=teller, code=abort.code)
    if abort.code in LACKS:
        why = dict(abort.missing)
        return TimeoutFault(
            why, abort.step, f"{abort}; said by {teller}", code=abort.code, why=why, number=abort.number
        )
    if abort.code in (Code.EVIDENCE, Code.TOTAL):
        return VerificationError(f"{abort} (said by {teller})", Check.REPORTED, code=abort.code)
    return PeerFault(teller, f"stopped the run: {abort}", Check.REPORTED)


def leave_of(abort: Abort, sender: str, step: str, context: Context) -> TimeoutFault:
    """Return the TimeoutFault for a party that announces that it leaves; raise PeerFault if malformed."""
    if not abort.names() <= {context.aggregator, *context.names}:
        raise PeerFault(sender, "left and named somebody who is not in the roster", Check.NOT_IN_ROSTER)
    if not abort.is_sound:
        raise PeerFault(sender, "sent a malformed leave", Check.MALFORMED)
    own = abort.code if abort.code in (Code.OWN, Code.NEIGHBOURHOOD, Code.EARLIER) else Code.LEFT
    return TimeoutFault({sender}, step, f"left: {abort}", code=Code.LEFT, why={sender: own})
