"""The acceptor of two-party evaluations: of two connections of one member, a live first one stays."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from smpc_dp.errors import PeerFault, TimeoutFault
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.transport import acceptor as lobbies
from smpc_dp.transport import connect, handshake
from smpc_dp.transport.acceptor import MAX_EACH, Acceptor, call
from smpc_dp.transport.blocking import BlockingChannel, Halt
from smpc_dp.transport.endpoint import Endpoint
from smpc_dp.transport.inquiry import connect as connect_to
from smpc_dp.transport.inquiry import find_addresses, secure

PATIENCE = 20.0


class Pair:
    """alice has an acceptor, bob calls; `bob` is also whoever has its key."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        identities = {name: Identity.generate(name) for name in ("alice", "bob")}
        members = [identities["alice"].entry("party", address), identities["bob"].entry("party", None)]
        roster = Roster(members, requires_aggregator=False)
        self.ends = {
            name: Endpoint(
                identity=identity,
                roster=roster,
                session_digest=b"s" * 32,
                session=lambda: {"session": 1},
                connect_timeout=60.0,
                frame_timeout=60.0,
            )
            for name, identity in identities.items()
        }
        self.acceptor = Acceptor(self.ends["alice"])
        self._pool = ThreadPoolExecutor(8)
        self._halts: list[Halt] = []

    def calls(self) -> Future[BlockingChannel]:
        """Call as bob, and return once the acceptor has the connection."""
        before, halt = self.waiting(), Halt()
        self._halts.append(halt)
        calling = self._pool.submit(call, self.ends["bob"], "alice", PATIENCE, halt)
        with self.acceptor._inbound:
            assert self.acceptor._inbound.wait_for(lambda: self.waiting() > before, 60.0)
        return calling

    def waiting(self) -> int:
        return len(self.acceptor._waiting.get("bob", ()))

    def claim(self) -> BlockingChannel:
        return self.acceptor.claim(self.ends["alice"], "bob", PATIENCE, Halt())

    def close(self) -> None:
        for halt in self._halts:
            halt.now()
        self.acceptor.close()
        self._pool.shutdown()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def talk(one: BlockingChannel, other: BlockingChannel) -> None:
    one.send([b"hello"])
    other.send([b"and you"])
    assert bytes(other.receive(10)) == b"hello"
    assert bytes(one.receive(10)) == b"and you"
    closing = threading.Thread(target=one.close)
    closing.start()
    other.close()
    closing.join()


def test_a_later_call_does_not_take_the_place_of_one_that_answers(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "smpc_dp.transport")
    first, second = pair.calls(), pair.calls()
    channel = pair.claim()
    talk(channel, first.result())
    with pytest.raises(PeerFault, match="this key is used twice"):
        second.result()
    claimed = [record.getMessage() for record in caplog.records]
    assert "alice: two connections of bob are live: its key is used twice" in claimed
    assert "alice says that our key is used twice: another process has called in our name" in claimed


def test_an_inquiry_is_answered_and_the_call_behind_it_is_claimed(pair: Pair) -> None:
    async def inquire() -> handshake.Answer:
        endpoint, (host, port) = pair.ends["bob"], pair.acceptor._server.getsockname()
        channel = await secure(endpoint, "alice", await connect_to(await find_addresses(host, port)))
        answer, error = await handshake.inquire(channel, "bob", endpoint.described)
        channel.abort()
        assert error is None
        return answer

    asked = pair._pool.submit(asyncio.run, inquire())
    with pair.acceptor._inbound:
        assert pair.acceptor._inbound.wait_for(lambda: pair.waiting() == 1, 60.0)
    call = pair.calls()
    talk(pair.claim(), call.result())
    assert asked.result().name == "alice"


def test_a_call_that_has_gone_makes_room_for_the_next(pair: Pair) -> None:
    first = pair.calls()
    pair._halts[0].now()
    second = pair.calls()
    talk(pair.claim(), second.result())
    assert first.exception() is not None


def test_a_call_that_no_longer_answers_is_passed_over(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lobbies, "PING_SECONDS", 0.2)
    frozen = threading.Event()
    real = connect.dial_blocking

    def freeze(*given: object, **named: object) -> BlockingChannel:
        channel = real(*given, **named)  # type: ignore[arg-type]
        frozen.wait()
        return channel

    monkeypatch.setattr(lobbies, "dial_blocking", freeze)
    first = pair.calls()
    monkeypatch.setattr(lobbies, "dial_blocking", real)
    second = pair.calls()
    talk(pair.claim(), second.result())
    frozen.set()
    first.result()


def test_one_that_answers_nothing_is_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = threading.Event()
    real = connect.dial_blocking

    def freeze(*given: object, **named: object) -> BlockingChannel:
        channel = real(*given, **named)  # type: ignore[arg-type]
        frozen.wait()
        return channel

    monkeypatch.setattr(lobbies, "dial_blocking", freeze)
    pair.ends["alice"] = pair.ends["alice"].__class__(
        **{
            name: getattr(pair.ends["alice"], name)
            for name in ("identity", "roster", "session_digest", "session", "connect_timeout")
        },
        frame_timeout=0.3,
    )
    pair.calls()
    with pytest.raises(TimeoutFault) as late:
        pair.claim()
    assert late.value.missing == {"bob"}
    frozen.set()


def test_connections_of_one_member_are_limited(pair: Pair) -> None:
    retained = [pair.calls() for _ in range(MAX_EACH)]
    extra = pair._pool.submit(call, pair.ends["bob"], "alice", PATIENCE, Halt())
    assert extra.exception() is not None
    talk(pair.claim(), retained[0].result())
