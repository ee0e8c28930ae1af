"""The loop around a saved role."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.driver import Drive
from smpc_dp.session.events import ignore


def test_events_are_on_disk_before_a_further_one_is_waited_for() -> None:
    """While others have arrived they are taken first: the end of the step may make all rows needless."""
    calls: list[str] = []

    async def following(_until: float) -> InboundEvent:
        calls.append("next")
        return InboundEvent("alice")

    run = SimpleNamespace(is_settled=False, settle=lambda: calls.append("settle"))
    inbound = SimpleNamespace(is_empty=False)
    connections: Any = SimpleNamespace(inbound=inbound, next=following)
    timer: Any = SimpleNamespace(pause=lambda: 0.0)
    holder: Any = None
    drive = Drive(1, run, connections, timer, holder, ignore)
    drive.saved = True
    for is_empty, is_settled in ((False, False), (True, False), (True, True)):
        inbound.is_empty, run.is_settled = is_empty, is_settled
        asyncio.run(drive._next())
    assert calls == ["next", "settle", "next", "next"]
