"""Evidence of a refusal in a file beside a party's key: it outlives the process, to be shown to others."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from smpc_dp.engine.phases.last_results import HeldResult, check_contradiction
from smpc_dp.errors import LocalError, VerificationError
from smpc_dp.files import read_bounded, replace_file

SUFFIX = ".evidence.json"
MAX_FILE_BYTES = 1 << 26

_LOG = logging.getLogger("smpc_dp.session")


def evidence_file(key_file: Path, party: str, session_digest: bytes) -> Path:
    """Return the path at which a party stores its evidence against a session's aggregator."""
    return key_file.with_name(f"{party}-{session_digest.hex()[:16]}{SUFFIX}")


def read_evidence(path: Path) -> dict[str, bytes]:
    """Return the evidence of a refused total, by name, from a file; LocalError if it is malformed."""
    try:
        fields = json.loads(read_bounded(path, "the evidence", MAX_FILE_BYTES))
        return {name: bytes.fromhex(value) for name, value in fields.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise LocalError(f"{path}: is no evidence of a refusal") from None


def check_evidence(path: Path, key: bytes) -> dict[str, bytes]:
    """Read evidence from a file; raise LocalError unless it convicts the aggregator with this key."""
    evidence = read_evidence(path)
    try:
        check_contradiction(key, evidence)
    except VerificationError as error:
        raise LocalError(f"{path}: convicts nobody ({error}): remove it") from None
    return evidence


class StoredResult(HeldResult):
    """A party's last result, and in a file the evidence with which it has refused one.

    While the file is there the party takes part in no further sum of the session.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        """`key`: the aggregator's. Raises LocalError for a file that does not convict it."""
        super().__init__(refusal=check_evidence(path, key) if path.exists() else None)
        self._path = path
        if self.refusal:
            _LOG.error("%s: evidence against the aggregator", path)

    def record_refusal(self, evidence: Mapping[str, bytes]) -> None:
        """Write the evidence of a refused result to the file; a failure is only logged."""
        super().record_refusal(evidence)
        content = json.dumps({name: value.hex() for name, value in evidence.items()}, indent=1).encode()
        try:
            replace_file(self._path, lambda file: file.write(content), 0o600)
        except OSError as error:
            _LOG.error("%s: cannot write the evidence (%s)", self._path, error.strerror)
        else:
            _LOG.error("%s: evidence against the aggregator", self._path)
