"""Rosters: order, look-up, and every fault at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.identity.address import WebAddress, check_address, split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member, Roster, check_members

IDENTITIES = {
    name: Identity.from_seed(name, name.encode().ljust(32)) for name in ("zoe", "bob", "agg", "eve")
}


def members() -> list[Member]:
    return [
        IDENTITIES["zoe"].entry("party", "127.0.0.1:7001"),
        IDENTITIES["agg"].entry("aggregator", "127.0.0.1:7000"),
        IDENTITIES["bob"].entry(),
    ]


def faults_of(listed: list[Member], **options: bool) -> list[tuple[str, str]]:
    roster, faults = Roster.checked(listed, **options)
    assert roster is None
    return [(fault.where, fault.reason) for fault in faults]


def test_order_and_look_up() -> None:
    roster = Roster(members())
    assert [member.name for member in roster] == ["zoe", "agg", "bob"]
    assert [member.name for member in roster.parties] == ["zoe", "bob"]
    assert roster.aggregator is not None
    assert roster.aggregator.name == "agg"
    assert (roster.index("zoe"), roster.index("bob")) == (1, 2)
    assert (roster.name_of(1), roster.name_of(2)) == ("zoe", "bob")
    assert roster.member("agg") == members()[1]
    assert ("agg" in roster, "eve" in roster, len(roster)) == (True, False, 3)
    assert roster.certificates == tuple(member.certificate for member in members())


def test_look_up_of_nobody() -> None:
    roster = Roster(members())
    with pytest.raises(ConfigError, match="nobody is called 'eve'"):
        roster.member("eve")
    with pytest.raises(ConfigError, match="no party is called 'agg'"):
        roster.index("agg")
    for index in (0, 3, -1):
        with pytest.raises(ConfigError, match=f"no party has the number {index}"):
            roster.name_of(index)


def test_digest_depends_on_everything() -> None:
    base = members()
    variants = [
        base,
        [base[1], base[0], base[2]],
        [*base, IDENTITIES["eve"].entry()],
        [msgspec.structs.replace(base[0], address="127.0.0.1:7002"), *base[1:]],
        [msgspec.structs.replace(base[0], address=None), *base[1:]],
        [Identity.from_seed("zoe", bytes(32)).entry("party", "127.0.0.1:7001"), *base[1:]],
    ]
    assert len({Roster(variant).digest for variant in variants}) == len(variants)
    assert Roster(members()).digest == Roster(base).digest
    assert Roster(members()) == Roster(base)


@pytest.mark.parametrize(
    ("changes", "where", "reason"),
    [
        ({"name": "Zoe"}, "roster[0].name", "'Zoe' is not 1 to 63"),
        ({"role": "king"}, "roster[0].role", "none of party, aggregator, server"),
        ({"address": "nowhere"}, "roster[0].address", "not of the form host:port"),
        ({"public_key": bytes(31)}, "roster[0].public_key", "32 bytes, not 31"),
        (
            {"public_key": IDENTITIES["eve"].public_key},
            "roster[0].certificate",
            "not the certificate of 'zoe'",
        ),
        (
            {"certificate": IDENTITIES["eve"].certificate},
            "roster[0].certificate",
            "not the certificate of 'zoe'",
        ),
        ({"certificate": b""}, "roster[0].certificate", "not the certificate of 'zoe'"),
    ],
)
def test_fault_of_one_member(changes: dict[str, Any], where: str, reason: str) -> None:
    listed = members()
    listed[0] = msgspec.structs.replace(listed[0], **changes)
    result = faults_of(listed)
    assert [index for index, _ in result] == [where]
    assert reason in result[0][1]


def test_every_fault_is_listed() -> None:
    base = members()
    listed = [
        base[0],
        msgspec.structs.replace(base[0], certificate=b"x"),
        msgspec.structs.replace(base[2], name="BOB", address="127.0.0.1:99999"),
    ]
    assert [where for where, _ in faults_of(listed)] == [
        "roster[1].certificate",
        "roster[1].name",
        "roster[1].public_key",
        "roster[1].address",
        "roster[2].name",
        "roster[2].address",
        "roster",
    ]


def test_same_key_under_two_names() -> None:
    twin = Identity.from_seed("twin", b"zoe".ljust(32))
    assert faults_of([*members(), twin.entry()]) == [("roster[3].public_key", "the same as in roster[0]")]


def test_number_of_aggregators() -> None:
    base = members()
    assert faults_of([base[0], base[2]]) == [("roster", "no member has the role 'aggregator'")]
    assert Roster([base[0], base[2]], requires_aggregator=False).aggregator is None
    second = IDENTITIES["eve"].entry("aggregator", "127.0.0.1:7009")
    for needed in (True, False):
        result = faults_of([*base, second], requires_aggregator=needed)
        assert result == [("roster", "one aggregator at most, not 2: agg, eve")]
    assert faults_of([base[1]]) == [("roster", "no member has the role 'party'")]
    assert len(faults_of([])) == 2
    silent = msgspec.structs.replace(base[1], address=None)
    assert faults_of([base[0], silent]) == [
        ("roster[1].address", "the aggregator needs an address, host:port")
    ]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("a.example:65535", ("a.example", 65535)),
        ("[::1]:7000", ("::1", 7000)),
        ("my_host-1:80", ("my_host-1", 80)),
    ],
)
def test_good_address(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "host",
        ":80",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:８０",
        "h ost:80",
        "::1:80",
        "host:80\n",
        "-h:80",
    ],
)
def test_bad_address(address: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        split_address(address)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("wss://hub.example.org/smpc", ("hub.example.org", 443, "/smpc")),
        ("wss://192.0.2.7:8443/a/b-1/c~_", ("192.0.2.7", 8443, "/a/b-1/c~_")),
        ("wss://[2001:db8::1]/x", ("2001:db8::1", 443, "/x")),
        ("wss://[2001:db8::1]:444/x", ("2001:db8::1", 444, "/x")),
    ],
)
def test_good_address_over_https(address: str, expected: tuple[str, int, str]) -> None:
    parsed = WebAddress.parse(address)
    assert parsed == expected
    assert str(parsed) == address


@pytest.mark.parametrize(
    "address",
    [
        "ws://hub/smpc",
        "WSS://hub/smpc",
        "wss://hub",
        "wss://hub/",
        "wss://hub//smpc",
        "wss://hub/smpc/",
        "wss://hub/smpc?x=1",
        "wss://hub/smpc#x",
        "wss://hub/sm%70c",
        "wss://hub/../smpc",
        "wss://name:word@hub/smpc",
        "wss://hub:443/smpc",
        "wss://hub:08443/smpc",
        "wss://hub:0/smpc",
        "wss://hub:/smpc",
        "wss:///smpc",
        "wss://hub/healthz",
        "wss://hub/board/x",
        "wss://hub/a/b/c/d/e/f/g/h/i",
        "wss://hub/" + "a" * 65,
        "wss://hub/smpc\n",
    ],
)
def test_bad_address_over_https(address: str) -> None:
    with pytest.raises(ValueError, match=r"'"):
        WebAddress.parse(address)


def test_only_an_aggregator_has_an_address_over_https() -> None:
    check_address("wss://hub/smpc", "aggregator")
    for role in ("party", "server"):
        with pytest.raises(ValueError, match=f"is for an aggregator: a {role} is reached at host:port"):
            check_address("wss://hub/smpc", role)


def test_the_path_of_an_address_names_nobody() -> None:
    members = [
        Identity.generate("alice").entry(),
        Identity.generate("hub").entry("aggregator", "wss://x/a/alice/hub"),
    ]
    issues = [str(issue) for issue in check_members(members)]
    assert [issue.split("'")[1] for issue in issues] == ["alice", "hub"]
    members[1] = Identity.generate("hub").entry("aggregator", "wss://alice.example.org/alice-1")
    assert not check_members(members)
