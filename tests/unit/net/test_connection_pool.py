"""The queue of what the links of an aggregator bring."""

from __future__ import annotations

import asyncio

import pytest

from smpc_dp.net.connection_pool import FairQueue, InboundEvent


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
