"""A party without an aggregator that is cancelled while it leaves its session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from smpc_dp.capabilities.gopa.requests.mesh import Mesh
from smpc_dp.session.events import ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.saved_session import SavedSessionState
from tests.faults.saved_session_schedules import without_syncs

GIVEN: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 9, "corrupt": 0}


def test_a_party_that_is_cancelled_while_it_stops_listening_closes_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    path = create_local_session(tmp_path, ("alice", "bob", "carol"), GIVEN)
    member, folder = Membership.load(path, "alice"), path.parent / "state"

    async def close_and_cancel() -> None:
        mesh = Mesh(member, ignore, SavedSessionState(member, folder))
        stopping = asyncio.Event()

        async def stop() -> None:
            stopping.set()
            await asyncio.sleep(60.0)

        monkeypatch.setattr(mesh, "_stop", stop)
        task = asyncio.ensure_future(mesh.close())
        await stopping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(close_and_cancel())
    SavedSessionState(member, folder).close()
