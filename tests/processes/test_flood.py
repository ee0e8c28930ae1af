"""A flooding process over real sockets: the aggregator's clock and the honest parties go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import smpc_dp
from smpc_dp.engine.result import Result
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts

HONEST = ("alice", "bob", "carol", "dave")
PARAMETERS: dict[str, object] = {"length": 2, "lower": -1.0, "upper": 1.0, "precision": 1e-3, "dropout": 0.25}

# Says hello again and again, as fast as its channel takes it, and nothing else.
FLOOD = """
import asyncio, sys
import numpy as np
from smpc_dp.errors import SmpcError
from smpc_dp.engine.events import Start
from smpc_dp.engine.registry import make_party
from smpc_dp.session.events import ignore
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.member import Membership

async def main():
    member = Membership.load(sys.argv[1], "mallory")
    connection = await AggregatorConnection.open(member, member.endpoint(), ignore)
    vector = np.zeros(member.parameters.shape, member.parameters.encoding.dtype)
    hello = make_party(member.context(1, "sum"), member.parameters, member.identity, vector).handle(Start())
    while True:
        await connection.connections.post(1, hello)

try:
    asyncio.run(main())
except SmpcError:
    pass
"""


@pytest.mark.long
async def test_a_flooding_process_is_late_and_costs_the_others_nothing(tmp_path: Path) -> None:
    path = create_local_session(
        tmp_path, (*HONEST, "mallory"), PARAMETERS, timeouts=Timeouts(connect=60.0, step=5.0)
    )
    events: list[Event] = []

    async def party(name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            assert (await session.sum([0.5, -0.5])).survivors == HONEST

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, on_event=events.append))
    flood = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, str(path))
    try:
        await asyncio.gather(*map(party, HONEST))
        [result] = await serving
    finally:
        if flood.returncode is None:
            flood.kill()
        await flood.wait()
    assert isinstance(result, Result)
    assert result.absent == ("mallory",)
    [done] = [event for event in events if event.kind == "done"]
    assert "mallory" in done.detail
    assert "deadline passed" in done.detail
