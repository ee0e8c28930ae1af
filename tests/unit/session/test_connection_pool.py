"""The queue of what the links of an aggregator bring."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from smpc_dp.engine.phases.messages import HELLO
from smpc_dp.errors import Check, Code, PeerFault, TimeoutFault
from smpc_dp.session.connection_pool import SMALL_MESSAGE, ConnectionPool, FairQueue, InboundEvent
from smpc_dp.session.events import Event, ignore
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership, _budget, from_wire, to_wire
from smpc_dp.wire.abort import ABORT
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode_envelope, encode_envelope
from tests.faults.virtual import connect, run_virtually

if TYPE_CHECKING:
    from smpc_dp.transport.channel import Channel


async def test_news_are_taken_in_turns_without_a_look_at_all_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue compared what was taken with all that waited: 55 s for two messages of each of 10,000."""

    def compared(one: InboundEvent, other: object) -> bool:
        raise AssertionError(f"{one} is compared with {other}")

    monkeypatch.setattr(InboundEvent, "__eq__", compared)
    queue, names = FairQueue(), ["ann", "ben", "cem"]

    async def connection(name: str) -> None:
        await queue.put(InboundEvent(name, 1))
        await queue.put(InboundEvent(name, 2))

    connections = [asyncio.create_task(connection(name)) for name in names]
    taken = [await queue.get() for _ in range(2)]
    connections[2].cancel()
    await asyncio.wait([connections[2]])
    taken += [await queue.get() for _ in range(2)]
    await asyncio.gather(*connections[:2])
    assert [(inbound.peer, inbound.request) for inbound in taken] == [
        ("ann", 1),
        ("ben", 1),
        ("ann", 2),
        ("ben", 2),
    ]
    assert queue.take_all() == []


ENVELOPE = Envelope(bytes(32), "s" * 40, "p" * 63, "q" * 63, b"body", bytes(64))


@pytest.mark.parametrize("field", ["run_id", "step", "sender", "receiver", "signature"])
def test_only_the_body_of_an_envelope_is_long(field: str) -> None:
    """So a stored message, of any step, is bounded by its body."""
    content = encode_envelope(ENVELOPE)
    assert decode_envelope(content, ENVELOPE.sender) == ENVELOPE
    assert len(content) < len(ENVELOPE.body) + 300
    value = getattr(ENVELOPE, field)
    longer = msgspec.structs.replace(ENVELOPE, **{field: value + value[:1]})
    with pytest.raises(PeerFault, match="malformed Envelope") as fault:
        decode_envelope(encode_envelope(longer), ENVELOPE.sender)
    assert fault.value.check == Check.MALFORMED


def hub() -> Any:
    """Return a member without a session."""
    return SimpleNamespace(
        name="hub", identity=None, session=None, largest_message=lambda: 1 << 20, to_wire=to_wire
    )


class Pipe:
    """Channel to `alice` that brings an error when it is told to."""

    peer, live = "alice", True
    bytes_sent = bytes_received = 0

    def __init__(self) -> None:
        self.max_message = self.max_received = 1 << 20
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def receive(self) -> bytes:
        return await self.ended

    async def send(self, *_: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_who_is_excluded_sends_small_messages_alone_even_if_it_calls_again() -> None:
    reported: list[Event] = []
    pool = ConnectionPool(hub(), reported.append)
    pipes = [Pipe() for _ in range(2)]
    pool.welcome(cast("Channel", pipes[0]))
    pool.send(1, [Envelope(b"", ABORT, "hub", "alice", b"", b"")])
    late = TimeoutFault({"alice"}, "receive", "7 of 9 bytes came in 2.0 s")
    pipes[0].ended.set_exception(late)
    pool.welcome(cast("Channel", pipes[1]))
    assert [pipe.max_received for pipe in pipes] == [SMALL_MESSAGE, SMALL_MESSAGE]
    pool.hear(1 << 19)
    assert pipes[1].max_received == SMALL_MESSAGE
    # What is sent to it is not limited: it may ask for a log.
    assert [pipe.max_message for pipe in pipes] == [1 << 20] * 2
    pool.admit_all()
    assert pipes[1].max_received == 1 << 20
    await asyncio.sleep(0.01)
    assert f"alice: {late}" in [event.detail for event in reported if event.kind == "refused"]
    pool.abort()


@pytest.mark.parametrize("code", [Code.PAST, Code.FEW, Code.KIND])
async def test_who_may_still_take_part_is_refused_and_not_excluded(code: Code) -> None:
    pool, pipe = ConnectionPool(hub(), ignore), Pipe()
    pool.welcome(cast("Channel", pipe))
    aborts = [Envelope(b"", ABORT, "hub", "alice", b"", b"")]
    context: Any = SimpleNamespace(session_digest=b"", write=lambda *_: aborts)
    pool.refuse_request(context, InboundEvent("alice", 1, ENVELOPE), code, 1, ["ann"] * (code == Code.FEW))
    assert pipe.max_received == (SMALL_MESSAGE if code == Code.KIND else 1 << 20)
    pool.abort()


@pytest.mark.parametrize(("largest", "others"), [(16 << 20, 26), (1 << 20, 10_000), (5 << 20, 3)])
def test_at_the_least_rate_the_largest_messages_of_all_come_in_one_step(largest: int, others: int) -> None:
    size, step = 64 << 20, 30.0
    budget = _budget(size, largest, others, step)
    rounds = others / (size // largest)
    assert rounds * largest / budget._rate == pytest.approx(step)
    assert budget._grace == max(step / rounds / 4, 0.25)


@pytest.mark.parametrize("resumes", [False, True])
def test_a_new_process_is_sent_nothing_of_the_run_before_it_is_heard(tmp_path: Path, resumes: bool) -> None:
    """The loss of its predecessor has not been taken: the role still speaks to it."""
    given: dict[str, object] = {"length": 1, "lower": 0, "upper": 1, "kind": "integer"}
    path = create_local_session(tmp_path, ("ann", "ben", "cem"), given)
    member = Membership.load(path, AGGREGATOR, role="aggregator")
    answers = [Envelope(bytes(32), step, AGGREGATOR, "ann", b"", bytes(64)) for step in ("roll", "abort")]
    hello = Envelope(bytes(32), HELLO, "ann", AGGREGATOR, b"", bytes(64))

    async def main() -> None:
        pool = ConnectionPool(member, ignore)
        first, far = connect("ann", AGGREGATOR, 0.01)
        pool.welcome(far)
        await asyncio.sleep(1)
        first.abort()
        second, far = connect("ann", AGGREGATOR, 0.01)
        pool.welcome(far, resumes=resumes)
        pool.send(1, answers[:1])
        await second.send(*to_wire(1, hello))
        assert [await pool.next(9.0), await pool.next(9.0)] == [
            InboundEvent("ann"),
            InboundEvent("ann", 1, hello),
        ]
        pool.send(1, answers[1:])
        for step in ["roll"] * resumes + ["abort"]:
            assert from_wire(await second.receive(), AGGREGATOR)[1].step == step
        pool.abort()

    run_virtually(main)
