"""`smpc-dp audit --certificate`: judges a certificate of cheating, and compares it with a session."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from smpc_dp.capabilities.pairs.covert.certificate import MAX_CERTIFICATE_BYTES, Conviction, judge
from smpc_dp.errors import Check, VerificationError
from smpc_dp.files import read_bounded
from smpc_dp.logs.audits.audit_selection import FAILS, HOLDS, NO_SESSION
from smpc_dp.session.session_file import SessionFile, load_session


class CertificateReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of auditing a certificate that a garbler cheated, as `smpc-dp audit --certificate` prints.

    Attributes:
        ok: the certificate convicts a party of the given session; `code` is 0.
        code: the exit code. 0: ok. 1: nobody is convicted, or nobody of the session. 3: it convicts the
            holder of `public_key`; no session was given, so the name is the certificate's word.
        conclusion: the result in one sentence. check: the check that refused the certificate, else None.
        garbler, public_key, evaluator: the convicted party, its key in hex, and the party that it cheated.
        run_id: of the evaluation, in hex; copy, copies, message: what it signed and does not follow from its
            seed.
        session_digest: of the evaluation; session_checked: whether the evaluation is of the given session.
            A certificate of a pair of a statistic, or without its field `session`, does not tell: only name
            and key are compared, and False is given.
    """

    ok: bool
    code: int
    conclusion: str
    check: Check | None = None
    garbler: str | None = None
    public_key: str | None = None
    evaluator: str | None = None
    run_id: str | None = None
    session_digest: str | None = None
    session_checked: bool = False
    copy: int | None = None
    copies: int | None = None
    message: str | None = None


def audit_certificate(
    path: str | os.PathLike[str], session: str | os.PathLike[str] | None = None
) -> CertificateReport:
    """Check a certificate's file, against a session if given; report whom it convicts, or nobody.

    Raises ConfigError and LocalError for files that cannot be read, and a session file with faults.
    """
    content = read_bounded(path, "the certificate", MAX_CERTIFICATE_BYTES)
    given = None if session is None else load_session(Path(session), audited=True)
    try:
        conviction = judge(content)
        checked = given is not None and _check_session(conviction, given)
    except VerificationError as error:
        return CertificateReport(
            ok=False, code=FAILS, conclusion=f"nobody is convicted: {error}", check=error.check
        )
    reason = (
        f"signed {conviction.message} of copy {conviction.copy} of {conviction.copies} that do not follow "
        f"from its seed, in an evaluation with '{conviction.evaluator}'"
    )
    who = f"'{conviction.garbler}', the holder of the key {conviction.public_key.hex()},"
    return CertificateReport(
        ok=given is not None,
        code=NO_SESSION if given is None else HOLDS,
        conclusion=f"convicted: {who} {reason}",
        garbler=conviction.garbler,
        public_key=conviction.public_key.hex(),
        evaluator=conviction.evaluator,
        run_id=conviction.run_id.hex(),
        session_digest=conviction.session_digest.hex(),
        session_checked=checked,
        copy=conviction.copy,
        copies=conviction.copies,
        message=conviction.message,
    )


def _check_session(conviction: Conviction, session: SessionFile) -> bool:
    """Return whether the convicted run is known to be of a session; VerificationError if of another.

    The convicted name and key must be those of a party in the session's roster.
    """
    keys = {member.name: member.public_key for member in session.roster.parties}
    if keys.get(conviction.garbler) != conviction.public_key:
        reason = f"no party '{conviction.garbler}' of the session has the key {conviction.public_key.hex()}"
        raise VerificationError(reason, Check.OTHER_SESSION)
    if not conviction.session or session.digest == conviction.session_digest:
        return session.digest == conviction.session_digest
    # Of two parties of a session, for one evaluation: its terms name the session.
    try:
        of = json.loads(conviction.session)["parameters"]["session"]
    except (ValueError, KeyError, TypeError, RecursionError):
        of = None
    if of != session.digest.hex():
        raise VerificationError("the evaluation is of another session", Check.OTHER_SESSION)
    return True
