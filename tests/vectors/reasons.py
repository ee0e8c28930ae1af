"""Why each published fault is refused: what the check that is meant to refuse it says, and its code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from smpc_dp.errors import ConfigError, PeerFault, VerificationError

REASONS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("reasons.json").read_text("utf-8"))
# By folder and file; "" where no check refuses: a party is missing, or an edge does not count.
CHECKS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("checks.json").read_text("utf-8"))
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_reason(vector: Path, claimed: str) -> None:
    """Assert that the fault in a file was refused for the reason that is meant; digests are left out."""
    protocol = vector.parents[1].name
    assert _DIGEST.sub("", claimed) == REASONS[protocol][vector.stem]


def check_code(vector: Path, error: BaseException | None) -> None:
    """Assert that the check that refused the fault in a file is the one that is meant."""
    check = ""
    if isinstance(error, PeerFault | VerificationError):
        check = error.check
    elif isinstance(error, ConfigError):
        [check] = [fault.check for fault in error.issues]
    assert check == CHECKS[vector.parents[1].name][vector.stem]
