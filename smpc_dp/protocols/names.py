"""Names and versions of the protocols, and the kind of session that `[parameters]` ask for.

This module loads no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

SECAGG = "secagg"
GOPA = "gopa"
EXCHANGE = "exchange"
PAIRWISE = "pairwise"
MPYC = "mpyc"
LEARN = "learn"
REPORTS = "reports"

# The key of `[parameters]` that makes the sums of a session statistics of records.
RECORDS = "records"

# Versions of every protocol here: without verifiable averages, and with them.
VERSION, VERIFIABLE_VERSION = 1, 3
# The version of verifiable sessions before: their logs are audited, and no session is run in it.
AUDITED_VERSION = 2


def is_verifiable(protocol: str, parameters: Mapping[str, object]) -> bool:
    """Tell whether a session as written has verifiable averages, or learns by them."""
    if protocol == LEARN:
        averager = parameters.get("averager")
        return isinstance(averager, Mapping) and averager.get("verifiable") is True
    return protocol == GOPA and parameters.get("verifiable") is True


def is_direct(protocol: str, parameters: Mapping[str, object]) -> bool:
    """Tell whether a session as written has channels between all parties, and no aggregator."""
    return protocol == GOPA and parameters.get("topology") == "direct"


def has_servers(protocol: str, parameters: Mapping[str, object]) -> bool:
    """Tell whether servers compute the session's sums on shares, as written."""
    if protocol == LEARN:
        averager = parameters.get("averager")
        return isinstance(averager, Mapping) and averager.get("method") == MPYC
    return protocol == MPYC


def version_of(protocol: str, parameters: Mapping[str, object]) -> int:
    """Return the version of a protocol that a session file with these parameters needs."""
    return VERIFIABLE_VERSION if is_verifiable(protocol, parameters) else VERSION


def has_version(version: int, protocol: str, parameters: Mapping[str, object]) -> bool:
    """Tell whether a session with these parameters is of this version, or was before."""
    was = version == AUDITED_VERSION and is_verifiable(protocol, parameters)
    return was or version == version_of(protocol, parameters)
