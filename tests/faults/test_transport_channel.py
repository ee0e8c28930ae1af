"""Channels under faults: bad frames, cuts, slow and silent peers, changed and replayed bytes."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smpc_dp.errors import ConfigError, LocalError, PeerFault, TimeoutFault
from smpc_dp.transport import framing
from smpc_dp.transport.channel import Channel, ChannelClosed
from smpc_dp.transport.endpoint import dial
from smpc_dp.transport.spool import SpoolFolder

if TYPE_CHECKING:
    from tests.faults.conftest import Net, ProcessOutcome, Raw, Server

MIB = 1 << 20
WAIT = 60.0

Task = asyncio.Task[bytes]


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7])
async def test_messages_of_every_size(net: Net, size: int) -> None:
    mine, theirs = await net.pair()
    message = os.urandom(size)
    for sender, receiver in ((mine, theirs), (theirs, mine)):
        _, got = await asyncio.gather(
            sender.send(message[: size // 3], memoryview(message)[size // 3 :]), receiver.receive()
        )
        assert got == message
        assert (sender.bytes_sent, receiver.bytes_received) == (size, size)


async def test_connections_of_a_loop_read_into_one_buffer(net: Net) -> None:
    """Messages of several connections at once come whole, and no connection keeps a buffer of its own."""
    server, sent, channels = await net.listen(), [os.urandom(3 * MIB) for _ in range(3)], []
    for name in ("alice", "bob", "carol"):
        channels.append((await net.dial(name, server.address), await server.channel()))
    ends = [end for both in channels for end in both]
    buffers = {id(end._writer.transport._ssl_protocol._ssl_buffer) for end in ends}  # type: ignore[attr-defined]
    assert len(buffers) == 1
    calls = []
    for (mine, theirs), message in zip(channels, sent, strict=True):
        calls += [mine.send(message), theirs.send(message[::-1]), mine.receive(), theirs.receive()]
    received = [got for got in await asyncio.gather(*calls) if got is not None]
    assert received == [got for message in sent for got in (message[::-1], message)]


async def test_messages_in_order_from_many_senders(net: Net) -> None:
    mine, theirs = await net.pair()
    sent = [bytes([number]) * (300_000 + number) for number in range(12)]
    await asyncio.gather(*(mine.send(message) for message in sent), receive_all(theirs, sent))


async def receive_all(channel: Channel, expected: list[bytes]) -> None:
    for message in expected:
        assert await channel.receive() == message


async def test_large_message_within_bounded_memory(net: Net) -> None:
    mine, theirs = await net.pair()
    message = os.urandom(20 * MIB)
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        _, got = await asyncio.gather(mine.send(message), theirs.receive())
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert got == message
    # Once the message itself, the growth of its buffer, and the buffers of both transports.
    assert peak < 20 * MIB * 1.3 + 6 * MIB


async def test_nothing_is_allocated_for_an_announced_length(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen(net.endpoint("agg", frame_timeout=0.3))
    raw, channel = await net.welcomed(server)
    await raw.write(framing.HEADER.pack(60 * MIB, framing.DATA) + b"only this")
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        error = await outcome(channel)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert isinstance(error, TimeoutFault)
    assert peak < MIB


async def test_message_above_the_limit_is_not_sent(net: Net) -> None:
    mine, theirs = await net.pair(net.endpoint("alice", max_message=1000))
    with pytest.raises(ConfigError, match="1001 bytes to 'agg' is above the limit 1000"):
        await mine.send(bytes(1001))
    await mine.send(bytes(1000))
    assert await theirs.receive() == bytes(1000)


async def test_what_is_received_may_have_a_lower_limit_than_what_is_sent(net: Net) -> None:
    mine, theirs = await net.pair(net.endpoint("alice"))
    theirs.max_received = 1000
    await theirs.send(bytes(5000))
    assert await mine.receive() == bytes(5000)
    await mine.send(bytes(1000))
    await mine.send(bytes(1001))
    assert await theirs.receive() == bytes(1000)
    with pytest.raises(PeerFault, match="1001 bytes, the limit is 1000"):
        await theirs.receive()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (framing.HEADER.pack(1001, framing.DATA), "1001 bytes, the limit is 1000"),
        (framing.HEADER.pack(0xFFFFFFFF, framing.DATA), "the limit is 1000"),
        (framing.HEADER.pack(10, 7), "kind 7, length 10"),
        (framing.HEADER.pack(10, framing.BYE), "kind 2, length 10"),
        (b"\xff" * 64, "kind 255"),
    ],
    ids=["oversized message", "largest length", "unknown kind", "bye with a length", "garbage"],
)
async def test_bad_header(net: Net, outcome: ProcessOutcome, content: bytes, reason: str) -> None:
    server = await net.listen(net.endpoint("agg", max_message=1000))
    raw, channel = await net.welcomed(server)
    await raw.write(content)
    error = await outcome(channel)
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"
    assert reason in str(error)
    assert not channel.live
    with pytest.raises(PeerFault):
        await channel.receive()


@pytest.mark.parametrize(
    "header",
    [
        framing.HEADER.pack(MIB + 1, framing.DATA),
        framing.HEADER.pack(MIB - 1, framing.DATA),
        framing.HEADER.pack(0, framing.BYE),
    ],
    ids=["oversized frame", "undersized frame", "bye in a message"],
)
async def test_bad_header_inside_a_message(net: Net, outcome: ProcessOutcome, header: bytes) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    reading = asyncio.create_task(outcome(channel))
    await raw.write(framing.HEADER.pack(2 * MIB, framing.DATA) + bytes(MIB) + header)
    error = await reading
    assert isinstance(error, PeerFault)
    assert error.culprit == "alice"
    assert f"where {MIB} bytes of a message were to come" in str(error)


@pytest.mark.parametrize("content", [b"\x00", framing.HEADER.pack(10, framing.DATA) + b"12345"])
async def test_truncated_frame(net: Net, outcome: ProcessOutcome, content: bytes) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    await raw.write(content)
    raw.writer.close()
    error = await outcome(channel)
    # Anybody on the way may have cut it.
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("alice", False)
    assert "ended inside a frame" in str(error)


async def test_clean_close(net: Net, outcome: ProcessOutcome) -> None:
    mine, theirs = await net.pair()
    await mine.send(b"last words")
    _, error = await asyncio.gather(mine.close(), outcome(theirs))
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("alice", True)
    for channel in (mine, theirs):
        assert not channel.live
        with pytest.raises(ChannelClosed):
            await channel.send(b"too late")


async def test_both_sides_close_at_once(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 3600)
    mine, theirs = await net.pair()
    await mine.send(bytes(MIB))
    await asyncio.gather(mine.close(), theirs.close())


async def test_close_does_not_destroy_the_last_message(net: Net, outcome: ProcessOutcome) -> None:
    mine, theirs = await net.pair()
    # More than the buffers of both ends hold: it is under way, unread, while the other closes.
    sending = asyncio.create_task(theirs.send(bytes(32 * MIB)))
    await asyncio.sleep(0.2)
    await mine.send(b"last words")
    closing = asyncio.create_task(mine.close())
    await asyncio.sleep(0.2)
    assert await theirs.receive() == b"last words"
    error = await outcome(theirs)
    assert isinstance(error, ChannelClosed)
    assert error.clean
    await closing
    await asyncio.gather(sending, return_exceptions=True)


@asynccontextmanager
async def busy_peer(net: Net, frame_timeout: float) -> AsyncIterator[tuple[Channel, Task, threading.Event]]:
    """Yield a channel to alice, the task that gets her message, and the event that she reads after."""
    free = threading.Event()
    server = await net.listen(net.endpoint("agg", frame_timeout=frame_timeout))

    async def receive() -> bytes:
        channel = await dial(net.endpoint("alice"), "agg", server.address)
        await channel.send(b"ready")
        free.wait()
        try:
            return bytes(await channel.receive())
        finally:
            channel.abort()

    alice = asyncio.create_task(asyncio.to_thread(asyncio.run, receive()))
    channel = await server.channel()
    assert await channel.receive() == b"ready"
    try:
        yield channel, alice, free
    finally:
        free.set()
        await asyncio.gather(alice, return_exceptions=True)


# The last one leaves a part in this process: the system has no room for it.
@pytest.mark.parametrize("size", [400_000, 4_300_000])
async def test_close_waits_until_a_busy_peer_has_the_last_message(
    net: Net, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.1)
    async with busy_peer(net, frame_timeout=WAIT) as (channel, alice, free):
        await channel.send(bytes(size))
        asyncio.get_running_loop().call_later(1.0, free.set)
        await channel.close()
        assert await alice == bytes(size)


@pytest.mark.parametrize("size", [300_000, 400_000, 800_000, 2_000_000])
async def test_busy_peer_gets_all_that_came_before_the_end(
    net: Net, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.1)

    async def nothing(_channel: Channel) -> None:
        """Leave the rest to the system."""

    monkeypatch.setattr(Channel, "_until_taken", nothing)
    async with busy_peer(net, frame_timeout=WAIT) as (channel, alice, free):
        await channel.send(bytes(size))
        await channel.close()
        free.set()
        assert await alice == bytes(size)


async def test_close_towards_a_peer_that_takes_nothing_ends(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.1)
    async with busy_peer(net, frame_timeout=0.2) as (channel, _, _):
        await channel.send(bytes(400_000))
        async with asyncio.timeout(WAIT):
            await channel.close()


async def test_close_towards_a_silent_peer_ends(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.transport.channel.CLOSE_SECONDS", 0.2)
    mine, _ = await net.pair()
    await mine.close()


async def test_cut_is_told_from_a_close(net: Net, outcome: ProcessOutcome) -> None:
    mine, theirs = await net.pair()
    mine.abort()
    error = await outcome(theirs)
    assert isinstance(error, ChannelClosed)
    assert (error.peer, error.clean) == ("alice", False)
    assert "alice: the channel was cut" in str(error)


async def test_reset_is_a_cut(net: Net, outcome: ProcessOutcome) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    sock = raw.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.writer.transport.abort()
    error = await outcome(channel)
    assert isinstance(error, ChannelClosed)
    assert not error.clean


async def test_peer_that_does_not_read(net: Net) -> None:
    server = await net.listen(net.endpoint("agg", frame_timeout=0.3))
    raw, channel = await net.welcomed(server)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    with pytest.raises(TimeoutFault, match="did not read") as caught:
        await channel.send(bytes(60 * MIB))
    assert caught.value.missing == {"alice"}
    assert not channel.live


async def test_cancelled_receive_between_messages_loses_nothing(net: Net) -> None:
    mine, theirs = await net.pair()
    waiting = asyncio.create_task(theirs.receive())
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await mine.send(b"whole")
    assert await theirs.receive() == b"whole"


async def test_cancelled_receive_inside_a_message_loses_nothing(net: Net) -> None:
    server = await net.listen()
    raw, channel = await net.welcomed(server)
    await raw.write(framing.HEADER.pack(10, framing.DATA) + b"12345")
    waiting = asyncio.create_task(channel.receive())
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await raw.write(b"67890")
    assert await channel.receive() == b"1234567890"


@asynccontextmanager
async def held(budget: framing.InflightBudget, wanted: int) -> AsyncIterator[None]:
    amount = await budget.take(wanted)
    try:
        yield
    finally:
        budget.give_back(amount)


async def test_budget_is_first_come_first_served() -> None:
    budget = framing.InflightBudget(10)
    order: list[str] = []

    async def hold(name: str, amount: int, until: asyncio.Event) -> None:
        async with held(budget, amount):
            order.append(name)
            await until.wait()

    first_over, rest_over = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(hold("first", 6, first_over))
    await asyncio.sleep(0)
    large = asyncio.create_task(hold("larger than all", 99, rest_over))
    await asyncio.sleep(0)
    small = asyncio.create_task(hold("small", 1, rest_over))
    await asyncio.sleep(0.01)
    assert order == ["first"]
    first_over.set()
    await first
    await asyncio.sleep(0.01)
    assert order == ["first", "larger than all"]
    large.cancel()
    await asyncio.sleep(0.01)
    assert order == ["first", "larger than all", "small"]
    rest_over.set()
    await small
    async with held(budget, 10):
        pass


async def test_cancelled_waiter_gives_its_place_back() -> None:
    budget = framing.InflightBudget(10)
    async with held(budget, 10):
        waiting = [asyncio.create_task(budget.take(10)) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with held(budget, 10):
        pass


async def test_cancelled_in_the_moment_of_admission() -> None:
    budget = framing.InflightBudget(10)
    async with held(budget, 10):
        first, second = (asyncio.create_task(budget.take(amount)) for amount in (9, 10))
        await asyncio.sleep(0.01)
    # `first` has been admitted, and has not run since.
    first.cancel()
    await second
    assert first.cancelled()


async def test_cancelled_before_the_budget_is_given_back() -> None:
    budget = framing.InflightBudget(10)
    async with held(budget, 10):
        waiting = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0.01)
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    async with held(budget, 10):
        pass


@pytest.fixture(params=["memory", "folder"])
def spools(request: pytest.FixtureRequest, tmp_path: Path) -> SpoolFolder | None:
    """Return the folder where large messages are stored while they arrive; None: they are in memory."""
    return SpoolFolder(str(tmp_path)) if request.param == "folder" else None


async def test_large_messages_share_the_budget(
    net: Net, spools: SpoolFolder | None, outcome: ProcessOutcome
) -> None:
    endpoint = net.endpoint("agg")
    object.__setattr__(endpoint, "budget", framing.InflightBudget(3 * MIB, spools=spools))
    server = await net.listen(endpoint)
    raw, stalled = await net.welcomed(server, "bob")
    await raw.write(framing.HEADER.pack(3 * MIB, framing.DATA) + bytes(MIB))
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    holding = asyncio.create_task(outcome(stalled))
    await asyncio.sleep(0.2)
    sending = asyncio.create_task(mine.send(bytes(2 * MIB)))
    receiving = asyncio.create_task(theirs.receive())
    await asyncio.sleep(0.2)
    assert not receiving.done()
    raw.writer.transport.abort()
    await holding
    assert await receiving == bytes(2 * MIB)
    await sending


async def test_who_trickles_a_large_message_gives_its_budget_up_in_time(
    net: Net, spools: SpoolFolder | None
) -> None:
    """Every frame is in time, the message is not: the next in the queue gets its turn."""
    endpoint = net.endpoint("agg", frame_timeout=3600)
    object.__setattr__(endpoint, "budget", framing.InflightBudget(3 * MIB, spools=spools))
    object.__setattr__(endpoint, "message_timeout", 2.0)
    server = await net.listen(endpoint)
    raw, stalled = await net.welcomed(server, "bob")
    await raw.write(framing.HEADER.pack(3 * MIB, framing.DATA) + bytes(MIB))
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    holding = asyncio.create_task(stalled.receive())
    await asyncio.sleep(0.1)
    sending = asyncio.create_task(mine.send(bytes(2 * MIB)))
    assert await theirs.receive() == bytes(2 * MIB)
    await sending
    with pytest.raises(TimeoutFault) as caught:
        await holding
    assert caught.value.missing == {"bob"}


async def passes(mine: Channel, theirs: Channel) -> None:
    """Send a message of 3 MiB, which has to come."""
    sending = asyncio.create_task(mine.send(bytes(3 * MIB)))
    assert await asyncio.wait_for(theirs.receive(), WAIT) == bytes(3 * MIB)
    await sending


async def test_who_announces_a_large_message_and_sends_little_holds_no_budget(
    net: Net, spools: SpoolFolder | None
) -> None:
    endpoint = net.endpoint("agg", frame_timeout=3600)
    object.__setattr__(endpoint, "budget", framing.InflightBudget(3 * MIB, spools=spools))
    server = await net.listen(endpoint)
    for name in ("bob", "carol"):
        raw, _ = await net.welcomed(server, name)
        await raw.write(framing.HEADER.pack(3 * MIB, framing.DATA) + bytes(framing.PIECE - 1))
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    await asyncio.sleep(0.1)
    await passes(mine, theirs)


async def test_a_message_that_cannot_be_stored_is_no_fault_of_its_sender(net: Net, tmp_path: Path) -> None:
    """It is read to its end and gives its budget back; the channel goes on."""
    endpoint = net.endpoint("agg")
    budget = framing.InflightBudget(3 * MIB, spools=SpoolFolder(str(tmp_path / "none")))
    object.__setattr__(endpoint, "budget", budget)
    mine, theirs = await net.pair(server=endpoint)
    for content in (bytes(3 * MIB), b"small", bytes(2 * MIB)):
        sending = asyncio.create_task(mine.send(content))
        if len(content) > MIB:
            with pytest.raises(LocalError, match=f"none: cannot store a message of {len(content)} bytes"):
                await theirs.receive()
            assert budget._free == budget.size
        else:
            assert await theirs.receive() == content
        await sending
    (tmp_path / "none").mkdir()
    await passes(mine, theirs)
    assert theirs.live


@pytest.fixture
async def watched(
    net: Net, spools: SpoolFolder | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[Server, framing.InflightBudget]:
    """Return a server with a budget of 3 MiB, and it: 1 MiB a second while others wait."""
    monkeypatch.setattr(framing, "LOOK_SECONDS", 0.05)
    endpoint = net.endpoint("agg", frame_timeout=3600)
    budget = framing.InflightBudget(3 * MIB, rate=MIB, grace=0.2, spools=spools)
    object.__setattr__(endpoint, "budget", budget)
    return await net.listen(endpoint), budget


async def begin(net: Net, server: Server, name: str, sent: int) -> tuple[Raw, Channel]:
    """Send `sent` bytes of a message of 3 MiB, and wait until they have come."""
    raw, channel = await net.welcomed(server, name)
    await raw.write(framing.HEADER.pack(3 * MIB, framing.DATA))
    for first in range(0, sent, MIB):
        if first:
            await raw.write(framing.HEADER.pack(3 * MIB - first, framing.DATA))
        await asyncio.wait_for(raw.write(bytes(min(MIB, sent - first))), WAIT)
    await asyncio.sleep(0.1)
    return raw, channel


async def test_who_is_too_slow_while_others_wait_lets_them_pass_and_goes_on(
    net: Net, watched: tuple[Server, framing.InflightBudget]
) -> None:
    """No slow line is cut for that: there is room for what it has sent."""
    server, _ = watched
    raw, slow = await begin(net, server, "bob", 2 * MIB)
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    for _ in range(2):
        await passes(mine, theirs)
    await raw.write(framing.HEADER.pack(MIB, framing.DATA) + bytes(MIB))
    assert await slow.receive() == bytes(3 * MIB)


async def test_of_too_many_slow_messages_the_slowest_is_stopped_and_named(
    net: Net, watched: tuple[Server, framing.InflightBudget]
) -> None:
    server, budget = watched
    _, first = await begin(net, server, "bob", 2 * MIB)
    raw, second = await begin(net, server, "carol", 2 * MIB)
    mine = await net.dial("alice", server.address)
    theirs = await server.channel()
    await passes(mine, theirs)
    with pytest.raises(TimeoutFault, match=r"the slowest of many messages: 2\d* of 3145728 bytes") as caught:
        await asyncio.wait_for(first.receive(), WAIT)
    assert caught.value.missing == {"bob"}
    await raw.write(framing.HEADER.pack(MIB, framing.DATA) + bytes(MIB))
    assert await asyncio.wait_for(second.receive(), WAIT) == bytes(3 * MIB)
    for channel in (first, second, theirs):
        channel.abort()
    await asyncio.sleep(0.1)
    assert budget._free == budget._slow.free == budget.size
    assert not budget.receiving


async def test_no_message_is_too_slow_while_nobody_waits_or_this_process_is_stopped(
    net: Net, watched: tuple[Server, framing.InflightBudget]
) -> None:
    server, budget = watched
    raw, _ = await begin(net, server, "bob", 2 * MIB)
    [share] = budget.receiving
    await asyncio.sleep(0.5)
    assert budget.receiving == {share}
    waiting = asyncio.create_task(budget.take(MIB))
    await asyncio.sleep(0)
    # Nothing runs here for a while: one look counts no more than twice its time.
    time.sleep(0.4)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert budget.receiving == {share}
    await asyncio.wait_for(waiting, WAIT)
    assert budget.receiving == set()
    # What it had brought before others waited is no credit of two seconds.
    assert share._waited < 1.0
    raw.writer.transport.abort()


async def test_a_message_is_held_until_the_next_is_asked_for(net: Net, spools: SpoolFolder | None) -> None:
    endpoint = net.endpoint("agg")
    object.__setattr__(endpoint, "budget", framing.InflightBudget(3 * MIB, spools=spools))
    server = await net.listen(endpoint)
    channels = {}
    for name in ("alice", "bob"):
        mine = await net.dial(name, server.address)
        channels[name] = (mine, await server.channel())
    sending = [asyncio.create_task(mine.send(bytes(2 * MIB))) for mine, _ in channels.values()]
    assert await channels["alice"][1].receive() == bytes(2 * MIB)
    second = asyncio.create_task(channels["bob"][1].receive())
    await asyncio.sleep(0.3)
    assert not second.done()
    third = asyncio.create_task(channels["alice"][1].receive())
    assert await second == bytes(2 * MIB)
    await asyncio.gather(*sending)
    third.cancel()


async def test_small_messages_of_all_channels_share_a_budget(net: Net) -> None:
    endpoint = net.endpoint("agg")
    object.__setattr__(endpoint, "small_budget", framing.InflightBudget(MIB + MIB // 2))
    server = await net.listen(endpoint)
    channels = {}
    for name in ("alice", "bob"):
        mine = await net.dial(name, server.address)
        channels[name] = await server.channel()
        await mine.send(bytes(MIB))
        await asyncio.sleep(0.1)
    assert await channels["alice"].receive() == bytes(MIB)
    second = asyncio.create_task(channels["bob"].receive())
    await asyncio.sleep(0.3)
    assert not second.done()
    third = asyncio.create_task(channels["alice"].receive())
    assert await second == bytes(MIB)
    third.cancel()


async def test_the_first_frame_of_a_large_message_waits_for_its_budget(net: Net) -> None:
    """Members that announce large messages and send one frame of each hold nothing beside the budget."""
    endpoint = net.endpoint("agg")
    object.__setattr__(endpoint, "budget", framing.InflightBudget(2 * MIB))
    server = await net.listen(endpoint)
    raws = [await net.welcomed(server, name) for name in ("alice", "bob", "carol")]
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        writing = [
            asyncio.create_task(raw.write(framing.HEADER.pack(2 * MIB, framing.DATA) + bytes(MIB)))
            for raw, _ in raws
        ]
        await asyncio.sleep(0.5)
        for task in writing:
            task.cancel()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # One frame that was admitted, what two writers hold back, and the undecoded input of all.
    assert peak < 5 * MIB
    assert [channel._inbox.has_room for _, channel in raws] == [True] * 3


async def test_a_flood_of_small_messages_is_held_back(net: Net) -> None:
    mine, theirs = await net.pair()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            await mine.send(bytes(10_000))
            sent += 1

    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    flooding = asyncio.create_task(flood())
    try:
        last = -1
        while last != sent:
            last = sent
            await asyncio.sleep(0.3)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        tracemalloc.stop()
    # What the operating system holds is not counted.
    assert peak < 2 * MIB
    assert not theirs._inbox.has_room
    assert await theirs.receive() == bytes(10_000)
