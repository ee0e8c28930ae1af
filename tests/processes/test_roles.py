"""Roles that `connect` and `serve` are given in place of the protocol's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.engine.registry import make_aggregator, make_party
from smpc_dp.engine.run import Run
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts

PARTIES = ("alice", "bob", "carol")
PARAMETERS: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 9, "corrupt": 0.0}


async def test_a_party_and_the_aggregator_run_the_roles_that_they_are_given(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=Timeouts(connect=60.0, step=20.0))
    made: list[str] = []

    def liar(
        context: Any, parameters: Any, identity: Any, ring_vector: Any, *rest: Any, **named: Any
    ) -> Run[Any]:
        made.append(identity.name)
        return make_party(
            context, parameters, identity, ring_vector + ring_vector.dtype.type(1), *rest, **named
        )

    def aggregator(context: Any, parameters: Any, identity: Any, **named: Any) -> Any:
        made.append(identity.name)
        return make_aggregator(context, parameters, identity, **named)

    async def party(index: int, name: str) -> int:
        role = liar if name == "bob" else make_party
        async with smpc_dp.connect(path, party=name, role=role) as session:
            return int((await session.sum([index])).value[0])

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, role=aggregator))
    # 0 + 1 + 2, and one more that bob's role adds: within the bounds nobody can know.
    assert await asyncio.gather(*(party(index, name) for index, name in enumerate(PARTIES))) == [4, 4, 4]
    await serving
    assert sorted(made) == ["aggregator", "bob"]


async def test_a_session_without_an_aggregator_takes_no_role(tmp_path: Path) -> None:
    direct = {"topology": "direct", "length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
    path = create_local_session(tmp_path, PARTIES, direct, protocol="gopa")
    with pytest.raises(smpc_dp.ConfigError, match="role: is for sessions with an aggregator"):
        async with smpc_dp.connect(path, party="bob", role=make_party):
            pass
