"""What simulations take: seeds and settings of NumPy as of Python; masked values are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.engine.phases.messages import PARTY_STEPS
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.records import result as records

ROWS = np.full((3, 1), 0.5)
HIDDEN = np.ma.masked_equal(np.array([3.0, 99.0]), 99.0)
SCHEMA = {"columns": {"v": {"lower": 0.0, "upper": 1.0}}, "max_rows": 100}


def average(**given: Any) -> Any:
    return simulate.average(given.pop("rows", ROWS), **({"lower": 0, "upper": 1} | given))


def statistics(**given: Any) -> Any:
    asked: dict[str, Any] = {"schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "corrupt": 0.0} | given
    return simulate.statistics([{"v": [0.1, 0.2] * 20}] * 3, "sum(v)", **asked)


SEEDED: dict[str, Callable[[Any], Any]] = {
    "average": lambda seed: average(seed_for_simulation=seed).value.tolist(),
    "noisy": lambda seed: average(epsilon=50, delta=1e-5, seed_for_simulation=seed).value.tolist(),
    "statistics": lambda seed: statistics(seed_for_simulation=seed).to_json(),
    "similarities": lambda seed: np.nan_to_num(
        simulate.similarities(np.eye(3), 9.0, seed_for_simulation=seed)
    ).tolist(),
    "local_pairwise": lambda seed: (
        simulate.local_pairwise(
            "kendall_tau", (range(9), range(9)), 2.0, bins=2, seed_for_simulation=seed
        ).value
    ),
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_of_numpy_are_those_of_python_and_others_are_refused(name: str) -> None:
    run = SEEDED[name]
    assert run(np.int64(7)) == run(7)
    for seed in (True, 7.0, "7", -1, 1 << 64, np.float64(7)):
        with pytest.raises(ConfigError, match=r"seed_for_simulation: must be an integer in \[0, 2\^64\)"):
            run(seed)


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": np.float32(1)},
        {"delta": np.float64(1e-6)},
        {"corrupt": np.float64(0)},
        {"weights": {"sum(v)": np.float32(2)}},
        {"max_standard_error": np.float32(10), "schema": SCHEMA | {"rows_expected": 120}},
        {"schema": SCHEMA | {"max_rows": np.int64(100), "rows_expected": np.int64(120)}},
    ],
    ids=str,
)
def test_settings_of_numpy_are_taken(given: dict[str, Any]) -> None:
    assert statistics(seed_for_simulation=1, **given).estimates[0].value is not None


def test_a_count_is_shown_from_the_multiple_of_its_noise_on_that_the_caller_gives() -> None:
    schema = {"columns": {"sex": {"values": ["f", "m"]}}, "max_rows": 100}
    for hide, shown in ((0.0, True), (50.0, False)):
        answers = simulate.statistics(
            [{"sex": ["f", "m"] * 10}] * 3,
            "count by sex",
            schema=schema,
            epsilon=1.0,
            delta=1e-6,
            corrupt=0.0,
            hide=hide,
            seed_for_simulation=1,
        )
        assert [one.cell for one in answers.estimates] == [{"sex": "f"}, {"sex": "m"}]
        for one in answers.estimates:
            assert (one.value is not None) == shown
            assert one.note == ("" if shown else records.HIDDEN)


def test_masked_values_are_refused() -> None:
    for rows in (np.ma.stack([HIDDEN] * 3), [[1.0, 2.0], HIDDEN, [5.0, 4.0]]):
        with pytest.raises(PrivacyError, match="values are masked: none may be missing"):
            average(rows=rows, upper=100)
    with pytest.raises(PrivacyError, match="bounds: 1 values are masked"):
        average(rows=np.ones((3, 2)), upper=HIDDEN)
    with pytest.raises(PrivacyError, match=r"inputs\[0\]: 1 values are masked"):
        simulate.evaluate("less_u16", [HIDDEN.astype(np.int64), np.array([3, 4])])
    with pytest.raises(PrivacyError, match="vectors: 3 values are masked"):
        simulate.similarities(np.ma.stack([HIDDEN] * 3)[:, :2], 9.0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"level": 1.0}, r"level: must be in \(0, 1\), is 1.0"),
        ({"hide": -1.0}, "hide: must be a number from 0 on, is -1.0"),
        ({"hide": "x"}, "hide: must be a number from 0 on, is 'x'"),
        ({"lost": 9}, "lost: must be 0 to"),
        ({"lost": "x"}, "lost: must be an integer"),
        ({"public_rows": [1]}, "^public_rows: follows from the other arguments"),
        ({"answer_weights": {}}, "^answer_weights: follows"),
        ({"records": {}}, "^records: follows"),
        ({"epsilon": 0.0}, "^epsilon: "),
        ({"sharpness": 1}, "^sharpness: "),
    ],
)
def test_a_setting_of_statistics_that_is_refused_is_named(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        statistics(**given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"length": 7}, "^length: follows from the other arguments"),
        ({"method": "mpyc"}, r"^method: unknown: 'mpyc' \(known: 'secagg', 'gopa'\)"),
        ({"method": None}, "^method: unknown: None"),
        ({"weights": [1, 2, 3], "max_weight": 2}, "weight"),
        (
            {"weights": [1] * 3, "verifiable": True, "method": "gopa", "epsilon": 9.0, "delta": 1e-3},
            "^weights: ",
        ),
        ({"l2_bound": np.ma.masked, "epsilon": 1.0, "delta": 1e-6}, "masked"),
        ({"sharpness": 1}, "^sharpness: "),
    ],
)
def test_a_setting_of_an_average_that_is_refused_is_named(given: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=reason):
        average(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"topology": "relay", "verifiable": False, "on_dropout": "keep", "mechanism": "discrete-gaussian"},
        {"lower": range(1), "upper": np.ones(1)},
        {"weights": [1, 2, 3], "max_weight": 9},
    ],
)
def test_settings_that_change_nothing_are_taken(given: dict[str, Any]) -> None:
    assert average(**given).value.tolist() == [0.5]


def test_the_steps_of_a_run_are_shown_once_to_its_end() -> None:
    shown: list[str] = []
    average(progress=lambda step, _: shown.append(step))
    assert shown == [*PARTY_STEPS, "done"]
