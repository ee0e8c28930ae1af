"""The canonical form of a session, which the session digest covers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.identity.roster import Member, entry_of


def canonical_session(
    protocol: str, version: int, parameters: Mapping[str, object], members: Iterable[Member]
) -> dict[str, object]:
    """Return protocol, parameters as written, and roster, in JSON's types."""
    return {
        "protocol": protocol,
        "version": version,
        "parameters": dict(parameters),
        "roster": [entry_of(member) for member in members],
    }


def session_json(canonical: Mapping[str, object]) -> bytes:
    """Return a canonical session as JSON with sorted keys and no spaces, in ASCII."""
    return json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def session_digest(canonical: bytes) -> bytes:
    """Return the digest of a session's canonical JSON."""
    return digest(Label.SESSION_DIGEST, canonical)
