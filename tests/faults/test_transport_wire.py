"""Connections under faults: cuts and reconnects, silence, changed and replayed bytes, ports."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from smpc_dp.errors import LocalError, PeerFault, TimeoutFault
from smpc_dp.transport import framing
from smpc_dp.transport.channel import ChannelClosed

if TYPE_CHECKING:
    from tests.faults.conftest import Ending, Net


async def test_reconnect_after_a_cut(net: Net, ending: Ending) -> None:
    server = await net.listen()
    first = await net.dial("alice", server.address)
    old = await server.channel()
    first.abort()
    assert isinstance(await ending(old), ChannelClosed)
    second = await net.dial("alice", server.address)
    new = await server.channel()
    await second.send(b"back again")
    assert await new.receive() == b"back again"
    assert not old.live


async def test_second_connection_while_the_first_is_live(net: Net) -> None:
    server = await net.listen()
    first = await net.dial("alice", server.address)
    channel = await server.channel()
    with pytest.raises(PeerFault, match="a live connection in our name") as caught:
        await net.dial("alice", server.address)
    assert caught.value.culprit == "agg"
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == ("alice", "alice")
    await first.send(b"still here")
    assert await channel.receive() == b"still here"


async def test_two_connections_in_one_name_at_the_same_time(net: Net) -> None:
    server = await net.listen()
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
    server = await net.listen(net.endpoint("agg", connect_timeout=0.3))
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


async def test_dripping_frame(net: Net, ending: Ending) -> None:
    server = await net.listen(net.endpoint("agg", frame_timeout=0.3))
    raw, channel = await net.welcomed(server)

    async def drip() -> None:
        for octet in framing.HEADER.pack(1000, framing.DATA) + bytes(1000):
            await raw.write(bytes([octet]))
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(2):
        error = await ending(channel)
    dripping.cancel()
    assert isinstance(error, TimeoutFault)
    assert error.missing == {"alice"}
    assert not channel.live


async def test_silent_strangers_do_not_keep_members_out(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.transport.endpoint.GRACE", 0.1)
    server = await net.listen(net.endpoint("agg", connect_timeout=30, max_pending=4))
    strangers = [await net.raw(server.address) for _ in range(12)]
    async with asyncio.timeout(3):
        await net.dial("alice", server.address)
        dropped = await strangers[0].reader.read()
    assert dropped == b""


def flip_last_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


async def test_byte_flipped_on_the_way(net: Net, ending: Ending) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    await mine.send(b"as it was sent")
    assert await theirs.receive() == b"as it was sent"
    proxy.upstream = flip_last_bit
    await mine.send(b"not as it was sent")
    error = await ending(theirs)
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"
    assert "bad record mac" in str(error)


async def test_byte_flipped_on_the_way_back(net: Net, ending: Ending) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    proxy.downstream = flip_last_bit
    await theirs.send(b"not as it was sent")
    error = await ending(mine)
    assert isinstance(error, PeerFault)
    assert error.culprit == "agg"
    assert "bad record mac" in str(error)


async def test_byte_flipped_in_the_handshake(net: Net) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    proxy.downstream = flip_last_bit
    with pytest.raises(PeerFault) as caught:
        await net.dial("alice", proxy.address)
    assert caught.value.culprit == "agg"
    assert server.channels.empty()


async def test_replayed_connection(net: Net, ending: Ending) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    await mine.send(b"once")
    assert await theirs.receive() == b"once"
    mine.abort()
    assert isinstance(await ending(theirs), ChannelClosed)
    replay = await net.raw(server.address)
    await replay.write(bytes(proxy.recorded))
    who, error = await server.refused()
    assert isinstance(error, PeerFault)
    assert (who, error.culprit) == (replay.address, replay.address)
    assert "TLS failed" in str(error)
    assert server.channels.empty()


async def test_replayed_records_on_a_live_connection(net: Net, ending: Ending) -> None:
    server = await net.listen()
    proxy = await net.proxy(server.address)
    mine = await net.dial("alice", proxy.address)
    theirs = await server.channel()
    proxy.upstream = lambda content: content + content
    await mine.send(b"once")
    error = await ending(theirs)
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"
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
