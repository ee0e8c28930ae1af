"""The canonical form of a session, which the session digest covers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.identity.roster import Member, entry_of

# Tables and arrays of parameters within each other, at most.
MAX_DEPTH = 32
# Half of a surrogate pair, which JSON can encode.
SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_session(
    protocol: str, version: int, parameters: Mapping[str, object], members: Iterable[Member]
) -> dict[str, object]:
    """Return a session (protocol, version, parameters, roster) as JSON data in canonical form."""
    return {
        "protocol": protocol,
        "version": version,
        "parameters": dict(parameters),
        "roster": [entry_of(member) for member in members],
    }


def is_plain(value: object, depth: int = 0) -> bool:
    """Tell whether a value may be a session parameter: text, number, bool, or nested table or array.

    Tables and arrays are at most `MAX_DEPTH` deep in each other; `depth`: of this value.
    """
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(is_plain(inner, depth + 1) for inner in (*value, *value.values()))
    if isinstance(value, list):
        return all(is_plain(inner, depth + 1) for inner in value)
    if isinstance(value, str):
        return not SURROGATE.search(value)
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def session_json(canonical: Mapping[str, object]) -> bytes:
    """Return canonical JSON bytes of a session: sorted keys, no spaces, ASCII."""
    return json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def session_digest(canonical: bytes) -> bytes:
    """Return the digest of a session's canonical JSON, which all members compare."""
    return digest(Label.SESSION_DIGEST, canonical)
