"""Rosters in few bytes: what `Roster` takes, with the same digest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from smpc_dp.errors import LocalError, VerificationError
from smpc_dp.files import Records, Spool
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.packed_roster import Names, RosterPacker
from smpc_dp.identity.roster import Member, Roster

PARTIES = [Identity.from_seed(name, name.encode().ljust(32)).entry() for name in ("zoe", "bob", "eve-1", "b")]
RELAY = Identity.from_seed("relay", bytes(32)).entry("aggregator", "relay.example:1")


def packed(members: list[Member]) -> RosterPacker:
    packer = RosterPacker()
    for member in members:
        packer.add(member)
    packer.check()
    return packer


@pytest.mark.parametrize("index", [0, 2, 4])
def test_it_is_the_roster(index: int) -> None:
    members = [*PARTIES[:index], RELAY, *PARTIES[index:]]
    packer, roster = packed(members), Roster(members)
    assert packer.digest == roster.digest
    assert packer.aggregator == "relay"
    assert [*packer.names] == [member.name for member in roster.parties]
    assert dict(packer.keys) == {member.name: member.public_key for member in members}
    assert len(packer.keys) == len(members)
    for name in packer.names:
        assert roster.index(name) == packer.names.index(name) + 1


def with_name(member: Member, name: str) -> Member:
    return Identity.from_seed(name, bytes([len(member.name)]) * 32).entry()


@pytest.mark.parametrize(
    "members",
    [
        [],
        [RELAY],
        PARTIES,
        [RELAY, *PARTIES, RELAY],
        [RELAY, *PARTIES, PARTIES[1]],
        [RELAY, *PARTIES, with_name(PARTIES[0], "zoe")],
        [RELAY, *PARTIES, with_name(PARTIES[0], "relay")],
        [RELAY, *PARTIES, Identity.from_seed("other", b"zoe".ljust(32)).entry()],
        [RELAY, *PARTIES, Identity.from_seed("other", bytes(32)).entry()],
        [RELAY, replace(PARTIES[0], address="relay.example:1")],
        [RELAY, replace(PARTIES[0], certificate=PARTIES[1].certificate)],
        [RELAY, replace(PARTIES[0], role="server", address="a:1")],
    ],
    ids=range(12),
)
def test_what_is_no_roster_is_refused(members: list[Member]) -> None:
    with pytest.raises(VerificationError):
        packed(members)


def test_parts_of_names() -> None:
    names = Names.of(["b", "aa", "a", "c"])
    assert [*names[1:3]] == ["aa", "a"]
    assert names.index("a", 1) == 2
    with pytest.raises(ValueError, match="not among them"):
        names.index("a", 3)
    with pytest.raises(ValueError, match="not among them"):
        names.index("a", 0, 2)


@pytest.mark.parametrize("memory", [0, 1 << 18])
def test_what_is_put_aside_comes_back(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    # 0 would be without a bound: one byte goes to the disk.
    monkeypatch.setattr("smpc_dp.files.SPOOL_MEMORY", max(memory, 1))
    with Spool("a test") as spool:
        spool.add(b"abc")
        spool.write(5, b"xyz")
        assert spool.length == 8
        assert spool.read(0, 100) == b"abc\0\0xyz"
        spool.add(b"!")
        monkeypatch.setattr("smpc_dp.files.SPOOL_BLOCK", 4)
        assert [*spool.blocks()] == [b"abc\0", b"\0xyz", b"!"]
        assert [*spool.blocks(2, 7)] == [b"c\0\0x", b"y"]
    records = Records("a test", 2)
    records[3] = b"xy"
    assert (records[3], records[0], records[9]) == (b"xy", b"\0\0", b"\0\0")
    with pytest.raises(ValueError, match="2 are due"):
        records[0] = b"abc"


def test_a_disk_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.files.SPOOL_MEMORY", 1)
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with Spool("the letters") as spool, pytest.raises(LocalError, match=r"put the letters aside .*No space"):
        spool.add(b"abc")


def refuse(*_: object, **__: object) -> object:
    raise OSError(28, "No space left on device")
