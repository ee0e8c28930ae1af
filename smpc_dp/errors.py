"""The error tree: every class says whose fault the error is.

`ConfigError` and `LocalError` are caused locally, `PeerFault` and `TimeoutFault` name another member,
`PrivacyError` refuses a release, `VerificationError` rejects evidence.

The text of an error stays on the machine that raised it. Other members are sent its `code` and names at most.
It may quote what others sent: every error makes its text `printable`, and so does every event of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeVar, overload

__all__ = [
    "Check",
    "Code",
    "ConfigCheck",
    "ConfigError",
    "ConfigIssue",
    "LocalError",
    "OtherRequestError",
    "PeerFault",
    "PrivacyError",
    "SmpcError",
    "TimeoutFault",
    "VerificationError",
]

E = TypeVar("E", bound=BaseException)

# Characters of one text of another member, of the reason of one error or issue, and of a whole error.
MOST_TEXT, MOST_REASON, MOST_ERROR = 500, 2_000, 8_000


def printable(text: str, most: int = MOST_TEXT) -> str:
    """Return untrusted text as one line of at most `most` characters, with unprintable ones escaped.

    Escaped is what a terminal obeys, what ends a line or turns the direction of reading, and lone surrogates.
    Of a longer text the middle is left out: what quotes it ends with words of its own. A text that was
    returned is returned unchanged.
    """
    # Twice as much is enough: what is escaped is longer.
    shown = text if len(text) <= 2 * most else f"{text[:most]}{text[-most:]}"
    if not shown.isprintable():
        shown = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown
        )
    last = most // 3
    return shown if len(shown) <= most else f"{shown[: most - last - 2]}..{shown[-last:]}"


class Code(StrEnum):
    """Short codes of errors, which other members are sent in the place of an error's text.

    The list is closed; see protocols/channel/README.md.
    """

    OWN = "own"
    NEIGHBOURHOOD = "place"
    EVIDENCE = "evidence"
    IMPOSSIBLE = "impossible"
    TOTAL = "total"
    EVALUATION = "evaluation-failed"
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
    """Base of string enumerations of kinds of faults, whose members also have an explanation."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Return the member with this value and meaning."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


class Check(_Explained):
    """Checks by which a peer's message or evidence can be refused: the kinds of protocol faults.

    `meaning` describes the failure. It is never sent: other members are sent a `Code` at most.
    """

    # Every message and entry.
    MALFORMED = "malformed", "no valid encoding of the expected value"
    NOT_CANONICAL = "not-canonical", "not the one canonical encoding of the value"
    WRONG_LENGTH = "wrong-length", "wrong number of bytes or items in a field"
    TOO_LONG = "too-long", "more bytes than any expected value has"
    OUT_OF_RANGE = "out-of-range", "a number outside the range of its field, or not finite"
    UNKNOWN_FORMAT = "unknown-format", "unknown format, version or kind of entry"
    NOT_IN_ROSTER = "not-in-roster", "not a member of the roster"
    BAD_SIGNATURE = "bad-signature", "does not verify for this key and statement"
    WRONG_SENDER = "wrong-sender", "not this member's to send or write"
    WRONG_RECEIVER = "wrong-receiver", "the message is for another member"
    UNEXPECTED_STEP = "unexpected-step", "another step, or kind of entry, is expected"
    OUT_OF_SEQUENCE = "out-of-sequence", "wrong number of a message, piece, block or line"
    TOO_MANY = "too-many", "more messages, entries or items than expected, or than fit"
    EQUIVOCATION = "equivocation", "two different messages for one step"
    OTHER_RESULT = "other-result", "another result of an earlier run is named than was sent"
    # Identity of a run.
    OTHER_RUN = "other-run", "of another run"
    OTHER_REQUEST = "other-request", "of another session or request"
    OTHER_SESSION = "other-session", "of another session or group, or the session files differ"
    OTHER_OPERATION = "other-operation", "another operation is requested"
    OTHER_PLAN = "other-plan", "the plan, the terms or the circuit differ"
    NOT_OFFERED = "not-offered", "cannot be computed here"
    LABEL_DIFFERS = (
        "label-differs",
        "a public label is missing, unexpected, invalid or another",
    )
    NONCE_DIFFERS = "nonce-differs", "this party's nonce is missing or differs"
    OWN_DIFFERS = "own-differs", "the party's own message or commitments are missing or differ"
    RUN_ID_DIFFERS = "run-id-differs", "the run id is not the digest of what it binds"
    # Sets of parties.
    BAD_SET = "bad-set", "not the one encoding of a set or list of parties"
    WRONG_ORDER = "wrong-order", "items not in the order of the roster"
    SET_TOO_SMALL = "set-too-small", "too few parties to go on"
    SET_GREW = "set-grew", "has parties that were out before"
    SET_DIFFERS = "set-differs", "another set of parties, or of items about them"
    NOT_ONE_EACH = "not-one-each", "not exactly one item for each party, neighbour or entry"
    NOT_INCLUDED = "not-included", "this party was left out"
    NOT_PRESENT = "not-present", "of a party that does not take part"
    NOT_SHOWN = "not-shown", "a part to show or forward is missing"
    PARTIAL = "partial", "a message was not sent to all its receivers, or not the same"
    # Agreement.
    NO_QUORUM = "no-quorum", "fewer signatures than a certificate needs"
    BAD_CERTIFICATE = "bad-certificate", "wrong signatures or members in a certificate"
    OTHER_STATEMENT = (
        "other-statement",
        "attests or forwards another statement than was sent, listed or signed",
    )
    DISAGREES = "disagrees", "statements contradict each other: of servers, or of one party"
    NOT_SIGNED = "not-signed", "forwarded, but not signed by its author"
    FALSE_ACCUSATION = "false-accusation", "an accusation without proof, or of correct behaviour"
    REPORTED = "reported", "another member said so, no check of this process"
    # Keys, commitments, shares and proofs.
    WEAK_KEY = "weak-key", "a public key of small order"
    KEY_DIFFERS = "key-differs", "a key to seal with is missing or not expected"
    BAD_SEAL = "bad-seal", "a sealed message does not open"
    BAD_COMMITMENT = "bad-commitment", "no canonical encoding of a commitment or a blinding"
    BAD_OPENING = "bad-opening", "the opening does not fit the commitment"
    NOT_IN_TREE = "not-in-tree", "not in the Merkle tree of the root, or an invalid proof"
    BAD_SHARE = "bad-share", "shares do not open, or do not give the committed secret"
    BAD_DRAW = "bad-draw", "not as many drawn neighbours as planned, or not others"
    BAD_PROOF = "bad-proof", "a proof, or its statement, is false or malformed"
    BAD_TRANSFER = "bad-transfer", "oblivious transfer: malformed message, or failed consistency check"
    BAD_LABEL = "bad-label", "an output label is none of its two"
    CONVICTED = (
        "convicted",
        "a garbler's signed tables do not follow from its seed, as a certificate shows",
    )
    TRANSCRIPT_DIFFERS = "transcript-differs", "the two ends hash different transcripts"
    EVALUATION_FAILED = (
        "evaluation-failed",
        "an evaluation secure against both sides failed; whose fault it is is not shown",
    )
    # Results.
    OUT_OF_BOUNDS = "out-of-bounds", "a value beyond its bounds and the planned noise"
    WRONG_TOTAL = "wrong-total", "the total is not that of the published values or of the commitments"
    WRONG_COUNT = "wrong-count", "pairs, pieces or failures are miscounted"
    WRONG_RESULT = "wrong-result", "an outcome, output or token does not follow from its inputs"
    # Logs.
    CHAIN_BROKEN = "chain-broken", "an entry does not follow the one above it"
    ROLLED_BACK = "rolled-back", "a session log is shorter than one that was signed"
    LOG_DIFFERS = "log-differs", "differs from the log that was signed or read before"
    LOG_CUT = "log-cut", "a log ends too early"
    LOG_CLOSED = "log-closed", "an entry after the last one"
    NOT_LOGGED = "not-logged", "the run or the head is not in the session log"
    BAD_CHECKPOINT = "bad-checkpoint", "a checkpoint's root or head is not that of the session log"
    SPLIT_VIEW = "split-view", "a checkpoint does not continue one that was cosigned before"
    NOT_WITNESSED = "not-witnessed", "too few witnesses have cosigned a checkpoint"
    BEHIND = "behind", "the party has missed more lines of the session log than allowed"
    BAD_SESSION = "bad-session", "no session or roster of a log"
    NOT_VERIFIABLE = "not-verifiable", "no such log is made: the session or the request is not verifiable"
    BAD_STATE = "bad-state", "not restorable from the saved state or inbox"
    # Connections.
    TLS = "tls", "the TLS handshake or the record layer failed"
    TLS_CERTIFICATE = (
        "tls-certificate",
        "not a certificate of the roster, or of another name and key",
    )
    OTHER_MEMBER = "other-member", "another member than expected answers or calls"
    BAD_FRAME = "bad-frame", "a frame is malformed, unexpected or cut"
    BAD_HELLO = "bad-hello", "the hello contradicts itself or its certificate"
    SECOND_CONNECTION = "second-connection", "the member is already connected, or acts twice"
    REFUSED = "refused", "the other end refuses the connection"


class ConfigCheck(_Explained):
    """Kinds of faults of a configuration or of an argument."""

    MISSING = "missing", "a needed key, value, column, role or address is missing"
    UNKNOWN_KEY = "unknown-key", "no key or column has this name"
    UNKNOWN_NAME = "unknown-name", "no party, circuit or kernel has this name"
    CHOICE = "choice", "none of the allowed values"
    TYPE = "type", "wrong type"
    RANGE = "range", "out of range, not finite, or against a rule for its kind"
    SHAPE = "shape", "wrong shape or length of an array, list or record"
    FORMAT = "format", "a text or a file in the wrong format"
    DUPLICATE = "duplicate", "given twice"
    CONFLICT = "conflict", "incompatible with another value, the role or the protocol"
    DIFFERS = "differs", "differs from a peer's, a file's, a plan's or a key's"
    UNSUPPORTED = "unsupported", "not supported by the protocol, method, kernel or session"
    INFEASIBLE = "infeasible", "no plan, noise or result exists for the request"
    TOO_LARGE = "too-large", "more than there is room, precision or time for"
    MORE = "more", "further issues are not listed"


class ConfigIssue(NamedTuple):
    """One fault of a configuration: where it is (a line or key), the reason, and its kind."""

    where: str
    reason: str
    check: ConfigCheck

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SmpcError(Exception):
    """Base class of all errors that this library raises on purpose; `code` is what peers are sent."""

    code = Code.OWN

    def __init__(self, text: str = "") -> None:
        super().__init__(printable(text, MOST_ERROR))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process makes the error from: its text and its fields."""
        return _remake, (type(self), str(self)), vars(self)


def _remake(kind: type[SmpcError], text: str) -> SmpcError:
    """Return a new error of this class with only its text set; unpickling then restores its fields."""
    return kind.__new__(kind, text)


class ConfigError(SmpcError):
    """Error for a wrong session file, parameter or argument; `issues` lists every fault."""

    @overload
    def __init__(self, issues: str, check: ConfigCheck, *, code: Code = Code.OWN) -> None: ...

    @overload
    def __init__(self, issues: Iterable[ConfigIssue], *, code: Code = Code.OWN) -> None: ...

    def __init__(
        self, issues: Iterable[ConfigIssue] | str, check: Any = None, *, code: Code = Code.OWN
    ) -> None:
        self.code = code
        given = (ConfigIssue("", issues, check),) if isinstance(issues, str) else issues
        self.issues: tuple[ConfigIssue, ...] = tuple(
            ConfigIssue(printable(where), printable(reason, MOST_REASON), check)
            for where, reason, check in given
        )
        super().__init__("; ".join(str(issue) if issue.where else issue.reason for issue in self.issues))

    @classmethod
    def at(cls, where: str, reason: str, check: ConfigCheck, *, code: Code = Code.OWN) -> Self:
        """Return the ConfigError with a single issue, at the line, key or argument `where`."""
        return cls([ConfigIssue(where, reason, check)], code=code)


class Issues(list[ConfigIssue]):
    """Collector of a configuration's faults, so that one ConfigError reports them together."""

    def add_issue(self, where: str, reason: str, check: ConfigCheck) -> None:
        """Record a fault of the configuration: its place (line or key), the reason and the kind."""
        self.append(ConfigIssue(where, reason, check))

    def raise_issues(self) -> None:
        """Raise one ConfigError with all collected issues; do nothing if there are none."""
        if self:
            raise ConfigError(self)


class LocalError(SmpcError):
    """Error of this machine, not of a peer: a port in use, an unreadable key file, a full disk."""


class PeerFault(SmpcError):
    """Error: peer `culprit` broke the protocol; `evidence` shows that (signed bytes where there are any).

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
        self.culprit = printable(culprit)
        self.reason = printable(reason, MOST_REASON)
        self.check = check
        self.accuser = printable(accuser)
        self.evidence: dict[str, bytes] = dict(evidence or {})
        super().__init__(f"{self.culprit}: {self.reason}")


class TimeoutFault(SmpcError):
    """Error: the members in `missing` did not send in time what protocol step `step` needs ("": unknown).

    `why` has a more precise code than `code` for some of them; `number` is the number of parties needed
    (FEW), the request that the others are at (PAST), or the one that can be joined (BEGUN).
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
        self.step = printable(step)
        names = ", ".join(sorted(self.missing)[:20]) or "nobody"
        more = "" if len(self.missing) <= 20 else f" and {len(self.missing) - 20} more"
        detail = f" ({detail})" if detail else ""
        # What others tell of a party that came too late names no step.
        where = f" in step '{self.step}'" if self.step else ""
        super().__init__(f"missing{where}: {names}{more}{detail}")


class OtherRequestError(SmpcError):
    """Error: most parties are at another request than `party`, which is behind, or label it otherwise.

    Nothing of the value was sent. It stays a value of the request that it was given for: compute that of
    request `next`, and call again with `number=error.next`.

    Attributes:
        number, label: of the call.
        asked, asked_label: of the newest request that most others are known to ask for; the label is None
            where it is not known.
        next: the earliest request that the party can join: its start was not sent, and the party was not
            lost from it.
    """

    code = Code.PAST

    def __init__(
        self, party: str, number: int, label: str, asked: int, asked_label: str | None, following: int
    ) -> None:
        self.party, self.number, self.label = printable(party), number, printable(label)
        self.asked = asked
        self.asked_label = None if asked_label is None else printable(asked_label)
        self.next = following
        late = ", too late to join" if following > asked else ""
        super().__init__(
            f"{self.party}: asks for {_request_text(number, self.label)}, most others for "
            f"{_request_text(asked, self.asked_label or '')}{late}: compute the value for request "
            f"{following}, and call again with number={following}"
        )

    def postponed(self, following: int) -> OtherRequestError:
        """Return an error like this that says that the call can first join request number `following`."""
        return OtherRequestError(self.party, self.number, self.label, self.asked, self.asked_label, following)


def _request_text(number: int, label: str) -> str:
    """Return words for an error message that name a request by its number and label."""
    return f"request {number} {label!r}" if label else f"request {number}"


class PrivacyError(SmpcError):
    """Error: a value is outside its declared bounds, or privacy rules do not permit a release."""

    def __init__(self, reason: str, *, code: Code = Code.OWN) -> None:
        self.code = code
        super().__init__(reason)


class VerificationError(SmpcError):
    """Error: evidence, such as a signature or log, does not show what it claims; `check` says which check."""

    code = Code.EVIDENCE

    def __init__(self, reason: str, check: Check, *, code: Code = Code.EVIDENCE) -> None:
        self.check, self.code = check, code
        super().__init__(reason)


def evidenced(errors: Iterable[SmpcError]) -> PeerFault | None:
    """Return the first error that is a PeerFault with evidence, as the cause of a joint error; or None."""
    return next((error for error in errors if isinstance(error, PeerFault) and error.evidence), None)


def without_frames(error: E) -> E:
    """Clear the tracebacks of an error and its causes in place, so that it keeps no data alive; return it."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = each.__context__ = None
        each = each.__cause__
    return error


def check_of(error: Exception, other: Check) -> Check:
    """Return the check named by a PeerFault or a VerificationError; `other` for an error that names none."""
    return error.check if isinstance(error, PeerFault | VerificationError) else other


def certificate_of(error: BaseException | None) -> bytes | None:
    """Return the certificate that convicts a peer from an error's evidence; None if it convicts nobody."""
    if isinstance(error, PeerFault) and error.check == Check.CONVICTED:
        return error.evidence.get("certificate")
    return None
