"""A header that is too long to be held is read as one that is held: the same heads, sessions and errors."""

from __future__ import annotations

import contextlib
import io
import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from smpc_dp import files
from smpc_dp.logs import header as long_header
from smpc_dp.logs.audits import log_session
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.audits.log_session import parse_session_text, read_long_session
from smpc_dp.logs.log import Chain, encode_line
from smpc_dp.logs.reader import BadLog, LogReader
from smpc_dp.wire.canonical_session import session_digest
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import RecordedRun, execute, honest, members


@pytest.fixture(params=[5, 1 << 16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Take every header for a long one, and read it by so many bytes."""
    monkeypatch.setattr(long_header, "WHOLE_BYTES", 0)
    monkeypatch.setattr(files, "SPOOL_BLOCK", request.param)
    size: int = request.param
    return size


def log_with(session: str, ran: RecordedRun | None = None) -> bytes:
    ran = ran or honest()
    return b"".join(line + b"\n" for line in ran.log(ran.entries, replace(ran.header, session=session)))


def outcome(log: bytes) -> tuple[Any, ...]:
    report = audit_stream(io.BytesIO(log), threads=1)
    return (
        report.code == 3,
        report.conclusion,
        report.line,
        report.byte,
        report.roster,
        report.parameters,
        report.verdict,
    )


@pytest.mark.parametrize(
    "text", ["{}", "", "\\", '"', '\\"', '"\\\\"\\', 'a\\"\\\\\\\\"b', "\x7f", '["x\\\\y"]' * 9]
)
@pytest.mark.usefixtures("block")
def test_a_long_header_is_the_same(text: str) -> None:
    fields = {"request": 1, "operation": "", "number": 1, "runs": "0" * 64, "before": "0" * 64}
    chain = Chain.begin(session=text, **fields, present=b"", root=b"", run_id="ab" * 32)
    with LogReader(io.BytesIO(encode_line(chain.header) + b"\n")) as reader:
        assert reader.session.long
        assert reader.session.whole() == text
        assert reader.chain.head == chain.head
        assert replace(reader.header, session=text) == chain.header


@pytest.mark.parametrize("text", ["\n", "\x00", "é", "\ud83d\ude00", "a\x1fb"])
@pytest.mark.usefixtures("block")
def test_what_no_session_has_is_read_as_a_whole(text: str) -> None:
    text = text.encode("utf-16", "surrogatepass").decode("utf-16")
    fields = {"request": 1, "operation": "", "number": 1, "runs": "0" * 64, "before": "0" * 64}
    chain = Chain.begin(session=text, **fields, present=b"", root=b"", run_id="ab" * 32)
    with LogReader(io.BytesIO(encode_line(chain.header) + b"\n")) as reader:
        assert not reader.session.long
        assert (reader.header, reader.chain.head) == (chain.header, chain.head)


@pytest.mark.usefixtures("block")
def test_no_byte_of_a_long_header_can_be_changed() -> None:
    line = encode_line(honest().header) + b"\n"
    with LogReader(io.BytesIO(line)) as reader:
        head = reader.chain.head
    chooser = random.Random(5)
    for index in chooser.sample(range(len(line)), 300):
        changed = line[:index] + bytes([line[index] ^ (1 << index % 7)]) + line[index + 1 :]
        # Another log, or none.
        with contextlib.suppress(BadLog), LogReader(io.BytesIO(changed)) as reader:
            assert reader.chain.head != head


@pytest.mark.usefixtures("block")
def test_an_audit_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(line + b"\n" for line in execute({CHEAT: off_by_one}).lines)
    result = outcome(log)
    assert result[0], result[1]
    monkeypatch.undo()
    assert outcome(log) == result


def changed(**fields: Any) -> str:
    document = json.loads(honest().header.session)
    document |= fields
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def with_member(index: int, **fields: Any) -> str:
    roster = json.loads(honest().header.session)["roster"]
    roster[index] = {key: value for key, value in (roster[index] | fields).items() if value is not None}
    return changed(roster=roster)


SESSION = honest().header.session
ROSTER = json.loads(SESSION)["roster"]
WRONG = [
    "",
    "[]",
    "{}",
    "{",
    SESSION + " ",
    SESSION[:-1],
    SESSION.replace(",", ", ", 1),
    SESSION.replace('"party"', '"p\\u0061rty"', 1),
    changed(roster=[]),
    changed(roster={}),
    changed(roster=None),
    changed(roster=[*ROSTER, ROSTER[-1]]),
    changed(roster=[*ROSTER, ROSTER[0]]),
    changed(roster=ROSTER[1:]),
    changed(roster=ROSTER[:1]),
    changed(roster=[*ROSTER, 7]),
    changed(roster=[*ROSTER, {"name": "zed"}]),
    with_member(1, role="server"),
    with_member(1, role="king"),
    with_member(1, name=ROSTER[2]["name"]),
    with_member(1, name="Ann"),
    with_member(1, public_key=ROSTER[2]["public_key"]),
    with_member(1, public_key="00"),
    with_member(1, certificate=ROSTER[2]["certificate"]),
    with_member(1, certificate="?"),
    with_member(1, address=ROSTER[0]["address"]),
    with_member(1, address="nowhere"),
    with_member(1, more=1),
    with_member(0, address=None),
    changed(version=1),
    changed(version=5),
    changed(version=True),
    changed(version=1.0),
    changed(version=None),
    changed(protocol="secagg"),
    changed(protocol=["gopa"]),
    changed(timeouts={"step": 3}),
    changed(timeouts={"stop": 3}),
    changed(parameters={}),
    changed(parameters=[]),
    changed(parameters=json.loads(SESSION)["parameters"] | {"verifiable": False}),
    changed(parameters=json.loads(SESSION)["parameters"] | {"more": None}),
    changed(parameters=json.loads(SESSION)["parameters"] | {"upper": float("nan")}),
    changed(parameters=json.loads(SESSION)["parameters"] | {"long": "x" * (1 << 17)}),
    "[" * 5000,
]


@pytest.mark.parametrize("session", WRONG, ids=range(len(WRONG)))
def test_a_session_that_is_wrong_is_wrong_for_the_same_reason(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with(session)
    result = outcome(log)
    assert not result[0]
    monkeypatch.setattr(long_header, "WHOLE_BYTES", 0)
    assert outcome(log) == result


@pytest.mark.usefixtures("block")
def test_a_long_session_is_the_one_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_session, "VALUE_CHARACTERS", 1 << 12)
    with LogReader(io.BytesIO(log_with(SESSION))) as reader:
        session = read_long_session(reader.session)
    assert session is not None
    held = parse_session_text(SESSION)
    names = (
        "protocol",
        "version",
        "parameters",
        "aggregator",
        "roster_digest",
        "digest",
    )
    for name in names:
        assert getattr(session, name) == getattr(held, name)
    assert session.digest == held.digest == session_digest(SESSION.encode())
    assert [*session.names] == [*held.names] == [member.name for member in members()[1:]]
    assert dict(session.keys) == dict(held.keys)
    for index, name in enumerate(held.names):
        assert session.names.index(name) == index
    for stranger in ("", "a", "zzz", "ann\0", "annn", members()[0].name, 7):
        assert stranger not in session.names
        with pytest.raises(ValueError, match="not among them"):
            session.names.index(stranger)
    with pytest.raises(KeyError):
        session.keys["nobody"]
