"""Sentences of claims of secure sums, with totals that each receiver checks and without."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from smpc_dp.engine.result import Claim
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.params import check_parameters

EXACT: dict[str, Any] = {"length": 1, "lower": 0, "upper": 8, "kind": "integer"}
NOISY = EXACT | {"epsilon": 1.0, "delta": 1e-3}
KINDS = {"exact": EXACT, "noisy": NOISY}


def claim(kind: str, total: str, corrupt: float = 0.0) -> Claim:
    check: Any = check_noisy if kind == "noisy" else check_parameters
    parameters, issues = check(KINDS[kind] | {"total": total, "corrupt": corrupt}, 6)
    assert parameters is not None, issues
    result: Claim = parameters.claim(5)
    return result


def one(sentences: NamedSentences, name: str) -> str:
    return dict(sentences.items)[name]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_a_check_adds_to_the_claim_and_replaces_what_is_said_of_lies(kind: str, corrupt: float) -> None:
    taken, checked = claim(kind, "unchecked", corrupt), claim(kind, "checked", corrupt)
    assert checked.clauses.without("total") == taken.clauses
    assert checked.premises.without("commitments") == taken.premises
    assert checked.limits.names == (*taken.limits.names, "first", "unopened")
    assert checked.limits.without("lies", "first", "unopened") == taken.limits.without("lies")
    assert checked.guarantee == taken.guarantee


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_unchecked_total_is_the_word_of_the_aggregator(kind: str) -> None:
    limits = claim(kind, "unchecked").limits
    assert one(limits, "lies") == (
        "a party may lie about its input, and an aggregator about the sum that it reports"
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_checked_total_does_not_rest_on_the_word_of_the_aggregator(kind: str) -> None:
    checked = claim(kind, "checked")
    assert "aggregator" not in one(checked.limits, "lies")
    assert "ristretto255" in one(checked.premises, "commitments")
    assert "sees the total first" in one(checked.limits, "first")
    assert "is not found" in one(checked.limits, "unopened")


def test_the_clause_about_the_total_says_how_many_may_collude() -> None:
    alone, colluding = (one(claim("exact", "checked", corrupt).clauses, "total") for corrupt in (0.0, 0.2))
    assert alone.endswith(
        "the sum of the survivors' vectors, against an aggregator that deviates, without "
        "any party that colludes with it"
    )
    assert "and of one vector for each corrupt survivor, fixed before" in colluding
    assert colluding.endswith("and up to 1 of 6 parties that collude with it")


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_of_many_the_claim_says_who_checks(kind: str, corrupt: float) -> None:
    check: Any = check_noisy if kind == "noisy" else check_parameters
    few, _ = check(KINDS[kind] | {"total": "checked", "corrupt": corrupt}, 6)
    all_check, some_check = few.claim(5), msgspec.structs.replace(few, most_shown=5).claim(5)
    assert some_check.limits.without("checkers") == all_check.limits
    assert "see it before the others" in one(some_check.limits, "checkers")
    least = 1 + few.plan.max_corrupt
    checked = f"some survivors check the total for all, and a party takes it from {least} of them at least"
    assert one(some_check.clauses, "total") == one(all_check.clauses, "total").replace(
        "every party checks the total", checked
    )
    assert some_check.clauses.without("total") == all_check.clauses.without("total")


def test_what_is_committed_to_has_the_noise() -> None:
    checked = claim("noisy", "checked")
    assert "the survivors' vectors with their noise" in one(checked.clauses, "total")
    assert one(checked.limits, "first").endswith("but for the fresh noise in it")
    assert "noise" not in one(claim("exact", "checked").limits, "first")
