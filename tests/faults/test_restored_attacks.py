"""The attack tests of message-driven protocols once more, with every role restored before every event."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from smpc_dp_lab.vectors import verifiable_openings
from tests.faults import (
    test_exchange,
    test_gopa_direct,
    test_gopa_direct_restarts,
    test_gopa_verifiable_rounds,
)
from tests.faults.restoring import restore_every_step

# Those without parameters of their own. They look at what a run does, not at how its states are kept.
MODULES: tuple[ModuleType, ...] = (
    test_gopa_direct,
    test_gopa_direct_restarts,
    test_exchange,
    test_gopa_verifiable_rounds,
)
# These play no run.
ALONE = ("test_a_lone_coordinator_cannot_be_what_two_quorums_share", "test_claim_speaks_of_no_aggregator")
ATTACKS: dict[str, Callable[[], None]] = {
    f"{module.__name__.split('.')[-1]}: {name}": function
    for module in MODULES
    for name, function in vars(module).items()
    if name.startswith("test_")
    and inspect.isfunction(function)
    and not inspect.signature(function).parameters
}


# What is left of verifiable rounds plays the same steps: a run with rounds, whose log is changed.
LONG = (
    "test_on_a_sparse_graph_neighbours_see_that_an_opening_is_false",
    "test_an_opening_that_nobody_asked_for_is_the_relays_fault",
    "test_a_user_that_was_told_of_another_false_one_signs_no_wrong_opening",
    "test_a_log_with_rounds_can_be_changed_and_cut_nowhere",
)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "attack",
    [pytest.param(attack, marks=pytest.mark.long if attack.endswith(LONG) else ()) for attack in ATTACKS],
)
def test_an_attack_on_restored_roles(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run that a generator of vectors has kept would play without restorations.
    for kept in (verifiable_openings.in_one_round, verifiable_openings.in_two_rounds):
        kept.cache_clear()
    processes = restore_every_step(monkeypatch)
    ATTACKS[attack]()
    assert bool(processes) != attack.endswith(ALONE)
    assert all(each.restored for each in processes)
