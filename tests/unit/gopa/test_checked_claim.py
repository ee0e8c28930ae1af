"""Sentences of claims of GOPA with roll-back, with totals that each receiver checks and without."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.capabilities.gopa.params import check_parameters
from smpc_dp.engine.result import Claim
from smpc_dp.privacy.named_sentences import NamedSentences

GIVEN: dict[str, Any] = {"length": 1, "lower": 0, "upper": 8, "kind": "integer"}
GIVEN |= {"epsilon": 1.0, "delta": 1e-3, "on_dropout": "roll-back"}
# Name of the limit of what the aggregator may report.
WORD = "other_sum"


def claim(total: str, corrupt: float = 0.0) -> Claim:
    parameters, issues = check_parameters(GIVEN | {"total": total, "corrupt": corrupt}, 6)
    assert parameters is not None, issues
    return parameters.claim(5)


def one(sentences: NamedSentences, name: str) -> str:
    return dict(sentences.items)[name]


@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_a_check_adds_to_the_claim_and_replaces_what_is_said_of_another_sum(corrupt: float) -> None:
    taken, checked = claim("unchecked", corrupt), claim("checked", corrupt)
    assert checked.clauses.without("total") == taken.clauses
    assert checked.premises.without("commitments") == taken.premises
    assert checked.limits.names == (*taken.limits.names, "first", "unopened")
    assert checked.limits.without(WORD, "first", "unopened") == taken.limits.without(WORD)
    assert checked.guarantee == taken.guarantee
    assert ("and up to 1 of 6 parties that collude" in one(checked.clauses, "total")) == (corrupt > 0)


def test_only_a_checked_total_does_not_rest_on_the_word_of_the_aggregator() -> None:
    assert one(claim("unchecked").limits, WORD).startswith("the aggregator may report another sum")
    checked = claim("checked")
    assert "aggregator" not in one(checked.limits, WORD)
    assert "the sum of the survivors' vectors with their own noise" in one(checked.clauses, "total")
    assert one(checked.limits, "first").endswith("but for the fresh noise in it")
