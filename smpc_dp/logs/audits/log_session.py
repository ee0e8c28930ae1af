"""The session in the header of a log: checked, and stored in few bytes for each party."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import Digest
from smpc_dp.engine.registry import find_protocol, is_absent, protocol_in, session_protocol
from smpc_dp.errors import (
    Check,
    ConfigIssue,
    Issues,
    LocalError,
    SmpcError,
    VerificationError,
)
from smpc_dp.identity.packed_roster import Names, RosterPacker
from smpc_dp.identity.roster import Member
from smpc_dp.logs.header import SessionText
from smpc_dp.privacy.accountant.work import TooMuchWorkError, limit_work
from smpc_dp.session.session_file import (
    SessionFile,
    check_outline,
    check_protocol,
    plan_parameters,
    read_member,
    read_parameters,
)
from smpc_dp.session.tasks import find_task
from smpc_dp.wire.canonical_session import session_digest, session_json

# Longest member, and longest table of parameters that is parsed by itself, in characters.
VALUE_CHARACTERS = 1 << 16
# Most work for the plan of a session that the auditor does not know, in cells of the accountant's
# distributions: 2 to 3 seconds.
STRANGERS_CELLS = 3_000_000


@dataclass(frozen=True, slots=True)
class LogSession:
    """Parts of a session that an audit needs: protocol, version, parameters, parties and digest.

    `parameters` is as written. `planned` checks and plans them, which is expensive: it is called after all
    cheap checks.
    """

    protocol: str
    version: int
    parameters: Mapping[str, object]
    names: Names
    keys: Mapping[str, bytes]
    aggregator: str | None
    checkpoint_key: bytes | None
    roster_digest: bytes
    digest: bytes

    def planned(self, known: bytes | None = None) -> object:
        """Return what the protocol plans from checked parameters, such as noise; LocalError if too much work.

        A session whose digest is not the `known` one may be anybody's: the work of its plan is limited to
        `STRANGERS_CELLS`. Raises LocalError beyond that, and ConfigError with each fault.
        """
        issues = Issues()
        described = session_protocol(self.protocol)
        if self.digest != known and find_task(described.task(self.parameters)).is_long_to_plan:
            reason = "anybody may have written the log, and to plan its statistics of records may take long"
            raise LocalError(f"{reason}: give the session file")
        bound = contextlib.nullcontext() if self.digest == known else limit_work(STRANGERS_CELLS)
        try:
            with bound:
                checked = plan_parameters(self.protocol, self.version, self.parameters, self.names, issues)
        except TooMuchWorkError:
            reason = (
                "to plan the log's session takes long, and anybody may have written it: give the session file"
            )
            raise LocalError(reason) from None
        issues.raise_issues()
        return checked

    def most_corrupt(self, known: bytes | None = None) -> int:
        """Return the greatest number of corrupt parties, for logs of pairs, or raise VerificationError.

        A protocol of another package is planned for it. Raises VerificationError for a session without sums
        through an aggregator, else as `planned`.
        """
        described = protocol_in(self.protocol, self.version)
        if described is None or not described.is_sum or described.topology(self.parameters) != "aggregator":
            reason = f"a run of '{self.protocol}' that is not verifiable"
            raise VerificationError(reason, Check.NOT_VERIFIABLE)
        if described.most_corrupt is not None:
            return described.most_corrupt(self.version, self.parameters, len(self.names))
        planned: Any = self.planned(known)
        corrupt: int = planned.plan.max_corrupt
        return corrupt


def parse_session_text(text: str) -> LogSession:
    """Parse and check a log header's session (canonical JSON); raise an SmpcError if it is invalid.

    The parameters are not planned.
    """
    try:
        document = json.loads(text)
        canonical = isinstance(document, dict) and session_json(document) == text.encode()
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"the session in the header is not JSON ({error})", Check.MALFORMED) from None
    if not canonical:
        raise VerificationError(
            "the session in the header is not in its canonical spelling", Check.NOT_CANONICAL
        )
    if "timeouts" in document:
        raise VerificationError(
            "the session in the header has timeouts, which are everybody's own affair", Check.BAD_SESSION
        )
    _check_session(document)
    outline, roster = check_outline(document)
    return LogSession(
        outline.protocol,
        outline.version,
        outline.parameters,
        Names.of(roster.party_names),
        {member.name: member.public_key for member in roster},
        None if roster.aggregator is None else roster.aggregator.name,
        None if roster.aggregator is None else roster.aggregator.checkpoint_key,
        roster.digest,
        session_digest(text.encode()),
    )


def _check_session(document: Mapping[str, object]) -> None:
    """Raise VerificationError if runs of a session with this protocol cannot be audited.

    LocalError where its capability is absent: that is no fault of the log.
    """
    protocol, parameters, roster = (document.get(key) for key in ("protocol", "parameters", "roster"))
    if isinstance(protocol, str) and is_absent(protocol):
        raise LocalError(f"the log needs the protocol '{protocol}', which is not in this installation")
    described = find_protocol(protocol) if isinstance(protocol, str) else None
    if described is not None and described.audit is not None and isinstance(parameters, dict):
        described.audit.check_session(parameters, len(roster) if isinstance(roster, list) else 0)


def is_scope(session: SessionFile, scope: str) -> bool:
    """Tell whether `scope` (hex) is the digest of the session or of one of its groups."""
    audit = session.described.audit
    is_group = None if audit is None else audit.is_group
    return scope == session.digest.hex() or (is_group is not None and is_group(session, scope))


def read_long_session(text: SessionText) -> LogSession | None:
    """Parse a session too long for memory, for a verifiable run, part by part; None if that fails.

    `parse_session_text` accepts every session that this returns, with the same result. It holds a part of the
    text at a time, and of each party its name, its key and 8 bytes.
    """
    try:
        return _Reading(text).session()
    except (SmpcError, ValueError, RecursionError):
        # A reader of the whole text can give the reason.
        return None


class _Reading:
    """Incremental parser of a session's canonical JSON that is too long for memory; raises ValueError."""

    def __init__(self, text: SessionText) -> None:
        self._text = text
        self._blocks: Iterator[bytes] = text.blocks()
        self._buffer, self._index, self._read = "", 0, 0
        self._decoder = json.JSONDecoder()

    def session(self) -> LogSession:
        """Parse the whole text as a session and return it; raise ValueError for other text."""
        self._literal('{"parameters":')
        parameters = self._value()
        self._literal(',"protocol":')
        protocol = self._value()
        self._literal(',"roster":[')
        packer, comma = RosterPacker(), True
        while comma:
            packer.add(self._member())
            comma = self._next() == ","
        self._literal(',"version":')
        version = self._value()
        self._literal("}")
        self._fill()
        if self._index < len(self._buffer) or not isinstance(protocol, str) or type(version) is not int:
            raise ValueError("not the session of a log")
        described = find_protocol(protocol)
        if described is None or not isinstance(parameters, dict):
            raise ValueError("no session of a known protocol")
        if not described.is_sum or not described.is_logged(parameters):
            raise ValueError("no session of a verifiable run: it is looked at as a whole")
        if described.topology(parameters) != "aggregator":
            raise ValueError("a roster without an aggregator is looked at as a whole")
        packer.check()
        issues: list[ConfigIssue] = []
        check_protocol(protocol, version, issues, audited=True)
        written = read_parameters({"parameters": parameters}, issues)
        if issues or written is None:
            raise ValueError("not the session of a verifiable run")
        digest = Digest(Label.SESSION_DIGEST)
        digest.add_long(self._read, self._text.blocks())
        return LogSession(
            protocol,
            version,
            written,
            packer.names,
            packer.keys,
            packer.aggregator,
            packer.checkpoint_key,
            packer.digest,
            digest.value(),
        )

    def _member(self) -> Member:
        """Parse one member of the roster, a JSON object; raise ValueError for anything else."""
        member = read_member("", self._value(), [])
        if member is None:
            raise ValueError("no member")
        return member

    def _next(self) -> str:
        """Read the character after a list's member, "," or "]"; raise ValueError for another."""
        self._fill()
        self._index += 1
        result = self._buffer[self._index - 1 : self._index]
        if result not in (",", "]"):
            raise ValueError("no list of members")
        return result

    def _literal(self, expected: str) -> None:
        """Skip an expected text; raise ValueError if another text follows."""
        self._fill()
        if not self._buffer.startswith(expected, self._index):
            raise ValueError(f"{expected!r} is due")
        self._index += len(expected)

    def _value(self) -> object:
        """Parse and return the next JSON value; raise ValueError if it is too long or not canonical."""
        self._fill()
        value, end = self._decoder.raw_decode(self._buffer, self._index)
        if (
            session_json(cast("Mapping[str, object]", value)).decode("ascii")
            != self._buffer[self._index : end]
        ):
            raise ValueError("not the canonical spelling")
        self._index = end
        return value

    def _fill(self) -> None:
        """Read more text into the buffer until it has enough characters, or the text ends."""
        while len(self._buffer) - self._index < VALUE_CHARACTERS:
            block = next(self._blocks, None)
            if block is None:
                return
            self._read += len(block)
            self._buffer = self._buffer[self._index :] + block.decode("ascii")
            self._index = 0
