"""Parameters of secure aggregation: every fault at once, and no number so large that it cannot be named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters
from smpc_dp.capabilities.servers.secret_sharing.params import SharedParameters
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.secagg.params import check_parameters

GOOD: dict[str, Any] = {"length": 2, "lower": -1.0, "upper": 1.0, "precision": 1e-3}


def indices(parameters: dict[str, Any], parties: int = 5) -> list[str]:
    checked, faults = check_parameters(parameters, parties)
    assert (checked is None) == bool(faults)
    return sorted(fault.where for fault in faults)


def test_good_parameters_have_no_fault() -> None:
    assert indices(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"length": "x", "security": 7, "lower": 3.0}, ["length", "lower", "security"]),
        ({"length": 0, "max_weight": -1, "precision": 0}, ["length", "max_weight", "precision"]),
        ({"dropout": "x", "corrupt": 2, "precision": 8.0}, ["corrupt", "dropout", "precision"]),
        ({"kind": "complex", "length": 0, "unknown": 1}, ["kind", "length", "unknown"]),
        ({"kind": "integer", "lower": 0.5}, ["lower", "precision"]),
        ({"upper": -2.0, "length": 0, "dropout": 0.7}, ["dropout", "length", "lower"]),
    ],
)
def test_all_faults_at_once(changes: dict[str, Any], expected: list[str]) -> None:
    assert indices({**GOOD, **changes}) == expected


def test_what_is_missing_hides_no_other_fault() -> None:
    assert indices({"upper": float("inf"), "dropout": 0.9}) == [
        "dropout",
        "length",
        "lower",
        "precision",
        "upper",
    ]


PRIVATE: dict[str, Any] = {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 2.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        ("secagg", {}),
        ("gopa", {}),
        ("gopa", {"on_dropout": "roll-back"}),
        ("gopa", {"topology": "direct"}),
        ("gopa", {"verifiable": True}),
    ],
)
@pytest.mark.parametrize(("parties", "lost"), [(4, 0), (5, 1), (9, 1), (19, 1), (20, 2)])
def test_a_private_session_of_five_tolerates_a_loss(
    protocol: str, more: dict[str, Any], parties: int, lost: int
) -> None:
    version = session_protocol(protocol).version
    checked, faults = checker_of(protocol, version)(PRIVATE | more, parties)
    assert isinstance(checked, SumParameters), faults
    assert checked.plan.max_dropouts == lost
    written, _ = checker_of(protocol, version)(PRIVATE | more | {"dropout": 0.0}, parties)
    assert isinstance(written, SumParameters)
    assert written.plan.max_dropouts == 0


@pytest.mark.parametrize(("parties", "lost"), [(4, 0), (5, 1), (9, 1), (20, 2)])
def test_exact_sums_tolerate_a_loss_by_default_with_the_rule_alone(parties: int, lost: int) -> None:
    for more, expected in (
        ({}, lost),
        ({"same_survivors": True}, lost),
        ({"same_survivors": False}, 0),
        ({"same_survivors": False, "dropout": 0.2}, parties // 5),
    ):
        checked, faults = check_parameters({**GOOD, **more}, parties)
        assert checked is not None, faults
        assert checked.plan.max_dropouts == expected
        assert checked.keeps_survivors == more.get("same_survivors", True)


def test_the_rule_is_for_exact_sums() -> None:
    assert indices({**GOOD, "same_survivors": 1}) == ["same_survivors"]
    for protocol in ("secagg", "gopa"):
        _, faults = checker_of(protocol, session_protocol(protocol).version)(
            {**PRIVATE, "same_survivors": False}, 5
        )
        assert [fault.where for fault in faults] == ["same_survivors"]
        assert "exact sums" in faults[0].reason


@pytest.mark.parametrize(("parties", "lost"), [(4, 0), (5, 1), (49, 4)])
def test_noisy_sums_of_servers_tolerate_a_loss(parties: int, lost: int) -> None:
    private = {**GOOD, "epsilon": 1.0}
    checked, faults = checker_of("mpyc", 1)(private, parties)
    assert isinstance(checked, SharedParameters), faults
    assert parties - checked.fewest == lost


def test_a_default_that_no_plan_allows_is_named() -> None:
    checked, faults = checker_of("secagg", 2)({**GOOD, "epsilon": 1.0, "delta": 1e-6, "corrupt": 0.4}, 5)
    assert checked is None
    assert [fault.where for fault in faults] == ["corrupt", "dropout"]
    assert "1 of 5 parties lost; write dropout = 0.0 to tolerate no loss" in faults[1].reason
    # Where no loss is no help either, or is asked for, the default is not to blame.
    for more in ({"corrupt": 0.9}, {"corrupt": 0.4, "dropout": 0.2}):
        checked, faults = checker_of("secagg", 2)({**GOOD, "epsilon": 1.0, "delta": 1e-6, **more}, 5)
        assert checked is None
        assert not any("write dropout" in fault.reason for fault in faults)


@pytest.mark.parametrize(
    "key", ["length", "lower", "upper", "precision", "max_weight", "dropout", "security"]
)
@pytest.mark.parametrize("digits", [400, 6000])
def test_huge_numbers_are_named(key: str, digits: int) -> None:
    checked, faults = check_parameters({**GOOD, key: 10**digits}, 5)
    assert checked is None
    assert key in [fault.where for fault in faults]
    assert all(len(str(fault)) < 300 for fault in faults)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"lower": -(10**400)}, "lower"),
        ({"lower": "a"}, "lower"),
        ({"upper": None}, "upper"),
        ({"threads": 0}, "threads"),
        ({"threads": 1_000_000}, "threads"),
        ({"seed_for_simulation": -1}, "seed_for_simulation"),
        ({"dropout": "a"}, "dropout"),
        ({"weights": [1, 2, 0.5]}, "weights[2]"),
        ({"precision": "a"}, "precision"),
    ],
)
def test_arguments_of_a_simulation(changes: dict[str, Any], where: str) -> None:
    arguments: dict[str, Any] = {"lower": -1.0, "upper": 1.0, **changes}
    with pytest.raises(ConfigError) as raised:
        simulate.average(np.zeros((3, 2)), **arguments)
    assert [fault.where for fault in raised.value.issues] == [where]


def test_numbers_of_numpy_are_numbers() -> None:
    bounds: dict[str, Any] = {"lower": np.float32(-1), "upper": np.int64(1)}
    result = simulate.average(np.ones((3, 2)), **bounds)
    assert result.value.tolist() == [1.0, 1.0]


def test_what_a_verifiable_session_does_not_protect_is_said_once_with_a_warning_of_delta() -> None:
    given = PRIVATE | {"verifiable": True, "delta": 0.25}
    checked, faults = checker_of("gopa", 4)(given, 8)
    assert isinstance(checked, VerifiableParameters), faults
    claimed = checked.privacy(8).not_protected
    assert len(set(claimed)) == len(claimed)
    assert sum("delta" in line for line in claimed) == 1
    assert not any("the aggregator may report another sum" in line for line in claimed)
