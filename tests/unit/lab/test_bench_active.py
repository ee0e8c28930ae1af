"""The benchmark of evaluations that are secure against both sides, at sizes that take little time."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench import active
from smpc_dp_lab.bench.active import run_active_bench


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"(?s)runs.*evaluations.*ands"):
        run_active_bench(0, evaluations=0, ands=999)


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """The figures of one round at small sizes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(active, "FRESH", 1)
        shown: Any = run_active_bench(1, evaluations=3, ands=5_000).to_json()
    assert shown["bench"] == "active"
    return {figure["name"]: figure for figure in shown["figures"]}


def test_every_size_stands_beside_the_semi_honest_one_or_a_bound(figures: dict[str, Any]) -> None:
    with_target = {name: figure["limit"]["name"] for name, figure in figures.items() if figure["target"]}
    assert with_target == {
        "fresh pair, 253 ANDs": "semi-honest",
        "fresh pair, 253 ANDs, sent": "bound",
        "an evaluation of 3": "semi-honest",
        "an evaluation of 3, sent": "semi-honest",
        "4,965 ANDs": "bound",
    }
    fresh = figures["fresh pair, 253 ANDs"]
    assert fresh["met"] == (fresh["median"] <= 4 * fresh["limit"]["median"])
    assert figures["fresh pair, 253 ANDs, sent"]["met"]


def test_rounds_are_those_of_the_specification(figures: dict[str, Any]) -> None:
    # Hello and start 2, setup 3, transfers 3, triples 6, openings, inputs, tables, masked, macs and outputs.
    rounds = 2 + 3 + 3 + 6 + 5
    assert figures["fresh pair, 253 ANDs, rounds"]["median"] == rounds
    clock = figures["fresh pair, 253 ANDs, round trip of 50 ms"]
    spent = figures["fresh pair, 253 ANDs"]["median"] / 2
    assert clock["median"] == pytest.approx(spent + rounds * 0.025)


def test_the_bytes_of_the_formula_are_what_the_roles_send(figures: dict[str, Any]) -> None:
    # B = 4 and k = 4. Inputs, outputs, setups, padding of chunks and signed messages are not in the formula.
    sent = figures["4,965 ANDs, sent"]
    assert sent["limit"]["median"] == pytest.approx(4 * (24 + 32.25) + 0.75 + 8 + 32.75)
    assert 1 < sent["median"] / sent["limit"]["median"] < 1.1
