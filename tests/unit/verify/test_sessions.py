"""Both auditors take the same sessions: members, certificates, values of parameters, and c of statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import SmpcError
from smpc_dp.logs.audits.log_session import LogSession, parse_session_text
from smpc_dp.wire.canonical_session import session_json
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session import Session, read_session
from smpc_dp_verify.terms import corrupt_of

VECTOR = Path(__file__).resolve().parents[3] / "protocols/gopa/vectors/verifiable-run-honest.json"
SESSION = json.loads(json.loads(json.loads(VECTOR.read_text("utf-8"))["log"][0])["session"])
Change = Callable[[dict[str, Any]], object]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def given(**parameters: Any) -> Change:
    return lambda document: document["parameters"].update(parameters)


def member(index: int, **fields: Any) -> Change:
    return lambda document: document["roster"][index].update(fields)


def other(document: dict[str, Any]) -> None:
    """Give the first two members each other's certificates."""
    one, two = document["roster"][:2]
    one["certificate"], two["certificate"] = two["certificate"], one["certificate"]


def forged(document: dict[str, Any]) -> None:
    """Change the last bit but two of a certificate's signature."""
    text = document["roster"][1]["certificate"]
    document["roster"][1]["certificate"] = text[:-4] + ("A" if text[-4] != "A" else "B") + text[-3:]


AGGREGATOR = next(i for i, each in enumerate(SESSION["roster"]) if each["role"] == "aggregator")
PARTY = 1 if AGGREGATOR == 0 else 0
RIGHT: dict[str, Change] = {
    "as it is": lambda _: None,
    "an address of a party": member(PARTY, address="[::1]:65535"),
    "an address over HTTPS": member(AGGREGATOR, address="wss://hub.example.org/smpc"),
    "a port over HTTPS": member(AGGREGATOR, address="wss://[2001:db8::1]:8443/a/b-1/c~_"),
    "deep parameters": given(deep=nested(31)),
    "many parameters": given(**{f"p{number}": 1 for number in range(990)}),
}
WRONG: dict[str, Change] = {
    "an address without a port": member(PARTY, address="localhost"),
    "a port of 0": member(PARTY, address="localhost:0"),
    "no host": member(PARTY, address=":80"),
    "an address that is no text": member(PARTY, address=7),
    "a party over HTTPS": member(PARTY, address="wss://hub.example.org/smpc"),
    "another scheme": member(AGGREGATOR, address="ws://hub.example.org/smpc"),
    "no path": member(AGGREGATOR, address="wss://hub.example.org/"),
    "a path with a page": member(AGGREGATOR, address="wss://hub.example.org/healthz/x"),
    "a path with a name": member(AGGREGATOR, address=f"wss://hub/{SESSION['roster'][PARTY]['name']}"),
    "a query": member(AGGREGATOR, address="wss://hub.example.org/smpc?x"),
    "a line feed": member(AGGREGATOR, address="wss://hub.example.org/smpc\n"),
    "the port of HTTPS": member(AGGREGATOR, address="wss://hub.example.org:443/smpc"),
    "a port of two forms": member(AGGREGATOR, address="wss://hub.example.org:08443/smpc"),
    "an aggregator without an address": lambda document: document["roster"][AGGREGATOR].pop("address"),
    "certificates of each other": other,
    "a certificate that is not signed": forged,
    "no certificate": member(PARTY, certificate=""),
    "certificate of another spelling": member(PARTY, certificate="AR=="),
    "a server": member(PARTY, role="server"),
    "two aggregators": member(PARTY, role="aggregator"),
    "null": given(epsilon=None),
    "parameters that are too deep": given(deep=nested(33)),
    "too many parameters": given(**{f"p{number}": 1 for number in range(1001)}),
    "no text": given(text="\ud800"),
    "no text as a key": given(**{"\ud800": 1}),
    "another key": lambda document: document.update(other=1),
    "a key of a member": member(PARTY, other=1),
}


def changed(change: Change) -> str:
    document = json.loads(json.dumps(SESSION))
    change(document)
    return session_json(document).decode("ascii")


@pytest.mark.parametrize("case", [*RIGHT, *WRONG])
def test_both_read_the_same_sessions(case: str) -> None:
    text = changed((RIGHT | WRONG)[case])
    if case in RIGHT:
        first, second = parse_session_text(text), read_session(text)
        assert (first.digest, [*first.names]) == (second.digest, second.names)
        return
    with pytest.raises(SmpcError):
        parse_session_text(text)
    with pytest.raises(Refused):
        read_session(text)


@pytest.mark.parametrize(
    ("protocol", "version", "parameters", "corrupt"),
    [
        ("secagg", 1, {}, 3),
        ("gopa", 1, {"corrupt": 0}, 0),
        ("gopa", 2, {"corrupt": 0.99}, 29),
        ("gopa", 3, {"corrupt": 0.99}, 29),
        ("gopa", 4, {"corrupt": 0.99}, 29),
        ("secagg", 2, {}, 3),
        ("secagg", 1, {"corrupt": 0.29999999999999999}, 9),
        ("secagg", 1, {"corrupt": 1}, None),
        ("secagg", 1, {"corrupt": -0.1}, None),
        ("secagg", 1, {"corrupt": True}, None),
        ("secagg", 1, {"corrupt": "0"}, None),
        ("gopa", 1, {"topology": "direct"}, None),
        ("secagg", 3, {}, None),
        ("mpyc", 1, {}, None),
        ("reports", 1, {}, None),
        ("nothing", 1, {}, None),
        ("", 1, {}, None),
        ("gopa", 0, {}, None),
    ],
)
def test_both_have_the_same_quorum_of_a_statistic(
    protocol: str, version: int, parameters: dict[str, Any], corrupt: int | None
) -> None:
    names = [f"party-{number}" for number in range(30)]
    second = Session(bytes(32), protocol, version, parameters, {}, names, "relay", None)
    packed: Any = names
    first = LogSession(protocol, version, parameters, packed, {}, "relay", None, b"", b"")
    if corrupt is None:
        with pytest.raises(SmpcError):
            first.most_corrupt()
        with pytest.raises(Refused):
            corrupt_of(second)
    else:
        assert (first.most_corrupt(), corrupt_of(second)) == (corrupt, corrupt)
