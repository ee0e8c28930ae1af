"""GOPA's published vectors agree with the twin, which shares no code with the library."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.reference import gopa_twin as twin
from tests.reference.published import messages_of, sources_of
from tests.reference.secagg_twin import round_half_even

PUBLISHED = Path(__file__).parents[2] / "protocols" / "gopa" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))


def test_twin_imports_nothing_of_the_library() -> None:
    assert "smpc_dp" not in sources_of(twin)
    assert len(RUNS) == 12


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_run(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    messages, ends = twin.execute(vector)
    assert messages == messages_of(vector)
    ends["intermediate"]["x_hat"] = ends["intermediate"].pop("masked")
    assert ends["intermediate"] == vector["intermediate"]
    assert {"residual_pairs": 0} | ends["result"] == vector["result"]


def grid_of(vector: list[float], encoding: dict[str, Any]) -> list[int]:
    """To nearest, or toward zero where the norm would leave the ball. [docs/reference/session-file.md]"""
    scaled = [Fraction(value) * 2 ** encoding["fractional_bits"] for value in vector]
    nearest = [round_half_even(value) for value in scaled]
    bound = encoding.get("l2_bound")
    if (
        bound is None
        or sum(value**2 for value in nearest) <= (Fraction(bound) * 2 ** encoding["fractional_bits"]) ** 2
    ):
        return nearest
    return [int(value) for value in scaled]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_total_is_the_plain_sum_and_noise(path: Path) -> None:
    """Own noise of all survivors; with "keep" that of residual pairs. Eight standard deviations: 1e-15."""
    vector = json.loads(path.read_bytes())
    session, result = vector["session"], vector["result"]
    encoding = session["encoding"]
    totals = [0] * encoding["length"]
    for name, given in vector["inputs"].items():
        grid = grid_of(given["vector"], encoding)
        assert given["lanes"] == [value - encoding["lowest"] for value in grid]
        if name in result["survivors"]:
            totals = [total + value for total, value in zip(totals, grid, strict=True)]
    variance = len(result["survivors"]) * session["own_variance"]
    variance += result["residual_pairs"] * session["pair_variance"]
    off = [noisy - total for noisy, total in zip(result["fixed_point"], totals, strict=True)]
    assert all(0 < abs(value) < 8 * variance**0.5 for value in off)
    with_pairs = session["pair_variance"] ** 0.5
    assert (max(map(abs, off)) > with_pairs / 2) == (result["residual_pairs"] > 0)


def test_a_vector_at_the_surface_of_the_ball_is_rounded_toward_zero() -> None:
    """The published ball has such a vector, or the rule would not be shown."""
    vector = json.loads((PUBLISHED / "run-keep-ball.json").read_bytes())
    encoding = vector["session"]["encoding"]
    nearest = {
        name: [
            round_half_even(Fraction(value) * 2 ** encoding["fractional_bits"]) for value in given["vector"]
        ]
        for name, given in vector["inputs"].items()
    }
    ring_vector = {
        name: [element + encoding["lowest"] for element in given["lanes"]]
        for name, given in vector["inputs"].items()
    }
    assert any(ring_vector[name] != nearest[name] for name in ring_vector)
