"""Name and versions of GOPA, and the kind of its sessions as written. This module loads no protocol."""

from __future__ import annotations

from collections.abc import Mapping

GOPA = "gopa"
# Without verifiable averages, and with them.
VERSION, VERIFIABLE_VERSION = 1, 3
# The version of verifiable sessions before: their logs are audited, and no session is run in it.
AUDITED_VERSION = 2


def is_verifiable(parameters: Mapping[str, object]) -> bool:
    """Tell whether a session as written has verifiable averages."""
    return parameters.get("verifiable") is True


def is_direct(parameters: Mapping[str, object]) -> bool:
    """Tell whether a session as written has channels between all parties, and no aggregator."""
    return parameters.get("topology") == "direct"


def version_of(*, verifiable: bool) -> int:
    """Return the version of sessions with verifiable averages, or without."""
    return VERIFIABLE_VERSION if verifiable else VERSION


def has_version(version: int, *, verifiable: bool) -> bool:
    """Tell whether sessions with verifiable averages, or without, are of this version, or were before."""
    return version == version_of(verifiable=verifiable) or (verifiable and version == AUDITED_VERSION)
