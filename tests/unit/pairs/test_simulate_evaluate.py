"""`simulate.evaluate`: values against Python's, its forms, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.garbled.params import Mode
from smpc_dp.capabilities.pairs.published.library import find


def test_single_values_are_ints_and_batches_are_arrays() -> None:
    one = smpc_dp.simulate.evaluate("mul32", [70_000, 70_001])
    assert one.value == (70_000 * 70_001 % 2**32,)
    assert isinstance(one.value[0], int)
    assert smpc_dp.simulate.evaluate("add64", [np.int64(3), np.uint8(4)]).value == (7,)
    many = smpc_dp.simulate.evaluate("mul32", [range(100), np.arange(100, dtype=np.int32) + 2**30])
    assert many.value is not None
    assert many.value[0].dtype == np.uint64
    assert many.value[0].tolist() == [x * (x + 2**30) % 2**32 for x in range(100)]


@pytest.mark.parametrize("output", ["garbler", "evaluator", "both"])
@pytest.mark.parametrize("theirs", [[], [0], [1], [0, 1]])
def test_whoever_holds_and_learns_what(output: str, theirs: list[int]) -> None:
    done = smpc_dp.simulate.evaluate("less_s16", [[1, 2], [2, 1]], output=output, evaluator_inputs=theirs)  # type: ignore[arg-type]
    assert done.value is not None
    assert done.value[0].tolist() == [1, 0]
    assert "semi-honest 'garbler'" in done.claim
    assert done.evidence.circuit == find("less_s16").build().digest


@pytest.mark.parametrize(
    ("instances", "mode", "claimed"),
    [
        (1, "tile", "keys are unique to each gate and instance;"),
        (15, "tile", "keys are unique to each gate and instance;"),
        (64, "unique", "keys are unique to each gate and instance;"),
        (64, "tile", "tiles of 64 instances share the keys of each gate, which costs about 6 bits;"),
    ],
)
def test_the_price_of_tiles_is_claimed_where_they_are_used(instances: int, mode: Mode, claimed: str) -> None:
    values = list(range(instances))
    done = smpc_dp.simulate.evaluate("less_u32", [values, values], mode=mode)
    assert sum(claimed in line for line in done.privacy.assumptions) == 1
    assert not any("12 bits" in line for line in done.privacy.assumptions)


def test_a_seed_makes_it_the_same_run() -> None:
    runs = [smpc_dp.simulate.evaluate("add32", [1, 2], seed_for_simulation=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0].evidence.run_id != runs[2].evidence.run_id


def test_the_result_is_plain_json() -> None:
    reported = smpc_dp.simulate.evaluate("add32", [[1], [2]]).to_json()
    assert reported["value"] == [[3]]
    assert set(reported) == {"value", "privacy", "evidence"}
    evidence = reported["evidence"]
    assert isinstance(evidence, dict)
    assert evidence["garbler"] == "garbler"
    assert evidence["circuit"] == find("add32").build().digest.hex()


@pytest.mark.parametrize(
    ("circuit", "inputs", "claimed"),
    [
        ("add32", [1], "inputs: 1 values, the circuit takes 2"),
        ("add32", [1, [2]], "inputs: not all single numbers, or all of one length"),
        ("add32", [[1, 2], [3]], "inputs: not all single numbers, or all of one length"),
        ("add32", [1, 1 << 40], "more than 32"),
        ("add32", [[1.5], [2]], r"inputs\[0\]: not a number, or a sequence of numbers"),
        ("add32", ["1", "2"], r"inputs\[0\]: not a number, or a sequence of numbers"),
        ("add32", [1.5, 2], "inputs: not a list that has an integer, or integers, for each input value"),
        (5, [2, 2], "circuit: must be a name, a path or a Circuit, is int"),
        ("add64", None, "inputs: not a list"),
        ("nothing", [1, 2], "'nothing' is neither a file nor"),
    ],
)
def test_what_is_refused(circuit: Any, inputs: Any, claimed: str) -> None:
    with pytest.raises(smpc_dp.ConfigError, match=claimed):
        smpc_dp.simulate.evaluate(circuit, inputs)


def test_an_unknown_mode_is_told_the_known_ones() -> None:
    with pytest.raises(smpc_dp.ConfigError, match="mode: must be 'tile' or 'unique', is 'x'"):
        smpc_dp.simulate.evaluate("add64", [1, 2], mode="x")  # type: ignore[arg-type]
