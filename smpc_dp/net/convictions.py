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
from smpc_dp.protocols.covert.certificate import MAX_CERTIFICATE_BYTES, judge

FOLDER = "certificates"
SUFFIX = ".certificate"
CERTIFICATE = "certificate"

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
        for file in files:
            self._add(file)

    def _add(self, file: Path) -> None:
        """Add the party that a certificate convicts."""
        try:
            conviction = judge(read_bounded(file, "the certificate", MAX_CERTIFICATE_BYTES))
        except VerificationError as error:
            _LOG.warning("%s convicts nobody: %s", file, error)
            return
        for member in self._roster:
            if member.public_key == conviction.public_key:
                self._files[member.name] = file

    @property
    def files(self) -> dict[str, Path]:
        """The certificates by convicted party."""
        with self._lock:
            return dict(self._files)

    def check(self, peer: str) -> None:
        """Raise PeerFault if `peer` is convicted."""
        with self._lock:
            file = self._files.get(peer)
        if file is not None:
            raise PeerFault(peer, f"is refused: it is convicted of cheating by {file}", Check.CONVICTED)

    @contextmanager
    def watch(self, peer: str) -> Iterator[None]:
        """Refuse a convicted `peer`; store the certificate if it is convicted within the block."""
        self.check(peer)
        try:
            yield
        except PeerFault as error:
            if error.check == Check.CONVICTED and CERTIFICATE in error.evidence:
                self._store(error.culprit, error.evidence[CERTIFICATE])
            raise

    def _store(self, name: str, content: bytes) -> None:
        """Write a certificate, and refuse its party from now on."""
        run = judge(content).run_id.hex()[:16]
        file = self._folder / f"{name}-{run}{SUFFIX}"
        with self._lock:
            # Refused even if the file cannot be written.
            self._files[name] = file
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            # As a whole: half a certificate convicts nobody, and it cannot be made again.
            replace_file(file, lambda out: out.write(content))
        except OSError as error:
            raise LocalError(f"{file}: cannot write the certificate ({error.strerror})") from None
        _LOG.warning("%s is convicted of cheating: %s", name, file)
