"""The error tree: every class says whose fault the error is.

`ConfigError` and `LocalError` are caused locally, `PeerFault` and `TimeoutFault` name another member,
`PrivacyError` refuses a release, `VerificationError` rejects evidence.

The text of an error stays on the machine that raised it. Other members are sent its `code` and names at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self, overload


class Code(StrEnum):
    """Code of an error, all that other members are sent of it.

    The list is closed; see docs/reference/transport.md.
    """

    OWN = "own"
    NEIGHBOURHOOD = "place"
    EVIDENCE = "evidence"
    IMPOSSIBLE = "impossible"
    STOPPED = "stopped"
    FAULT = "fault"
    OPERATION = "question"
    KERNEL = "kernel"
    PARTIAL = "partial"
    MISSING = "missing"
    LATE = "late"
    LOST = "lost"
    LEFT = "left"
    FEW = "few"
    PAST = "past"
    KIND = "kind"
    BEGUN = "begun"
    EARLIER = "earlier"


class _Explained(StrEnum):
    """Base of lists of codes whose members have a value and a meaning."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Return the member with this value and meaning."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


class Check(_Explained):
    """Check that refused a peer's message or evidence; docs/reference/errors.md has the closed list.

    `meaning` describes the failure. It is never sent: other members are sent a `Code` at most.
    """

    # Every message and entry.
    MALFORMED = "malformed", "the bytes are no encoding of what is expected"
    NOT_CANONICAL = "not-canonical", "the value has one encoding, and the bytes are another"
    WRONG_LENGTH = "wrong-length", "a field has another number of bytes or of items than it must have"
    TOO_LONG = "too-long", "more bytes than anything that is expected can have"
    OUT_OF_RANGE = "out-of-range", "a number is outside the range of its field, or is not finite"
    UNKNOWN_FORMAT = "unknown-format", "the format, its version or the kind of an entry is not known"
    NOT_IN_ROSTER = "not-in-roster", "it names somebody who is not in the roster"
    BAD_SIGNATURE = "bad-signature", "a signature is not of the key and the statement that it must be of"
    WRONG_SENDER = "wrong-sender", "this member does not send or write this"
    WRONG_RECEIVER = "wrong-receiver", "the message is for somebody else"
    UNEXPECTED_STEP = "unexpected-step", "another step, or another kind of entry, is expected"
    OUT_OF_SEQUENCE = (
        "out-of-sequence",
        "another number is expected: of a message, a piece, a block or a line",
    )
    TOO_MANY = "too-many", "more messages, entries or items than are expected or have room"
    EQUIVOCATION = "equivocation", "two different messages for one step"
    # Identity of a run.
    OTHER_RUN = "other-run", "it is of another run"
    OTHER_REQUEST = "other-request", "it is of another session or request"
    OTHER_SESSION = "other-session", "it is of another session or group, or the session files differ"
    OTHER_OPERATION = "other-operation", "another operation is asked for"
    OTHER_PLAN = "other-plan", "the plan, the terms or the circuit differ"
    NOT_OFFERED = "not-offered", "an operation is asked for that cannot be computed here"
    LABEL_DIFFERS = (
        "label-differs",
        "a public label is missing, not expected, no label, or another than was given",
    )
    NONCE_DIFFERS = "nonce-differs", "this party's nonce is missing or another"
    OWN_DIFFERS = "own-differs", "this party's own message or commitments are missing or others"
    RUN_ID_DIFFERS = "run-id-differs", "the run id is not the digest of what it must bind"
    # Sets of parties.
    BAD_SET = "bad-set", "the bytes are no set or list of parties in its one form"
    WRONG_ORDER = "wrong-order", "the items are not in the order of the roster"
    SET_TOO_SMALL = "set-too-small", "too few parties for the run to go on"
    SET_GREW = "set-grew", "it has parties that were out before"
    SET_DIFFERS = "set-differs", "another set of parties, or of items about them, than is expected"
    NOT_ONE_EACH = "not-one-each", "not exactly one item for each party, neighbour or entry"
    NOT_INCLUDED = "not-included", "this party was left out"
    NOT_PRESENT = "not-present", "it is from, about or for a party that does not take part"
    NOT_SHOWN = "not-shown", "what must be shown or forwarded is missing"
    PARTIAL = "partial", "a message was not sent to all who must have it, or not the same"
    # Agreement.
    NO_QUORUM = "no-quorum", "fewer signatures than a certificate needs"
    BAD_CERTIFICATE = "bad-certificate", "a certificate has other signatures or members than it must have"
    OTHER_STATEMENT = (
        "other-statement",
        "it attests or forwards something else than was sent, listed or signed",
    )
    DISAGREES = "disagrees", "a server says something else than most servers, or no two in three agree"
    NOT_SIGNED = "not-signed", "what is forwarded was not signed by its author"
    FALSE_ACCUSATION = "false-accusation", "a party is accused without proof, or of what is right"
    REPORTED = "reported", "no check of this process: another member said so"
    LEFT = "left", "the member left or ended the connection before it had done its part"
    # Keys, commitments, shares and proofs.
    WEAK_KEY = "weak-key", "a public key is a point of small order"
    KEY_DIFFERS = "key-differs", "a key to seal with is missing or not expected"
    BAD_SEAL = "bad-seal", "a sealed message does not open"
    BAD_COMMITMENT = "bad-commitment", "a commitment or a blinding is not the canonical encoding of one"
    BAD_OPENING = "bad-opening", "what is opened is not what was committed to"
    NOT_IN_TREE = "not-in-tree", "a value is not in the Merkle tree of the root, or its proof is none"
    BAD_SHARE = "bad-share", "shares do not give the secret that was committed to, or do not open"
    BAD_DRAW = "bad-draw", "the drawn neighbours are not as many others as the plan has"
    BAD_PROOF = "bad-proof", "a proof, or the statement that it proves, is false or malformed"
    BAD_TRANSFER = (
        "bad-transfer",
        "oblivious transfer: a message is malformed, or the consistency check fails",
    )
    BAD_LABEL = "bad-label", "a label of an output is not one of its two labels"
    CONVICTED = (
        "convicted",
        "a garbler cheated: what it signed does not follow from its seed, and a certificate shows it",
    )
    TRANSCRIPT_DIFFERS = (
        "transcript-differs",
        "the hash of what was sent and received is not the same at both ends",
    )
    # Results.
    OUT_OF_BOUNDS = "out-of-bounds", "a value is further out than its bounds and the noise of the plan allow"
    WRONG_TOTAL = "wrong-total", "the total is not the sum of what was published"
    WRONG_COUNT = "wrong-count", "pairs, pieces or failures are counted that there were not, or not all"
    WRONG_RESULT = "wrong-result", "an outcome, an output or a token is not what its inputs give"
    # Logs.
    CHAIN_BROKEN = "chain-broken", "an entry does not follow the one above it"
    ROLLED_BACK = "rolled-back", "a session log is shorter than one that was signed"
    LOG_DIFFERS = "log-differs", "a log is another than the one that was signed or read before"
    LOG_CUT = "log-cut", "a log ends too early"
    LOG_CLOSED = "log-closed", "an entry after the last one"
    NOT_LOGGED = "not-logged", "the session log does not have the run, or the head, that is looked for"
    BAD_CHECKPOINT = "bad-checkpoint", "a checkpoint has another root or head than the session log gives"
    SPLIT_VIEW = "split-view", "a checkpoint does not continue one that was cosigned before"
    NOT_WITNESSED = "not-witnessed", "fewer witnesses have cosigned a checkpoint than must have"
    BEHIND = "behind", "the party has missed more lines of the session log than may be missed"
    BAD_SESSION = "bad-session", "the session or the roster in a log is not one that a log can have"
    NOT_VERIFIABLE = "not-verifiable", "no such log is made: the session or the request is not verifiable"
    BAD_STATE = "bad-state", "a saved state or inbox is none that the role can be restored from"
    # Connections.
    TLS = "tls", "the TLS handshake or the record layer failed"
    TLS_CERTIFICATE = (
        "tls-certificate",
        "a certificate is not that of a member's name and key, or not in the roster",
    )
    OTHER_MEMBER = "other-member", "another member than expected answers or calls"
    BAD_FRAME = "bad-frame", "a frame of the transport is malformed, not expected or cut"
    BAD_HELLO = "bad-hello", "the hello of a connection contradicts itself or its certificate"
    SECOND_CONNECTION = "second-connection", "the member has a connection already, or acts twice"
    REFUSED = "refused", "the other end refuses the connection"


class ConfigCheck(_Explained):
    """Kind of a configuration's or an argument's issue; docs/reference/errors.md has the closed list."""

    MISSING = "missing", "a key, a value, a column, a role or an address that is needed is not there"
    UNKNOWN_KEY = "unknown-key", "no key or column has this name"
    UNKNOWN_NAME = "unknown-name", "no party, circuit or kernel has this name"
    CHOICE = "choice", "the value is none of those that can be chosen"
    TYPE = "type", "a value of another type is needed"
    RANGE = (
        "range",
        "a number is out of its range, or not finite; a value breaks a rule for values of its kind",
    )
    SHAPE = "shape", "an array, a list or a record has another shape or length than is needed"
    FORMAT = "format", "a text or a file is not in the format that it must have"
    DUPLICATE = "duplicate", "something is there twice"
    CONFLICT = "conflict", "the value does not go with another one, or with the role or the protocol"
    DIFFERS = "differs", "two things that must be the same are not: with a peer, a file, a plan or a key"
    UNSUPPORTED = "unsupported", "the protocol, the method, the kernel or the session does not have this"
    INFEASIBLE = "infeasible", "no plan, no noise or no result exists for what is asked"
    TOO_LARGE = "too-large", "more than there is room, precision or time for"
    MORE = "more", "further issues are not listed"


class ConfigIssue(NamedTuple):
    """Issue of a configuration: where (a line or a key), the reason, and its kind."""

    where: str
    reason: str
    check: ConfigCheck

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SmpcError(Exception):
    """Root of all errors that this library raises on purpose; `code` is what other members are sent."""

    code = Code.OWN


class ConfigError(SmpcError):
    """A session file, a parameter or an argument is wrong; `issues` lists every issue."""

    @overload
    def __init__(self, issues: str, check: ConfigCheck, *, code: Code = Code.OWN) -> None: ...

    @overload
    def __init__(self, issues: Iterable[ConfigIssue], *, code: Code = Code.OWN) -> None: ...

    def __init__(
        self, issues: Iterable[ConfigIssue] | str, check: Any = None, *, code: Code = Code.OWN
    ) -> None:
        self.code = code
        listed = (ConfigIssue("", issues, check),) if isinstance(issues, str) else tuple(issues)
        self.issues: tuple[ConfigIssue, ...] = listed
        super().__init__("; ".join(str(issue) if issue.where else issue.reason for issue in listed))

    @classmethod
    def at(cls, where: str, reason: str, check: ConfigCheck, *, code: Code = Code.OWN) -> Self:
        """Return the error of one issue."""
        return cls([ConfigIssue(where, reason, check)], code=code)


class LocalError(SmpcError):
    """This machine cannot do what was asked: a port in use, an unreadable key file, a full disk."""


class PeerFault(SmpcError):
    """`culprit` broke the protocol; `evidence` shows it (signed bytes where there are any).

    `check` is the check that refused. `accuser` names the party on whose word alone the culprit is blamed; it
    is empty when this member saw the fault itself.
    """

    def __init__(
        self,
        culprit: str,
        reason: str,
        check: Check,
        evidence: Mapping[str, bytes] | None = None,
        *,
        accuser: str = "",
        code: Code = Code.FAULT,
    ) -> None:
        self.code = code
        self.culprit = culprit
        self.reason = reason
        self.check = check
        self.accuser = accuser
        self.evidence: dict[str, bytes] = dict(evidence or {})
        super().__init__(f"{culprit}: {reason}")


class TimeoutFault(SmpcError):
    """The parties in `missing` did not send what `step` needs.

    `why` has a more precise code than `code` for some of them; `number` is the number of parties needed
    (FEW), or the request that the others are at (PAST).
    """

    def __init__(
        self,
        missing: Iterable[str],
        step: str,
        detail: str = "",
        *,
        code: Code = Code.MISSING,
        why: Mapping[str, Code] | None = None,
        number: int = 0,
    ) -> None:
        self.code = code
        self.number = number
        self.missing: frozenset[str] = frozenset(missing)
        self.why: dict[str, Code] = {name: (why or {}).get(name, code) for name in self.missing}
        self.step = step
        names = ", ".join(sorted(self.missing)[:20]) or "nobody"
        more = "" if len(self.missing) <= 20 else f" and {len(self.missing) - 20} more"
        super().__init__(f"missing in step '{step}': {names}{more}" + (f" ({detail})" if detail else ""))


class PrivacyError(SmpcError):
    """A value is outside its declared bounds, or a release is not permitted."""

    def __init__(self, reason: str, *, code: Code = Code.OWN) -> None:
        self.code = code
        super().__init__(reason)


class VerificationError(SmpcError):
    """Evidence does not show what it claims; `check` is the check that refused."""

    code = Code.EVIDENCE

    def __init__(self, reason: str, check: Check) -> None:
        self.check = check
        super().__init__(reason)


def check_of(error: Exception, other: Check) -> Check:
    """Return the check of a PeerFault or a VerificationError, and `other` for an error that has none."""
    return error.check if isinstance(error, PeerFault | VerificationError) else other
