"""What the published vectors of runs say, in the form in which twins say it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
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


def sources_of(*modules: ModuleType) -> str:
    """Return the text of twins, with another name for the second auditor, which is independent too."""
    texts = (Path(str(module.__file__)).read_text("utf-8") for module in modules)
    return "".join(texts).replace("smpc_dp_verify", "verifier")
