"""GOPA between real processes, with users killed on the way."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals.py"


def test_ten_hospitals_of_which_two_are_killed() -> None:
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


def test_ten_hospitals_without_a_relay_of_which_two_are_killed() -> None:
    """Seven standard errors in two coordinates, as above."""
    example = runpy.run_path(str(EXAMPLE))
    run = cast(Callable[..., Awaitable[dict[str, Any]]], example["main"])
    result = asyncio.run(cast(Any, run(example["LOST_DIRECT"], direct=True)))
    assert "hospital-03" in result["absent"]
    off = np.abs(np.array(result["value"]) - np.array(result["truth"]))
    assert (off < 7 * result["standard_error"]).all()
    assert "relay" not in str(result["privacy"])
    assert result["privacy"]["receipt"]["spent"]["epsilon"] <= 4.0
