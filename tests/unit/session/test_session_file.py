"""Session files: everything checked at once, one digest for all, and what differs between two."""

from __future__ import annotations

import codecs
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from smpc_dp.engine import registry
from smpc_dp.engine.session_protocol import SessionProtocol
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.session.session_file import SessionFile, Timeouts, load_session, parse_session, write_session
from smpc_dp.transport.difference import MAX_DESCRIPTION, DescribedSession, Description, Part

IDENTITIES = {
    name: Identity.from_seed(name, name.encode().ljust(32)) for name in ("alice", "bob", "agg", "dave")
}
MEMBERS = [
    IDENTITIES["agg"].entry("aggregator", "127.0.0.1:7000"),
    IDENTITIES["alice"].entry(),
    IDENTITIES["bob"].entry("party", "[::1]:7002"),
]
PARAMETERS: dict[str, object] = {
    "length": 10,
    "lower": -1.5,
    "label": 'a "b" \\ \u007f ä',
    "list": [1, [2]],
    "t": {"x y": True},
}


def check_dummy(parameters: Mapping[str, object], parties: int) -> tuple[object | None, list[ConfigIssue]]:
    faults = [
        ConfigIssue(key, "unlucky", ConfigCheck.RANGE) for key, value in parameters.items() if value == 13
    ]
    if parties == 4:
        faults.append(ConfigIssue("roster", "four is too many", ConfigCheck.RANGE))
    return (None if faults else ("checked", parties)), faults


@pytest.fixture(autouse=True)
def dummy_protocol(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    dummy = SessionProtocol(name="dummy", versions={1: check_dummy}, topology=lambda _: "two")
    monkeypatch.setitem(sys.modules, "dummy_protocols", SimpleNamespace(PROTOCOLS=(dummy,)))
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, "dummy": "dummy_protocols"})
    registry._built_in.cache_clear()
    yield
    registry._built_in.cache_clear()


@pytest.fixture
def text(tmp_path: Path) -> str:
    write_session(tmp_path / "s.toml", "dummy", 1, PARAMETERS, MEMBERS)
    return (tmp_path / "s.toml").read_text()


def faults_of(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        parse_session(text, "s.toml")
    return [(fault.where, fault.reason) for fault in caught.value.issues]


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    write_session(path, "dummy", 1, PARAMETERS, MEMBERS, Timeouts(connect=5, step=0.5))
    session = load_session(path)
    assert (session.protocol, session.version) == ("dummy", 1)
    assert session.parameters == PARAMETERS
    checked: object = session.checked_parameters
    assert checked == ("checked", 2)
    assert session.timeouts == Timeouts(5.0, 0.5)
    assert list(session.roster) == MEMBERS
    assert len(session.digest) == 32


def test_defaults(text: str) -> None:
    assert parse_session(text).timeouts == Timeouts(300.0, 30.0)


def test_real_protocol_is_checked_by_its_own_checker(tmp_path: Path) -> None:
    parties = [Identity.from_seed(f"p{n}", bytes([n]) * 32).entry() for n in range(1, 9)]
    members = [MEMBERS[0], *parties]
    with pytest.raises(ConfigError) as caught:
        write_session(tmp_path / "s.toml", "secagg", 2, {"length": 10, "lowest": 0.0}, members)
    assert "parameters.lowest" in [fault.where for fault in caught.value.issues]
    assert not (tmp_path / "s.toml").exists()
    parameters = {"length": 10, "lower": 0.0, "upper": 1.0, "precision": 0.001}
    write_session(tmp_path / "s.toml", "secagg", 2, parameters, members)
    assert load_session(tmp_path / "s.toml").checked_parameters is not None
    with pytest.raises(ConfigError, match="no member has the role 'aggregator'"):
        write_session(tmp_path / "s.toml", "secagg", 2, parameters, parties)
    text = (tmp_path / "s.toml").read_text("utf-8").replace("version = 2", "version = 1")
    [(where, reason)] = faults_of(text)
    assert where == "version"
    assert reason == (
        "1 is of an earlier release: logs of it can be audited, no session of it is run; write version = 3 "
        "of 'secagg', when all members have this release"
    )


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (('protocol = "dummy"', 'protocol = ""'), ("protocol", "'' is unknown, the known ones are ")),
        (
            ("version = 1", "version = 0"),
            ("version", "0 is unknown; this release reads version 1 of"),
        ),
        (
            ("version = 1", "version = 9"),
            ("version", "9 is unknown; this release reads version 1 of"),
        ),
    ],
)
def test_an_empty_name_and_a_version_of_0_are_unknown(
    text: str, written: tuple[str, str], fault: tuple[str, str]
) -> None:
    [(where, reason)] = faults_of(text.replace(*written, 1))
    assert where == fault[0]
    assert reason.startswith(fault[1])


def test_digest_is_over_the_canonical_form(text: str) -> None:
    session = parse_session(text)
    rewritten = "# another comment\n" + text.replace("length = 10", "length   =   0xA")
    assert parse_session(rewritten).digest == session.digest
    assert parse_session(text + "[timeouts]\nstep = 1\n").digest == session.digest
    assert json.loads(session.canonical_json()) == session.canonical()
    changed = [
        text.replace("length = 10", "length = 11"),
        text.replace("length = 10", "length = 10.0"),
        text.replace('"[::1]:7002"', '"[::1]:7003"'),
        text.replace('address = "[::1]:7002"\n', ""),
    ]
    digests = {parse_session(other).digest for other in changed} | {session.digest}
    assert len(digests) == len(changed) + 1


def test_digest_depends_on_members_and_order(tmp_path: Path) -> None:
    def digest(members: list[Member]) -> bytes:
        write_session(tmp_path / "s.toml", "dummy", 1, {}, members)
        return load_session(tmp_path / "s.toml").digest

    other_key = Identity.from_seed("bob", bytes(32)).entry("party", "[::1]:7002")
    variants = [MEMBERS, MEMBERS[::-1], MEMBERS[:2], [*MEMBERS[:2], other_key]]
    assert len({digest(members) for members in variants}) == 4


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        ("protocol = \n", "s.toml:1", "Invalid value"),
        ("a = 1\nb = 2\na = 3\n", "s.toml:3", "Cannot overwrite a value"),
        ('protocol = "secagg"\nversion = "', "s.toml:2", "Unterminated string"),
        ("a = " + "[" * 5000, "s.toml", "nested too deeply"),
        ("a = " + "9" * 5000, "s.toml", "too many digits"),
    ],
)
def test_syntax_fault_has_its_line(text: str, where: str, reason: str) -> None:
    result = faults_of(text)
    assert len(result) == 1
    assert result[0][0] == where
    assert reason in result[0][1]


def test_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match=r"s\.toml:2: not UTF-8"):
        load_session(tmp_path / "s.toml")


def test_a_byte_order_mark_is_no_part_of_the_session(tmp_path: Path) -> None:
    write_session(tmp_path / "s.toml", "dummy", 1, {}, MEMBERS)
    content = (tmp_path / "s.toml").read_bytes()
    (tmp_path / "t.toml").write_bytes(codecs.BOM_UTF8 + content)
    assert load_session(tmp_path / "t.toml").digest == load_session(tmp_path / "s.toml").digest
    (tmp_path / "t.toml").write_bytes(content.decode().encode("utf-16"))
    with pytest.raises(ConfigError, match=r"t\.toml: begins with a byte order mark of UTF-16"):
        load_session(tmp_path / "t.toml")


def test_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"none\.toml: cannot read the session file"):
        load_session(tmp_path / "none.toml")
    with pytest.raises(LocalError, match="cannot read the session file"):
        load_session(tmp_path)
    with pytest.raises(LocalError, match="cannot write the session file"):
        write_session(tmp_path / "none" / "s.toml", "dummy", 1, {}, MEMBERS)


def test_empty_file() -> None:
    assert faults_of("") == [(key, "missing") for key in ("protocol", "version", "roster", "parameters")]


@pytest.mark.parametrize(
    ("old", "new", "where", "detail"),
    [
        (
            'protocol = "dummy"',
            'protocol = "dumy"',
            "protocol",
            "'dumy' is unknown, the known ones are dummy 1, gopa 4, gopa 5, learn 4, mpyc 1, "
            "pairwise 1, reports 1, secagg 2, secagg 3",
        ),
        ("version = 1", "version = 2", "version", "2 is unknown"),
        ("version = 1", 'version = "1"', "version", "an integer is needed, not str"),
        ("version = 1", "version = true", "version", "an integer is needed, not bool"),
        ("version = 1", "version = 1\nextra = 1", "extra", "unknown key"),
        ("[parameters]", "[parametres]", "parametres", "unknown key"),
        ("length = 10", "length = 13", "parameters.length", "unlucky"),
        ("length = 10", "length = inf", "parameters.length", "inf is not a finite number"),
        (
            "length = 10",
            "length = 2020-01-01",
            "parameters.length",
            "a date cannot be a parameter: write",
        ),
        ("length = 10", "length = [1, {a = nan}]", "parameters.length[1].a", "nan is not a finite number"),
        ('name = "bob"', 'nome = "bob"', "roster[2].nome", "unknown key"),
        ('name = "bob"', "", "roster[2].name", "missing"),
        ('name = "bob"', 'name = "alice"', "roster[2].name", "the same as in roster[1]"),
        ('name = "bob"', "name = 3", "roster[2].name", "a string is needed, not int"),
        ('role = "aggregator"', 'role = "king"', "roster[0].role", "'king' is none of"),
        ("127.0.0.1:7000", "127.0.0.1", "roster[0].address", "not of the form host:port"),
        (IDENTITIES["bob"].public_key.hex(), "ab", "roster[2].public_key", "not 64 lower-case hex digits"),
        (
            IDENTITIES["bob"].public_key.hex(),
            "AB" * 32,
            "roster[2].public_key",
            "not 64 lower-case hex digits",
        ),
        (
            IDENTITIES["bob"].public_key.hex(),
            "ab" * 32,
            "roster[2].certificate",
            "not the certificate of 'bob'",
        ),
        ('certificate = "', 'certificate = "*', "roster[0].certificate", "not base64"),
    ],
)
def test_fault_has_its_key(text: str, old: str, new: str, where: str, detail: str) -> None:
    assert old in text
    result = faults_of(text.replace(old, new, 1))
    assert any(index == where and detail in reason for index, reason in result), result


@pytest.mark.parametrize(
    ("lines", "where", "reason"),
    [
        ("step = 0", "timeouts.step", "0 is not above 0"),
        ("step = -1", "timeouts.step", "-1 is not above 0"),
        ("connect = nan", "timeouts.connect", "nan is not above 0"),
        ("connect = 1e9", "timeouts.connect", "at most 86400 seconds"),
        ("connect = true", "timeouts.connect", "not a number of seconds"),
        ('connect = "30"', "timeouts.connect", "not a number of seconds"),
        ("wait = 3", "timeouts.wait", "unknown key"),
    ],
)
def test_timeouts(text: str, lines: str, where: str, reason: str) -> None:
    result = faults_of(f"{text}[timeouts]\n{lines}\n")
    assert len(result) == 1
    assert result[0][0] == where
    assert reason in result[0][1]


def test_tables_of_the_wrong_kind() -> None:
    result = faults_of('protocol = "dummy"\nversion = 1\nparameters = 1\ntimeouts = 2\nroster = [1]\n')
    assert result == [
        ("timeouts", "not a table"),
        ("roster[0]", "not a table: write [[roster]]"),
        ("parameters", "a table is needed, not int"),
    ]


def test_number_of_parties_is_checked_by_the_protocol(tmp_path: Path) -> None:
    more = [Identity.from_seed(f"p{n}", bytes([n]) * 32).entry() for n in range(2)]
    with pytest.raises(ConfigError) as caught:
        write_session(tmp_path / "s.toml", "dummy", 1, {}, [*MEMBERS, *more])
    assert [str(fault) for fault in caught.value.issues] == ["roster: four is too many"]


def test_every_fault_is_listed(text: str) -> None:
    broken = text.replace("version = 1", "version = 1\nextra = 1").replace("length = 10", "length = 13")
    broken = broken.replace('name = "bob"', 'name = "Bob"') + "[timeouts]\nstep = 0\n"
    assert [where for where, _ in faults_of(broken)] == [
        "extra",
        "timeouts.step",
        "roster[2].name",
        "parameters.length",
    ]


def test_values_that_a_session_file_cannot_hold(tmp_path: Path) -> None:
    for value in (None, b"bytes", object()):
        with pytest.raises(ConfigError, match=r"parameters\.x\[0\]: a session file cannot hold"):
            write_session(tmp_path / "s.toml", "dummy", 1, {"x": [value]}, MEMBERS)
    with pytest.raises(ConfigError, match="Unicode"):
        write_session(tmp_path / "s.toml", "dummy", 1, {"x": "\ud800"}, MEMBERS)
    assert not (tmp_path / "s.toml").exists()
    with pytest.raises(ConfigError, match="not a finite number"):
        write_session(tmp_path / "s.toml", "dummy", 1, {"x": math.inf}, MEMBERS)


def session_of(tmp_path: Path, members: list[Member], **parameters: object) -> SessionFile:
    write_session(tmp_path / "s.toml", "dummy", 1, parameters, members)
    return load_session(tmp_path / "s.toml")


def difference(mine: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    return DescribedSession(b"", lambda: mine).difference(DescribedSession(b"", lambda: theirs).description())


def test_difference(tmp_path: Path) -> None:
    mine = session_of(tmp_path, MEMBERS, length=10, same=1, kind=1)
    other_bob = msgspec.structs.replace(Identity.from_seed("bob", bytes(32)).entry(), address="b:1")
    theirs = session_of(
        tmp_path, [MEMBERS[0], other_bob, IDENTITIES["dave"].entry()], length=12, same=1, kind=1.0, more="x"
    )
    lines = difference(mine.canonical(), theirs.canonical())
    mine_key, their_key = IDENTITIES["bob"].public_key.hex(), other_bob.public_key.hex()
    assert lines[:6] == [
        "parameters.kind: 1 here, 1.0 there",
        "parameters.length: 10 here, 12 there",
        "parameters.more: 'x' only there",
        "roster: 'alice' only here",
        "roster: 'dave' only there",
        "roster[bob].address: '[::1]:7002' here, 'b:1' there",
    ]
    assert lines[6].startswith("roster[bob].certificate: ")
    assert lines[7].startswith(f"roster[bob].public_key: '{mine_key[:20]}")
    assert f" here, '{their_key[:20]}" in lines[7]
    assert len(lines) == 8
    assert difference(mine.canonical(), mine.canonical()) == []


def test_difference_in_order_only(tmp_path: Path) -> None:
    mine, theirs = session_of(tmp_path, MEMBERS), session_of(tmp_path, MEMBERS[::-1])
    assert difference(mine.canonical(), theirs.canonical()) == ["roster: the members are in another order"]


@pytest.mark.parametrize("key", ["a.b", "x y", "", "\x1b[2J", "x" * 500])
def test_difference_below_any_key(key: str) -> None:
    mine, theirs = ({"parameters": {key: {"c": value}, "a": {"b": {"c": 3}}}} for value in (1, 2))
    [line] = difference(mine, theirs)
    assert line.endswith(".c: 1 here, 2 there")
    assert line.isprintable()
    assert len(line) < 200


def large_session(members: int, **parameters: object) -> dict[str, object]:
    def entry(number: int) -> dict[str, object]:
        return {"name": f"p{number}", "address": f"host{number}:1", "certificate": f"{number:0400}"}

    return {"protocol": "dummy", "parameters": parameters, "roster": [entry(i) for i in range(members)]}


def test_difference_of_large_sessions_is_named_from_kilobytes() -> None:
    fields = {f"f{number}": {"lower": 0, "upper": number} for number in range(600)}
    mine = large_session(1000, fields=fields)
    theirs = large_session(1000, fields={**fields, "f7": {"lower": 0, "upper": 7.0}})
    roster = cast("list[dict[str, object]]", theirs["roster"])
    roster[5]["address"] = "other:1"
    assert len(DescribedSession(b"", lambda: mine).description()) <= MAX_DESCRIPTION < 40_000
    assert difference(mine, mine) == []
    assert difference(mine, theirs) == [
        "parameters.fields.f7.upper: 7 here, another value or none there",
        "roster[p5].address: 'host5:1' here, another value or none there",
    ]
    gone = roster.pop(7)
    assert f"roster: '{gone['name']}' only here" in difference(mine, theirs)
    del roster[5]
    assert difference(theirs, mine)[1:] == [
        "roster: there are other members there, or they are in another order"
    ]


def test_difference_of_sessions_with_little_in_common() -> None:
    mine, theirs = large_session(1000), large_session(2000)
    assert difference(mine, theirs) == [
        "roster: more values differ than can be named (3001 here, 6001 there)"
    ]
    assert difference(mine, large_session(3)) == ["roster: 3001 values here, 10 there"]
    lines = difference(large_session(3), large_session(30))
    assert lines[:2] == ["roster: 'p3' only there", "roster: 'p4' only there"]
    assert lines[20:] == ["and 7 more"]


HOSTILE = "\x1b[2J" * 100


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [("", "", b"")],
        [("x" * 500, HOSTILE, b"1"), (HOSTILE, HOSTILE, b"2")],
        [("roster", HOSTILE, b""), (f"roster[{HOSTILE}]", HOSTILE, b""), ("roster[a].b]", "", b"1")],
        [("roster[alice", HOSTILE, b""), ("roster[alice].name", "x", b""), ("]", "x", b"")],
    ],
)
def test_difference_to_any_description(tmp_path: Path, listed: list[tuple[str, str, bytes]]) -> None:
    mine = DescribedSession(b"", session_of(tmp_path, MEMBERS).canonical)
    part = Part(len(listed), listed, b"")
    lines = mine.difference(msgspec.msgpack.encode(Description(part, part)))
    assert lines
    assert all(line.isprintable() and len(line) < 200 for line in lines)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"{}",
        b"\x91" * 4000,
        msgspec.msgpack.encode([[0, [], b""]]),
        msgspec.msgpack.encode(Description(Part(0, [], bytes(12288)), Part(0, [], b""))) + b"0",
        msgspec.msgpack.encode(Description(Part(0, [], bytes(12287)), Part(0, [], b""))),
        msgspec.msgpack.encode([[0, [["a", "b", "text"]], b""], [0, [], b""]]),
    ],
)
def test_difference_to_bytes_that_are_no_description(encoded: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        DescribedSession(b"", lambda: {"parameters": {}}).difference(encoded)
