"""Certificates of cheating in a folder beside a party's key: the convicted parties are refused."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from smpc_dp.capabilities.pairs.covert.certificate import MAX_CERTIFICATE_BYTES, Certificate, judge, run_of
from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, VerificationError, certificate_of
from smpc_dp.files import read_bounded, replace_file
from smpc_dp.identity.roster import Roster

SUFFIX = ".certificate"
# A judge garbles a copy for each.
MAX_CERTIFICATES = 1000

_LOG = logging.getLogger("smpc_dp.capabilities.pairs")


class Convictions:
    """Store of a party: certificates in a folder that convict other parties, which it then refuses.

    Files that convict nobody are not used, and logged. Safe for use by several threads.
    """

    def __init__(self, folder: Path, roster: Roster) -> None:
        """Judge the certificates in `folder`, if there are any; LocalError if one cannot be read.

        Raises LocalError for a folder or a certificate that cannot be read: it may convict a party.
        """
        self._folder = folder
        self._roster = roster
        self._files: dict[str, Path] = {}
        # Parties that are refused, and whose file could not be written yet.
        self._unwritten: set[str] = set()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        try:
            files = sorted(file for file in folder.iterdir() if file.suffix == SUFFIX)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LocalError(f"{folder}: cannot read the certificates ({error.strerror})") from None
        # One for each member beside: convicted members must not keep others from working.
        most = MAX_CERTIFICATES + sum(1 for _ in roster)
        if len(files) > most:
            raise LocalError(f"{folder}: {len(files)} certificates, {most} at most are judged")
        for file in files:
            self._add(file)

    def _add(self, file: Path) -> None:
        """Read a certificate's file; refuse the party it convicts, or log a warning if it convicts nobody."""
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
        """Paths of certificates, by the name of the convicted party; one may not have been written yet."""
        with self._lock:
            return dict(self._files)

    def check(self, peer: str) -> None:
        """Raise PeerFault if a stored certificate convicts `peer`; else do nothing."""
        if peer in self.files:
            raise self.fault(peer)

    def fault(self, peer: str) -> PeerFault:
        """Return the error with which this party refuses to compute with a peer that is convicted."""
        with self._lock:
            unwritten = ", which could not be written" * (peer in self._unwritten)
            reason = f"is refused: it is convicted of cheating by {self._files[peer]}{unwritten}"
        return PeerFault(peer, reason, Check.CONVICTED)

    def keep(self, error: SmpcError) -> SmpcError:
        """Store the certificate that an error carries, if any; return the error to raise in its place.

        Returns the error to raise: the conviction, with what became of its certificate, or another error as
        it is. Raises nothing: a certificate cannot be made again, and no error takes a conviction's place.
        """
        certificate = certificate_of(error)
        if not isinstance(error, PeerFault) or certificate is None:
            return error
        try:
            stored = f"its certificate is {self.add(error.culprit, certificate)}"
        except SmpcError as failed:
            stored = f"its certificate is not stored: {failed}"
        reason = f"{error.reason}; {stored}"
        return PeerFault(error.culprit, reason, error.check, error.evidence, code=error.code)

    def add(self, name: str, content: bytes) -> Path:
        """Write a judged certificate to a file, and refuse its party from now on; return the path.

        A party has one file: a further certificate is written if the last one could not be. Raises LocalError
        if it cannot be written.
        """
        with self._lock:
            if name in self._files and name not in self._unwritten:
                return self._files[name]
        run = run_of(Certificate.decode(content)).hex()[:16]
        with self._lock:
            if name not in self._files:
                # Refused even if the file cannot be written.
                self._files[name] = self._folder / f"{name}-{run}{SUFFIX}"
                self._unwritten.add(name)
            file = self._files[name]
        with self._writing:
            if name not in self._unwritten:
                return file
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                # As a whole: half a certificate convicts nobody, and it cannot be made again.
                replace_file(file, lambda out: out.write(content))
            except OSError as error:
                raise LocalError(f"{file}: cannot write the certificate ({error.strerror})") from None
            with self._lock:
                self._unwritten.discard(name)
        _LOG.warning("%s is convicted of cheating: %s", name, file)
        return file
