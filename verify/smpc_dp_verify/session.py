"""The session in the header of a log: its roster, keys and parameters [protocols/log/README.md, "Header"]."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify import ristretto
from smpc_dp_verify.certificate import check_certificate
from smpc_dp_verify.encodings import read_value, tuple_hash
from smpc_dp_verify.errors import Refused, required

MEMBER = {"name", "role", "public_key", "certificate"}
MOST_PARTIES = 65_535
# Versions of sessions with verifiable averages: two of earlier releases, whose logs are audited, and that of
# today. They differ in what is signed, and in the bound of published values.
BEFORE = 2
VERIFIABLE = (BEFORE, 3, 4)
# The version of sums whose sessions tolerate one colluding party unless they say otherwise; before it a tenth
# of the parties, which of fewer than ten is none.
TOLERANT = {"secagg": 3, "gopa": 5}
EARLIER_CORRUPT = 0.1
# Keys of the parameters, and how deep their tables and arrays are within each other, at most.
MOST_KEYS, MOST_DEPTH = 1000, 32
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\]")
PATH = re.compile(
    r"(?!(?:board|healthz|metrics|readyz)(?:/|$))[A-Za-z0-9_~-]{1,64}(?:/[A-Za-z0-9_~-]{1,64}){0,7}"
)


@dataclass(frozen=True)
class Session:
    """Parsed session: digest, protocol, parameters, keys, and the parties' names in roster order."""

    digest: bytes
    protocol: str
    version: int
    parameters: dict[str, Any]
    keys: dict[str, Ed25519PublicKey]
    names: list[str]
    aggregator: str
    checkpoint_key: bytes | None


def with_corrupt(session: Session) -> dict[str, Any]:
    """Return a session's parameters with the default of `corrupt` filled in for its version."""
    parties, default = len(session.names), EARLIER_CORRUPT
    if session.version >= TOLERANT[session.protocol] and parties > 2:
        default = max(default, 1 / parties)
    return {"corrupt": default, **session.parameters}


def read_session(text: str) -> Session:
    """Parse a session's canonical JSON, with its roster; raise Refused if it is malformed."""
    try:
        session = json.loads(text)
        spelt = json.dumps(session, sort_keys=True, separators=(",", ":"), allow_nan=False)
        required(spelt == text, "the format")
        required(list(session) == ["parameters", "protocol", "roster", "version"], "the format")
        protocol, version, parameters = (session[key] for key in ("protocol", "version", "parameters"))
        fits = isinstance(protocol, str) and type(version) is int and isinstance(parameters, dict)
        required(fits and len(parameters) <= MOST_KEYS, "the format")
        check_values(parameters)
        digest = tuple_hash("session-digest", text.encode())
        return Session(digest, protocol, version, parameters, *_roster(session["roster"]))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Refused("the session is malformed") from None


def _roster(roster: list[dict[str, Any]]) -> tuple[dict[str, Ed25519PublicKey], list[str], str, bytes | None]:
    keys: dict[str, bytes] = {}
    roles: dict[str, list[str]] = {"aggregator": [], "party": []}
    addresses = []
    checkpoint_key: bytes | None = None
    for member in roster:
        required({*member} - {"address", "checkpoint_key"} == MEMBER, "a member of the roster")
        name, key = read_value(member["name"], "name"), read_value(member["public_key"], "hash")
        required(name not in keys and key not in keys.values(), "two members of one name or key")
        required(not has_small_order(key), "a key of small order")
        keys[name] = key
        roles[member["role"]].append(name)
        check_certificate(read_value(member["certificate"], "base64"), name, key)
        required(member["role"] == "party" or "address" in member, "an address")
        if "address" in member:
            addresses.append(_address(member["address"], member["role"]))
        if "checkpoint_key" in member:
            required(member["role"] == "aggregator", "a key of checkpoints")
            checkpoint_key = read_value(member["checkpoint_key"], "hash")
    required(len({*addresses}) == len(addresses), "two members of one address")
    paths = [segment for text in addresses if text.startswith("wss://") for segment in text.split("/")[3:]]
    required(keys.keys().isdisjoint(paths), "an address that names a member")
    required(len(roles["aggregator"]) == 1 and 0 < len(roles["party"]) <= MOST_PARTIES, "the roster")
    required(checkpoint_key not in keys.values(), "two members of one name or key")
    loaded = {name: Ed25519PublicKey.from_public_bytes(key) for name, key in keys.items()}
    return loaded, roles["party"], roles["aggregator"][0], checkpoint_key


def _address(text: str, role: str) -> str:
    """Return a member's address, host:port or an aggregator's wss:// URL; raise Refused if invalid."""
    listed = text
    if text.startswith("wss://"):
        server, _, path = text.removeprefix("wss://").partition("/")
        one_form = not re.search(":(?:443|0[0-9]*)$", server)
        required(role == "aggregator" and PATH.fullmatch(path) and one_form, "an address")
        listed = server if re.search(":[0-9]*$", server) else f"{server}:443"
    host, colon, port = listed.rpartition(":")
    is_port = re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65_535
    required(colon and HOST.fullmatch(host) and is_port, "an address")
    return text


def check_values(value: object, depth: int = 0) -> None:
    """Raise Refused unless a value consists of nested tables, lists, texts and finite numbers."""
    required(depth <= MOST_DEPTH, "the format")
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    for each in inner:
        check_values(each, depth + 1)
    if isinstance(value, str):
        required(not re.search("[\ud800-\udfff]", value), "the format")
    required(isinstance(value, dict | list | str | int | float), "the format")
    required(not isinstance(value, float) or math.isfinite(value), "the format")


@lru_cache(4096)
def has_small_order(encoded: bytes) -> bool:
    """Tell whether an encoded Ed25519 point is invalid, not canonical, or of small order."""
    y = int.from_bytes(encoded, "little") % 2**255
    if y >= ristretto.P:
        return True
    square, x = ristretto.sqrt_ratio(y * y - 1, ristretto.D * y * y + 1)
    point = (x, y, 1, x * y % ristretto.P)
    for _ in range(3):
        point = ristretto.add(point, point)
    return not square or point[0] % ristretto.P == 0
