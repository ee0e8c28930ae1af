"""Certificates of cheating in a folder beside a party's key: the convicted parties are refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smpc_dp.errors import Check, LocalError, PeerFault, VerificationError
from smpc_dp.files import read_bounded, replace_file
from smpc_dp.identity.roster import Roster
from smpc_dp.protocols.covert.certificate import MAX_CERTIFICATE_BYTES, Certificate, judge, run_of

FOLDER = "certificates"
SUFFIX = ".certificate"
CERTIFICATE = "certificate"
# A judge garbles a copy for each.
MAX_CERTIFICATES = 1000

_LOG = logging.getLogger("smpc_dp.net")


class Convictions:
    """Parties of a session that a certificate in `folder` convicts, with the file of each.

    Files that convict nobody are not used, and logged. Safe for use by several threads.
    """

    def __init__(self, folder: Path, roster: Roster) -> None:
        """Judge the certificates in `folder`, if there are any.

        Raises LocalError for a folder or a certificate that cannot be read: it may convict a party.
        """
        self._folder = folder
        self._roster = roster
        self._files: dict[str, Path] = {}
        self._lock = threading.Lock()
        try:
            files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LocalError(f"{folder}: cannot read the certificates ({error.strerror})") from None
        if len(files) > MAX_CERTIFICATES:
            raise LocalError(f"{folder}: {len(files)} certificates, {MAX_CERTIFICATES} at most are judged")
        for file in files:
            self._add(file)

    def _add(self, file: Path) -> None:
        """Add the party that a certificate convicts; one of nobody in the roster is not judged."""
        content = read_bounded(file, "the certificate", MAX_CERTIFICATE_BYTES)
        try:
            key = Certificate.decode(content).public_key
            names = [member.name for member in self._roster if member.public_key == key]
            if any(name not in self._files for name in names):
                judge(content)
        except VerificationError as error:
            _LOG.warning("%s convicts nobody: %s", file, error)
            return
        for name in names:
            self._files.setdefault(name, file)

    @property
    def files(self) -> dict[str, Path]:
        """The certificates by convicted party."""
        with self._lock:
            return dict(self._files)

    def check(self, peer: str) -> None:
        """Raise PeerFault if `peer` is convicted."""
        if peer in self.files:
            raise self.fault(peer)

    def fault(self, peer: str) -> PeerFault:
        """Return the fault of a convicted party."""
        reason = f"is refused: it is convicted of cheating by {self.files[peer]}"
        return PeerFault(peer, reason, Check.CONVICTED)

    @contextmanager
    def watch(self, peer: str) -> Iterator[None]:
        """Refuse a convicted `peer`; store the certificate if it is convicted within the block.

        Raises LocalError, with the conviction as its cause, for a certificate that cannot be written.
        """
        self.check(peer)
        try:
            yield
        except PeerFault as error:
            if error.check == Check.CONVICTED and CERTIFICATE in error.evidence:
                try:
                    self.add(error.culprit, error.evidence[CERTIFICATE])
                except LocalError as failed:
                    # The certificate cannot be made again: it stays in the cause's evidence.
                    raise failed from error
            raise

    def add(self, name: str, content: bytes) -> None:
        """Write a certificate that convicts a party, and refuse the party from now on.

        Raises LocalError if it cannot be written.
        """
        run = run_of(Certificate.decode(content)).hex()[:16]
        file = self._folder / f"{name}-{run}{SUFFIX}"
        with self._lock:
            if name in self._files:
                return
            # Refused even if the file cannot be written.
            self._files[name] = file
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            # As a whole: half a certificate convicts nobody, and it cannot be made again.
            replace_file(file, lambda out: out.write(content))
        except OSError as error:
            raise LocalError(f"{file}: cannot write the certificate ({error.strerror})") from None
        _LOG.warning("%s is convicted of cheating: %s", name, file)
