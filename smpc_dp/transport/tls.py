"""TLS contexts and the pinning of a connection to one entry of the roster."""

from __future__ import annotations

import codecs
import contextlib
import datetime
import os
import ssl
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cached_property

from smpc_dp.crypto.tls import TlsContext, TlsError
from smpc_dp.errors import Check, ConfigCheck, ConfigError, LocalError, PeerFault
from smpc_dp.identity.certificate import FIRST_YEAR, LAST_YEAR
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member, Roster

# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_WRONG_TIME = (9, 10)


class Contexts:
    """TLS contexts of one member (server, client, blocking), which trust the roster's certificates.

    OpenSSL sorts the trusted certificates anew for each that it is given, so that those of 10,000 members
    take it many seconds. Only a member that listens needs them: `server` and `blocking` are made at first
    use, and `client` trusts only the members that have an address, as nobody else can be dialled.
    """

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self._identity = identity
        self._roster = roster
        dialled = (member.certificate for member in roster if member.address is not None)
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT, dialled, identity)

    @cached_property
    def server(self) -> ssl.SSLContext:
        """TLS context for accepting connections of any member."""
        result = _context(ssl.PROTOCOL_TLS_SERVER, self._roster.certificates, self._identity)
        result.num_tickets = 0
        return result

    @cached_property
    def blocking(self) -> TlsContext:
        """TLS context of the Rust core for blocking channels, both sides."""
        own, certificates = self._identity, list(self._roster.certificates)
        return TlsContext(own.private_key_pem(), own.certificate, certificates)


def contexts(identity: Identity, roster: Roster) -> Contexts:
    """Return a member's TLS contexts: TLS 1.3, the roster's certificates; raise for a wrong key or clock.

    Raises ConfigError when the roster holds another key for `identity.name`, or none, LocalError when this
    machine's clock is outside the time for which certificates are valid.
    """
    check_clock()
    if identity.name not in roster or roster.member(identity.name).public_key != identity.public_key:
        raise ConfigError(
            f"the roster does not hold the key of our identity '{identity.name}'", ConfigCheck.DIFFERS
        )
    # Looking up an address loads this codec, in 2 ms: like contexts, once and before any call.
    codecs.lookup("idna")
    return Contexts(identity, roster)


def check_clock() -> None:
    """Raise LocalError if this machine's clock is outside the validity of certificates."""
    shown = datetime.datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)
    if not FIRST_YEAR <= shown.year < LAST_YEAR:
        raise LocalError(
            f"this machine's clock is wrong, it shows {shown:%Y-%m-%d %H:%M} UTC: "
            f"certificates are valid from {FIRST_YEAR} to {LAST_YEAR}"
        )


def authenticated(tls: ssl.SSLObject | ssl.SSLSocket, roster: Roster, address: str) -> Member:
    """Return the member whose certificate the TLS peer has shown; PeerFault if none has it.

    Raises PeerFault when the certificate is in no entry of the roster or the session was resumed.
    """
    if tls.version() != "TLSv1.3" or tls.session_reused:
        raise PeerFault(
            address, f"the connection is not a fresh TLS 1.3 session ({tls.version()})", Check.TLS
        )
    return member_of(tls.getpeercert(binary_form=True) or b"", roster, address)


def member_of(shown: bytes, roster: Roster, address: str) -> Member:
    """Return the member with this certificate (DER); raise PeerFault if no member has it."""
    member = roster.with_certificate(shown)
    if member is not None:
        return member
    raise PeerFault(
        address, "its certificate is not in the roster", Check.TLS_CERTIFICATE, {"certificate": shown}
    )


def describe(error: ssl.SSLError | TlsError, *, dialled: bool = False) -> str:
    """Return a TLS error's reason in one line for people.

    `dialled`: whether this side has dialled, which trusts only members with an address.
    """
    if isinstance(error, TlsError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _WRONG_TIME:
        return f"this machine's clock is wrong, by which its {error.verify_message}"
    if isinstance(error, ssl.SSLCertVerificationError):
        known = "of a roster's member with an address" if dialled else "one of the roster"
        return f"its certificate is not {known} ({error.verify_message})"
    return f"TLS failed ({(error.reason or str(error)).replace('_', ' ').lower()})"


def _context(purpose: int, trusted: Iterable[bytes], identity: Identity) -> ssl.SSLContext:
    """Return a TLS context for one direction, of a member's key and trusted certificates; or LocalError."""
    context = ssl.SSLContext(purpose)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    # Certificates name members, not hosts: `authenticated` pins the whole certificate.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    own = ssl.DER_cert_to_PEM_cert(identity.certificate).encode("ascii")
    try:
        if anchors := b"".join(trusted):
            context.load_verify_locations(cadata=anchors)
        with _private_file(identity.private_key_pem() + own) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise LocalError(f"OpenSSL does not take our certificates: {error}") from None
    return context


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Context manager that yields the path of a file with secret content, in memory if possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        path = os.path.join(folder, "key")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
