"""Declared privacy: one entry of the ledger for any number of averages, and none that it does not permit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.integrations.declared import DeclaredPrivacy
from smpc_dp.privacy.accountant.events import Pure
from smpc_dp.privacy.accountant.ledger import Ledger


def create(folder: Path, **options: Any) -> Ledger:
    terms: dict[str, Any] = {"relation": "add-remove", "unit": "record", "epsilon": 3.0, "delta": 1e-5}
    return Ledger.create(folder / "alice.ledger", party="alice", dataset="d", **(terms | options))


def declare(ledger: Ledger, epsilon: float = 2.0, delta: float = 1e-6, **options: Any) -> DeclaredPrivacy:
    return DeclaredPrivacy(ledger.path, "alice", epsilon, delta, **options)


def test_any_number_of_averages_is_one_entry_that_says_who_declared_it(tmp_path: Path) -> None:
    ledger, counted = create(tmp_path), [0.0]
    declared = declare(ledger, spent=lambda delta: counted[0] + 1e6 * delta)
    assert ledger.entries() == ()
    for spent in (0.1, 0.5, 1.0):
        counted[0] = spent
        assert declared.permit().budget_epsilon == 3.0
    [entry] = ledger.entries()
    assert entry.event.mechanism == "local DP-SGD, declared by the caller"
    assert (entry.event.descriptions, entry.event.relation, entry.event.unit) == (
        (Pure(2.0, 1e-6),),
        "add-remove",
        "record",
    )
    assert declared.receipt is not None
    assert declared.receipt.spent.epsilon == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize("spent", [2.0001, float("inf"), float("nan")])
def test_more_than_was_declared_is_refused_and_not_charged(spent: float, tmp_path: Path) -> None:
    ledger = create(tmp_path)
    with pytest.raises(PrivacyError, match=r"alice: the accountant has counted epsilon = .*, declared is 2"):
        declare(ledger, spent=lambda _delta: spent).permit()
    assert ledger.entries() == ()


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"epsilon": 1.5}, "epsilon is short"),
        ({"delta": 1e-7}, "delta is short"),
        ({"relation": "substitution"}, "a sensitivity of one record is never converted"),
        ({"unit": "party"}, "says nothing about one party"),
    ],
)
def test_a_ledger_that_it_does_not_fit_refuses(terms: dict[str, Any], reason: str, tmp_path: Path) -> None:
    ledger = create(tmp_path, **terms)
    with pytest.raises(PrivacyError, match=reason):
        declare(ledger).permit()
    assert ledger.entries() == ()


def test_two_trainings_are_two_entries(tmp_path: Path) -> None:
    ledger = create(tmp_path)
    declare(ledger).permit()
    with pytest.raises(PrivacyError, match="epsilon is short"):
        declare(ledger).permit()


@pytest.mark.parametrize(
    ("epsilon", "delta", "names"),
    [(0.0, 1e-6, ["epsilon"]), (float("inf"), 0.0, ["epsilon"]), (float("nan"), 1.0, ["epsilon", "delta"])],
)
def test_numbers_out_of_range_are_named(
    epsilon: float, delta: float, names: list[str], tmp_path: Path
) -> None:
    ledger = create(tmp_path)
    with pytest.raises(ConfigError) as raised:
        declare(ledger, epsilon, delta)
    assert [issue.where for issue in raised.value.issues] == names
