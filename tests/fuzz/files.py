"""Decoders of files, and of what travels in their form: sessions, rosters, keys, ledgers, inputs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from smpc_dp.capabilities.learn.data import read_table
from smpc_dp.engine.phases.last_results import check_contradiction
from smpc_dp.errors import VerificationError
from smpc_dp.identity import certificate
from smpc_dp.identity.address import SCHEME, WebAddress, split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.packed_roster import RosterPacker
from smpc_dp.identity.roster import check_members, entry_of, is_name
from smpc_dp.logs.audits.log_session import parse_session_text
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.gopa.graphs import read_edges
from smpc_dp.session.inputs import read_vector
from smpc_dp.session.refusals import read_evidence
from smpc_dp.session.session_file import (
    check_document,
    load_session,
    parse_session,
    read_member,
    write_session,
)
from tests.fuzz.target import Decoder, Target

VECTORS = Path(__file__).parents[2] / "protocols" / "secagg" / "vectors"
_NAMES = ("alice", "bob", "carol", "hub")
_ALICE, _BOB, _CAROL, _AGGREGATOR = (Identity.from_seed(name, name.encode().ljust(32)) for name in _NAMES)
_MEMBERS = [
    _AGGREGATOR.entry("aggregator", "127.0.0.1:7000"),
    _ALICE.entry(),
    _BOB.entry("party", "[::1]:7002"),
    _CAROL.entry(),
]


@functools.cache
def _folder() -> Path:
    """A folder in memory where there is one: a decoder of files takes millions of them."""
    memory = Path("/dev/shm")  # noqa: S108
    return Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))


def file_of(name: str, content: bytes) -> Path:
    """Write a file, over one of the same name, and return its path."""
    path = _folder() / f"{os.getpid()}-{name}"
    if not path.exists():
        path.touch(0o600)
    path.write_bytes(content)
    return path


def _refusal(content: bytes) -> None:
    """Read a party's evidence against its aggregator, and check it: a changed one convicts nobody."""
    contradictions = json.loads((VECTORS / "contradictions.json").read_bytes())
    evidence = read_evidence(file_of("refusal", content))
    try:
        check_contradiction(bytes.fromhex(contradictions["public_key"]), evidence)
    except VerificationError:
        return
    good = read_evidence(file_of("refusal", _refusal_sample()))
    assert {name: evidence[name] for name in good} == good


@functools.cache
def _refusal_sample() -> bytes:
    """Return the published evidence that convicts."""
    [good, *_] = json.loads((VECTORS / "contradictions.json").read_bytes())["cases"]
    return json.dumps(good["evidence"]).encode()


def _sessions() -> tuple[bytes, ...]:
    texts = []
    tables: list[tuple[str, dict[str, object]]] = [
        ("secagg", {"length": 3, "lower": -1.5, "upper": 2, "precision": 1e-3}),
        ("secagg", {"length": 3, "lower": 0, "upper": 2, "kind": "integer"}),
    ]
    for protocol, parameters in tables:
        path = _folder() / "seed.toml"
        write_session(path, protocol, 2, parameters, _MEMBERS)
        texts.append(path.read_bytes())
    return tuple(texts)


def _session(content: bytes) -> None:
    try:
        session = parse_session(content.decode())
    except UnicodeDecodeError:
        load_session(file_of("session.toml", content))
        raise AssertionError("a session file that is not UTF-8 was read") from None
    again = parse_session_text(session.canonical_json().decode())
    assert again.digest == session.digest


def _canonical(content: bytes) -> bytes:
    """The session in a log's header, read at once and value by value."""
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        return content
    held = parse_session_text(text)
    session = check_document(json.loads(text))
    assert session.digest == held.digest
    return session.canonical_json()


def _member(content: bytes) -> None:
    try:
        entry = json.loads(content)
    except (ValueError, RecursionError):
        return
    member = read_member("roster[0]", entry, [])
    if member is None:
        return
    faults = check_members([member], requires_aggregator=False)
    try:
        RosterPacker().add(member)
    except VerificationError:
        assert faults or member.role == "server"


def _certificate(content: bytes) -> bytes:
    certificate.check(content, "alice", _ALICE.public_key)
    return _ALICE.certificate


def _address(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    is_name(text)
    with contextlib.suppress(ValueError):
        _, port = split_address(text)
        assert 1 <= port <= 65_535
    with contextlib.suppress(ValueError):
        address = WebAddress.parse(f"{SCHEME}{text}")
        assert str(address) == f"{SCHEME}{text}"


def _identity(content: bytes) -> None:
    result = Identity.load(file_of("key", content))
    assert len(result.public_key) == 32


def _identities() -> tuple[bytes, ...]:
    path = _folder() / "seed.key"
    _ALICE.save(path)
    content = path.read_bytes()
    path.unlink()
    return (content,)


def _ledger(content: bytes) -> bytes:
    book = Ledger.open(file_of("ledger", content))
    assert all(entry.number for entry in book.entries())
    return content


def _input(suffix: str) -> Decoder:
    def read(content: bytes) -> None:
        read_vector(file_of(f"input{suffix}", content))

    return read


def _table(content: bytes) -> None:
    assert read_table(file_of("table.csv", content)).ndim == 2


def _table_npy(content: bytes) -> None:
    assert read_table(file_of("table.npy", content)).ndim == 2


def _graph(content: bytes) -> None:
    edges = read_edges(file_of("edges", content), 9)
    assert edges.shape[1:] == (2,) or not edges.size


def targets() -> list[Target]:
    """Return the targets of this file."""
    sessions = _sessions()
    canonical = tuple(parse_session(text.decode()).canonical_json() for text in sessions)
    members = tuple(json.dumps(entry_of(member)).encode() for member in _MEMBERS)
    array = io.BytesIO()
    np.save(array, np.array([1.5, -2.0]))
    table = io.BytesIO()
    np.save(table, np.array([[1, 2], [3, 4]]))
    return [
        Target("session-file", _session, sessions, "text", cost=100),
        Target("session-json", _canonical, canonical, "text", cost=100),
        Target("member", _member, members, "text", cost=30),
        Target("certificate", _certificate, (_ALICE.certificate, _BOB.certificate), cost=20),
        Target("address", _address, (b"127.0.0.1:7000", b"[::1]:7002", b"a.b-c:1"), "text"),
        Target("identity", _identity, _identities(), "text", cost=20),
        Target("ledger", _ledger, (), "text", cost=20),
        Target("input.json", _input(".json"), (b"[1, 2.5, -3]", b"[18446744073709551615]"), "text", cost=5),
        Target("input.csv", _input(".csv"), (b"1, 2.5\n-3 4e5\n",), "text", cost=5),
        Target("input.npy", _input(".npy"), (array.getvalue(),), cost=10),
        Target("table", _table, (b"a,b\n1,2.5\n,-3e4\n",), "text", cost=5),
        Target("table.npy", _table_npy, (table.getvalue(),), cost=10),
        Target("refusal", _refusal, (_refusal_sample(),), "text", cost=10),
        Target("graph", _graph, (b"0 1\n# a comment\n2 8\n",), "text", cost=5),
    ]
