"""Why each published fault is refused: what the check that is meant to refuse it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

REASONS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("reasons.json").read_text("utf-8"))
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_reason(vector: Path, said: str) -> None:
    """Assert that the fault in a file was refused for the reason that is meant; digests are left out."""
    protocol = vector.parents[1].name
    assert _DIGEST.sub("", said) == REASONS[protocol][vector.stem]
