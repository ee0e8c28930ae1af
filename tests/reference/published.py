"""What the published vectors of runs say, in the form in which twins say it."""

from __future__ import annotations

from typing import Any


def messages_of(vector: dict[str, Any]) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return hash and signature of each message of a run but aborts, by step, sender and receiver."""
    return {
        (message["step"], message["sender"], message["receiver"]): (
            message["body_sha256"],
            message["signature"],
        )
        for message in vector["messages"]
        if message["step"] != "abort"
    }
