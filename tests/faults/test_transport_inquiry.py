"""Inquiries: who is told what by a listener, and that no connection and no session notices."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from smpc_dp.errors import Check, ConfigError, PeerFault
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import handshake
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.difference import DescribedSession
from smpc_dp.transport.inquiry import connect, find_addresses, secure
from tests.faults.conftest import SESSION, digest_of

if TYPE_CHECKING:
    from smpc_dp.transport.endpoint import Endpoint
    from tests.faults.conftest import Net, Server

OTHER = {**SESSION, "parameters": {"length": 11}}


async def opened(net: Net, endpoint: Endpoint, server: Server, peer: str = "agg") -> Channel:
    addresses = await find_addresses("127.0.0.1", server.listener.port)
    channel = await secure(endpoint, peer, await connect(addresses))
    net.opened.append(channel)
    return channel


async def inquire(
    net: Net, endpoint: Endpoint, server: Server
) -> tuple[handshake.Answer, ConfigError | PeerFault | None]:
    channel = await opened(net, endpoint, server)
    answer, error = await handshake.inquire(channel, endpoint.identity.name, endpoint.described)
    assert error is None or isinstance(error, ConfigError | PeerFault)
    # The listener ends the connection itself.
    with pytest.raises(ChannelClosed) as closed:
        await channel.receive()
    assert closed.value.clean
    return answer, error


async def test_an_inquiry_tells_digest_clock_and_connection_and_opens_no_channel(net: Net) -> None:
    server = await net.listen()
    before = round(1000 * time.time())
    answer, error = await inquire(net, net.endpoint("alice"), server)
    assert error is None
    assert before <= answer.clock <= round(1000 * time.time())
    assert answer == handshake.Answer("agg", digest_of(SESSION), answer.clock, is_connected=False)
    assert server.channels.empty()
    assert server.refusals.empty()
    # Who inquires is not there: another connection is the first of its name.
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    answer, _ = await inquire(net, net.endpoint("alice"), server)
    assert answer.is_connected
    bob, _ = await inquire(net, net.endpoint("bob"), server)
    assert not bob.is_connected
    await theirs.send(b"still here")
    assert await mine.receive() == b"still here"


async def test_inquiries_neither_ping_nor_warn_nor_cut_the_connection_of_the_same_member(net: Net) -> None:
    server = await net.listen()
    raw, theirs = await net.welcomed(server)
    twice: list[bool] = []
    theirs.on_twice = lambda: twice.append(True)
    for _ in range(3):
        answer, _ = await inquire(net, net.endpoint("alice"), server)
        assert answer.is_connected
    # A ping or a warning would be the next bytes that the raw client reads.
    await theirs.send(b"first")
    assert await raw.read_message() == b"first"
    assert theirs.live
    assert not twice
    assert server.refusals.empty()


async def test_an_inquiry_into_another_session_is_told_both_digests_and_what_differs(net: Net) -> None:
    server = await net.listen()
    answer, error = await inquire(net, net.endpoint("alice", session=OTHER), server)
    assert answer.session_digest == digest_of(SESSION)
    assert isinstance(error, ConfigError)
    assert "parameters.length: 11 here, 10 there" in str(error)
    who, refused = await server.refused()
    assert who == "alice"
    assert "parameters.length: 10 here, 11 there" in str(refused)
    assert server.channels.empty()


async def test_a_member_may_inquire_of_its_own_listener_and_gets_no_channel(net: Net) -> None:
    server = await net.listen()
    answer, error = await inquire(net, net.endpoint("agg"), server)
    assert (answer.name, error) == ("agg", None)
    assert server.refusals.empty()
    with pytest.raises(PeerFault, match="our certificate is another member's"):
        await net.dial("agg", server.address)


@pytest.mark.parametrize(
    ("changes", "reason", "seen"),
    [
        ({"name": "bob"}, "name", "claims to be 'bob'"),
        ({"to": "bob"}, "addressee", "wants to reach 'bob'"),
        ({"version": 4}, "protocol", "version 4"),
    ],
)
async def test_a_wrong_inquiry_is_refused_as_a_wrong_greeting(
    net: Net, changes: dict[str, object], reason: str, seen: str
) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    inquiry = handshake.Inquiry(handshake.PROTOCOL, handshake.VERSION, "alice", "agg", digest_of(SESSION))
    await raw.write_message(msgspec.msgpack.encode(msgspec.structs.replace(inquiry, **changes)))
    assert msgspec.msgpack.decode(await raw.read_message(), type=handshake.Refusal).reason == reason
    who, error = await server.refused()
    assert who == "alice"
    assert seen in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        handshake.Welcome("agg", digest_of(SESSION)),
        handshake.Answer("bob", digest_of(SESSION), 0, is_connected=False),
        ["answer", "agg", digest_of(SESSION), -1, False],
        ["answer", "agg", digest_of(SESSION), handshake.MAX_CLOCK + 1, False],
        ["answer", "agg", digest_of(SESSION), 0.5, False],
        b"no message",
    ],
    ids=["welcome", "another-name", "before-1970", "after-9999", "no-integer", "junk"],
)
async def test_an_answer_that_is_none_is_a_fault_of_the_listener(answer: object) -> None:
    class Link:
        peer = "agg"
        max_message = 0

        async def send(self, *_buffers: bytes) -> None:
            pass

        async def receive(self) -> bytes:
            return answer if isinstance(answer, bytes) else msgspec.msgpack.encode(answer)

        async def aside(self, work: object) -> object:
            raise AssertionError(work)

    described = DescribedSession(digest_of(SESSION), lambda: SESSION)
    with pytest.raises(PeerFault) as caught:
        await handshake.inquire(Link(), "alice", described)  # type: ignore[arg-type]
    assert caught.value.culprit == "agg"
    assert caught.value.check in (Check.MALFORMED, Check.BAD_HELLO)


async def test_another_member_that_answers_is_named_before_anything_is_said(net: Net) -> None:
    members = [
        net.identities["bob"].entry("party", "127.0.0.1:7001") if member.name == "bob" else member
        for member in net.members
    ]
    server = await net.listen(net.endpoint("bob"))
    with pytest.raises(PeerFault, match="'bob' answers there") as caught:
        await opened(net, net.endpoint("alice", roster=Roster(members)), server)
    assert caught.value.check is Check.OTHER_MEMBER


async def test_a_stranger_cannot_inquire(net: Net) -> None:
    mallory = Identity.generate("mallory")
    server = await net.listen()
    endpoint = net.endpoint(mallory, roster=Roster([mallory.entry(), *net.members]))
    channel = await opened(net, endpoint, server)
    with pytest.raises(ChannelClosed):
        await asyncio.wait_for(handshake.inquire(channel, "mallory", endpoint.described), 60.0)
    _, error = await server.refused()
    assert "certificate" in str(error)
