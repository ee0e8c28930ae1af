"""Connections under faults: cuts and reconnects, silence, changed and replayed bytes, ports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from smpc_dp.errors import LocalError, PeerFault, TimeoutFault
from smpc_dp.session.local import free_port
from smpc_dp.transport import framing
from smpc_dp.transport.channel import LOOKS, Channel, ChannelClosed
from smpc_dp.transport.endpoint import dial
from smpc_dp.transport.strangers import Strangers, source_of
from tests.faults.conftest import WAIT

if TYPE_CHECKING:
    from tests.faults.conftest import Net, ProcessOutcome


async def test_reconnect_after_a_cut(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    first = await net.dial("alice", server.address)
    old = await server.channel()
    first.abort()
    assert isinstance(await outcome(old), ChannelClosed)
    second = await net.dial("alice", server.address)
    new = await server.channel()
    await second.send(b"back again")
    assert await new.receive() == b"back again"
    assert not old.live


async def test_second_connection_while_the_first_is_live(net: Net) -> None:
    server = await net.listen()
    first = await net.dial("alice", server.address)
    channel = await server.channel()
    reported = asyncio.Event()
    first.on_twice = reported.set
    with pytest.raises(PeerFault, match=r"this key is used twice.* a live connection in our name") as caught:
        await net.dial("alice", server.address)
    assert caught.value.culprit == "agg"
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == ("alice", "alice")
    assert "this key is used twice" in str(error)
    await reported.wait()
    await first.send(b"still here")
    assert await channel.receive() == b"still here"


async def test_a_connection_that_is_not_read_from_is_alive(net: Net) -> None:
    """Nobody asks for a message at either end, and messages wait: a stolen key evicts nobody."""
    server = await net.listen()
    first = await net.dial("alice", server.address)
    channel = await server.channel()
    for number in range(3):
        await channel.send(bytes([number]) * 1000)
        await first.send(bytes([number]) * 1000)
    with pytest.raises(PeerFault, match="this key is used twice"):
        await net.dial("alice", server.address)
    for number in range(3):
        assert await first.receive() == bytes([number]) * 1000
        assert await channel.receive() == bytes([number]) * 1000


async def test_pings_to_one_member_are_limited_in_rate(net: Net) -> None:
    server = await net.listen()
    await net.dial("alice", server.address)
    with pytest.raises(PeerFault, match="twice"):
        await net.dial("alice", server.address)
    with pytest.raises(TimeoutFault, match="looks after it") as caught:
        await net.dial(net.endpoint("alice", connect_timeout=2.0), server.address)
    assert caught.value.missing == {"agg"}


async def test_a_half_open_connection_is_superseded(
    net: Net, outcome: ProcessOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old end reads nothing and says nothing, its socket is open."""
    monkeypatch.setattr("smpc_dp.transport.channel.PING_SECONDS", 0.3)
    server = await net.listen()
    raw, old = await net.welcomed(server)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    new = await net.dial("alice", server.address)
    channel = await server.channel()
    assert isinstance(await outcome(old), ChannelClosed)
    await new.send(b"back again")
    assert await channel.receive() == b"back again"


async def test_a_half_open_connection_that_is_sent_to_is_superseded(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to it is stuck, and its socket is full."""
    monkeypatch.setattr("smpc_dp.transport.channel.PING_SECONDS", 0.3)
    server = await net.listen(net.endpoint("agg", frame_timeout=60))
    raw, old = await net.welcomed(server)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    sending = asyncio.create_task(old.send(bytes(32 << 20)))
    await asyncio.sleep(0.2)
    new = await net.dial("alice", server.address)
    channel = await server.channel()
    await channel.send(b"welcome back")
    assert await new.receive() == b"welcome back"
    with pytest.raises(ChannelClosed):
        await sending


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let silence last .8 s, with time limits of .4 s for a frame."""
    monkeypatch.setattr("smpc_dp.transport.endpoint.SILENCE_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_dialler_notices_a_connection_that_is_cut_silently(net: Net, outcome: ProcessOutcome) -> None:
    """Its bytes are acknowledged on the way, and nothing comes back."""
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial(net.endpoint("alice", frame_timeout=0.4), proxy.address)
    await server.channel()
    proxy.downstream = proxy.upstream = lambda _: b""
    error = await outcome(mine)
    assert isinstance(error, TimeoutFault)
    assert error.missing == {"agg"}
    assert "it was silent for 0.8 s" in str(error)
    assert not mine.live


@pytest.mark.usefixtures("impatient")
async def test_who_answers_pings_is_not_cut_though_it_reads_and_says_nothing(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More waits for the listener's caller than it reads ahead; the pings behind are answered."""
    answered, enough = [0], asyncio.Event()
    taken = Channel._on_control

    def take(channel: Channel, kind: int) -> None:
        taken(channel, kind)
        answered[0] += kind == framing.PONG
        if answered[0] == 3 * LOOKS:
            enough.set()

    monkeypatch.setattr(Channel, "_on_control", take)
    server = await net.listen()
    mine = await net.dial(net.endpoint("alice", frame_timeout=0.4), server.address)
    channel = await server.channel()
    messages = [bytes([number]) * 40_000 for number in range(2)]
    for message in messages:
        await mine.send(message)
    await asyncio.wait_for(enough.wait(), WAIT)
    assert mine.live
    assert channel.live
    assert [await channel.receive() for _ in messages] == messages
    await channel.send(b"still here")
    assert await mine.receive() == b"still here"


async def test_the_system_ends_connections_that_are_not_acknowledged(net: Net) -> None:
    for frame_timeout, silence in ((1.0, 60), (45.0, 90)):
        ends = await net.pair(*(net.endpoint(name, frame_timeout=frame_timeout) for name in ("alice", "agg")))
        for end in ends:
            sock = end._writer.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * silence
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_slow_connection_is_not_superseded_while_a_message_is_under_way(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pong has to wait for the end of a frame, but bytes come."""
    monkeypatch.setattr("smpc_dp.transport.channel.PING_SECONDS", 0.4)
    server = await net.listen()
    raw, old = await net.welcomed(server)
    size = 30

    async def drip() -> None:
        await raw.write(framing.HEADER.pack(size, framing.DATA))
        for _ in range(size):
            await raw.write(b"x")
            await asyncio.sleep(0.05)
        await raw.write(framing.control_frame(framing.PONG))

    dripping = asyncio.create_task(drip())
    with pytest.raises(PeerFault, match="twice"):
        await net.dial("alice", server.address)
    await dripping
    assert await old.receive() == b"x" * size


async def test_control_frames_come_between_the_frames_of_a_message(net: Net) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    half = framing.MAX_FRAME
    await raw.write(framing.HEADER.pack(2 * half, framing.DATA) + bytes(half))
    await raw.write(framing.control_frame(framing.PING))
    await raw.write(framing.HEADER.pack(half, framing.DATA) + bytes(half))
    assert await channel.receive() == bytes(2 * half)
    assert await raw.reader.readexactly(framing.HEADER.size) == framing.control_frame(framing.PONG)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (framing.control_frame(framing.PONG), "answers a ping that was not sent"),
        (200 * framing.control_frame(framing.PING), "sends control frames"),
        (200 * framing.control_frame(framing.TWICE), "sends control frames"),
        (framing.HEADER.pack(1, framing.PING), "kind 3, length 1"),
    ],
    ids=["pong without a ping", "flood of pings", "flood of warnings", "ping with a length"],
)
async def test_bad_control_frames(net: Net, outcome: ProcessOutcome, frames: bytes, reason: str) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    await raw.write(frames)
    error = await outcome(channel)
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"
    assert reason in str(error)


async def test_a_control_frame_in_the_hello_is_refused(net: Net) -> None:
    server = await net.listen()
    raw = await net.raw(server.address, net.client_context("alice"))
    await raw.write(framing.control_frame(framing.PING))
    who, error = await server.refused()
    assert who == "alice"
    assert isinstance(error, PeerFault)
    assert "sends control frames" in str(error)


async def test_two_connections_in_one_name_at_the_same_time(net: Net) -> None:
    server = await net.listen(net.endpoint("agg", connect_timeout=3.0))
    raws = [await net.raw(server.address, net.client_context("alice")) for _ in range(4)]
    await asyncio.gather(*(raw.greet("alice") for raw in raws))
    for _ in range(3):
        assert (await server.refused())[0] == "alice"
    assert (await server.channel()).live
    assert server.channels.empty()


async def test_silence_during_tls(net: Net) -> None:
    server = await net.listen(net.endpoint("agg", connect_timeout=0.3))
    raw = await net.raw(server.address)
    await raw.write(b"\x16\x03\x01")
    who, error = await server.refused()
    assert isinstance(error, TimeoutFault)
    assert who == raw.address
    assert error.missing == {raw.address}
    assert await raw.reader.read() == b""


async def test_silence_instead_of_the_hello(net: Net) -> None:
    server = await net.listen(net.endpoint("agg", connect_timeout=2.0))
    await net.raw(server.address, net.client_context("alice"))
    who, error = await server.refused()
    assert isinstance(error, TimeoutFault)
    assert (who, error.missing) == ("alice", frozenset({"alice"}))


async def test_silence_instead_of_the_welcome(net: Net) -> None:
    async def listen_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    context = net.endpoint("agg").contexts.server
    silent = await asyncio.start_server(listen_only, "127.0.0.1", 0, ssl=context)
    net.servers.append(silent)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(TimeoutFault) as caught:
        await net.dial(net.endpoint("alice", connect_timeout=0.3), f"127.0.0.1:{port}")
    assert caught.value.missing == {"agg"}


async def test_each_attempt_that_fails_says_why(net: Net) -> None:
    reasons: list[str] = []
    endpoint = net.endpoint("alice", connect_timeout=0.3)
    with pytest.raises(TimeoutFault, match="Connection refused"):
        await dial(endpoint, "agg", f"127.0.0.1:{free_port()}", reasons.append)
    assert set(reasons) == {"Connection refused"}


async def test_dripping_frame(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen(net.endpoint("agg", frame_timeout=0.3))
    raw, channel = await net.welcomed(server)

    async def drip() -> None:
        for octet in framing.HEADER.pack(1000, framing.DATA) + bytes(1000):
            await raw.write(bytes([octet]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    error = await outcome(channel)
    dripping.cancel()
    assert isinstance(error, TimeoutFault)
    assert error.missing == {"alice"}
    assert not channel.live


async def test_silent_strangers_do_not_keep_members_out(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.transport.strangers.GRACE", 0.1)
    monkeypatch.setattr("smpc_dp.transport.listener.HANDSHAKE_SECONDS", 3600)
    server = await net.listen(net.endpoint("agg", connect_timeout=3600, max_pending=4))
    strangers = [await net.raw(server.address) for _ in range(12)]
    await net.dial("alice", server.address)
    dropped = await strangers[0].reader.read()
    assert dropped == b""


async def test_500_idle_connections_do_not_keep_members_out(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that come after them are let in before the strangers' time is over."""
    monkeypatch.setattr("smpc_dp.transport.listener.HANDSHAKE_SECONDS", 3600)
    server = await net.listen(net.endpoint("agg", connect_timeout=3600, max_pending=256))
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            await asyncio.get_running_loop().sock_connect(stranger, ("127.0.0.1", server.listener.port))
        await asyncio.gather(
            *(
                net.dial(net.endpoint(name, connect_timeout=100), server.address)
                for name in ("alice", "bob", "carol")
            )
        )
        assert {(await server.channel()).peer for _ in range(3)} == {"alice", "bob", "carol"}


async def test_members_that_do_not_greet_keep_neither_themselves_nor_others_out(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever holds bob's key shows his certificate, again and again, and says nothing."""
    monkeypatch.setattr("smpc_dp.transport.strangers.GRACE", 0.1)
    server = await net.listen(net.endpoint("agg", connect_timeout=300, max_pending=8))
    for _ in range(20):
        await net.raw(server.address, net.client_context("bob"))
    await net.dial("alice", server.address)
    await net.dial("bob", server.address)


async def test_a_connection_of_another_source_makes_the_most_crowded_one_give_way() -> None:
    strangers: Strangers[int] = Strangers(8, 4)
    dropped = [strangers.admit(number, "10.0.0.1", 0.0) for number in range(6)]
    # The first four are young and have their time; those after them call again.
    assert dropped == [None] * 4 + [4, 5]
    assert [strangers.admit(number, "10.0.0.2", 0.0) for number in range(10, 14)] == [None] * 4
    # All places are taken; a source with none goes before one with four.
    assert strangers.admit(20, "10.0.0.3", 0.1) == 0
    assert strangers.admit(21, "10.0.0.2", 0.5) == 21
    assert strangers.admit(22, "10.0.0.2", 2.0) == 10


def test_sources_of_connections() -> None:
    assert source_of("192.0.2.7") == "192.0.2.7"
    assert source_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert source_of("2001:db8:1:2:3::9") == source_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert source_of("fe80::1%eth0") == "fe80::/64"


def flip_last_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


async def test_byte_flipped_on_the_way(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    await mine.send(b"as it was sent")
    assert await theirs.receive() == b"as it was sent"
    proxy.upstream = flip_last_bit
    await mine.send(b"not as it was sent")
    error = await outcome(theirs)
    # Whoever is on the way did that, and not alice.
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("alice", False)
    assert "bad record mac" in str(error)


async def test_byte_flipped_on_the_way_back(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    proxy.downstream = flip_last_bit
    await theirs.send(b"not as it was sent")
    error = await outcome(mine)
    # Whoever is on the way did that, and not agg.
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("agg", False)
    assert "bad record mac" in str(error)


async def test_byte_flipped_in_the_handshake(net: Net) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    proxy.downstream = flip_last_bit
    with pytest.raises(PeerFault) as caught:
        await net.dial("alice", proxy.address)
    assert caught.value.culprit == proxy.address
    assert server.channels.empty()


async def test_replayed_connection(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    await mine.send(b"once")
    assert await theirs.receive() == b"once"
    mine.abort()
    assert isinstance(await outcome(theirs), ChannelClosed)
    replay = await net.raw(server.address)
    await replay.write(bytes(proxy.recorded))
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == (replay.address, replay.address)
    assert "TLS failed" in str(error)
    assert server.channels.empty()


async def test_replayed_records_on_a_live_connection(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    proxy.upstream = lambda content: content + content
    await mine.send(b"once")
    error = await outcome(theirs)
    # Whoever is on the way did that, and not alice.
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("alice", False)
    assert "bad record mac" in str(error)
    assert theirs.bytes_received <= len(b"once")


async def test_nobody_answers(net: Net) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(TimeoutFault) as caught:
        await net.dial(net.endpoint("alice", connect_timeout=0.3), address)
    assert caught.value.missing == {"agg"}
    assert address in str(caught.value)


async def test_dial_waits_for_the_listener(net: Net) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dialling = asyncio.create_task(net.dial("alice", f"127.0.0.1:{port}"))
    await asyncio.sleep(0.2)
    server = await net.listen(port=port)
    assert (await dialling).peer == "agg"
    assert (await server.channel()).peer == "alice"


async def test_port_in_use(net: Net) -> None:
    server = await net.listen()
    with pytest.raises(LocalError, match=f"127.0.0.1:{server.listener.port}: the port is in use"):
        await net.listen(port=server.listener.port)


async def test_closed_listener_lets_channels_live(net: Net) -> None:
    server = await net.listen()
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    await server.listener.close()
    await mine.send(b"still here")
    assert await theirs.receive() == b"still here"
    with pytest.raises(TimeoutFault):
        await net.dial(net.endpoint("bob", connect_timeout=0.2), server.address)
