"""GOPA between real processes, with parties killed on the way."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import smpc_dp
from smpc_dp.session.local import create_local_session

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals.py"


@pytest.mark.long
def test_twenty_hospitals_of_which_two_are_killed() -> None:
    """Seven standard errors in two coordinates: a false alarm in 2e11 runs."""
    example = runpy.run_path(str(EXAMPLE))
    run = cast(Callable[[Mapping[str, str]], Awaitable[dict[str, Any]]], example["main"])
    result = asyncio.run(cast(Any, run({"hospital-03": "roll", "hospital-07": "survivors-certificate"})))
    # The second is lost after its vector was added: its value stays in, and so does its noise.
    assert result["absent"] == ["hospital-03"]
    off = np.abs(np.array(result["value"]) - np.array(result["truth"]))
    assert (off < 7 * result["standard_error"]).all()
    assert result["residual_pairs"] == 0
    assert result["privacy"]["receipt"]["spent"]["epsilon"] <= 4.0


async def average_within_a_ball(folder: Path) -> None:
    names = ["alice", "bob", "carol", "dave"]
    parameters = {"length": 2, "l2_bound": 5.0, "epsilon": 4.0, "delta": 1e-5, "corrupt": 0.0}
    path = create_local_session(folder, names, parameters, protocol="gopa")
    serving = asyncio.create_task(smpc_dp.serve(path))
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, name)) for name in names]
        with pytest.raises(smpc_dp.ConfigError, match=r"l2_bound: is 4.0, the session file says 5.0"):
            await sessions[0].average([3.0, 4.0], expect={"l2_bound": 4.0})
        results = await asyncio.gather(
            *(
                session.average(vector, expect={"protocol": "gopa", "l2_bound": 5.0}, clip=True)
                for session, vector in zip(sessions, [[3.0, 4.0]] * 3 + [[30.0, 40.0]], strict=True)
            )
        )
    await serving
    assert [result.clipped for result in results] == [0, 0, 0, 2]
    # Eight standard errors: a false alarm in 4e14 runs.
    assert np.abs(results[0].value - [3.0, 4.0]).max() < 8 * results[0].standard_error


def test_a_norm_bound_over_real_channels(tmp_path: Path) -> None:
    asyncio.run(average_within_a_ball(tmp_path))


@pytest.mark.long
def test_twenty_hospitals_without_a_relay_of_which_two_are_killed() -> None:
    """Seven standard errors in two coordinates, as above."""
    example = runpy.run_path(str(EXAMPLE))
    run = cast(Callable[..., Awaitable[dict[str, Any]]], example["main"])
    result = asyncio.run(cast(Any, run(example["LOST_DIRECT"], direct=True)))
    assert "hospital-03" in result["absent"]
    off = np.abs(np.array(result["value"]) - np.array(result["truth"]))
    assert (off < 7 * result["standard_error"]).all()
    assert "the aggregator" not in str(result["privacy"])
    assert result["privacy"]["receipt"]["spent"]["epsilon"] <= 4.0
