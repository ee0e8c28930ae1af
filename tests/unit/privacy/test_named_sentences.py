"""Named sentences: order, names that are there once, and how a claim is written from its clauses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.engine.result import Claim
from smpc_dp.errors import LocalError
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences

NAMES = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True)
STATEMENTS = st.dictionaries(NAMES, st.text(max_size=5), max_size=6).map(
    lambda given: NamedSentences.of(**given)
)
SOME = NamedSentences.of(one="first", two="second", three="third")


def test_named_sentences_are_in_the_order_in_which_they_are_made() -> None:
    assert SOME.sentences == ("first", "second", "third")
    assert NamedSentences.of(three="third", one="first", none=None).names == ("three", "one")


@given(STATEMENTS, STATEMENTS)
def test_joined_sentences_are_all_of_both_in_order_unless_they_share_a_name(
    some: NamedSentences, others: NamedSentences
) -> None:
    if {*some.names} & {*others.names}:
        with pytest.raises(LocalError, match="two sentences have the name"):
            some + others
    else:
        joined = some + others
        assert joined.items == (*some.items, *others.items)
        assert joined.without(*some.names) == others
        assert joined.without(*others.names) == some


@given(STATEMENTS, st.data())
def test_a_sentence_is_left_out_or_replaced_by_its_name_and_no_other_moves(
    some: NamedSentences, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(some.names), unique=True)) if some.names else []
    left = some.without(*chosen)
    assert left.items == tuple(item for item in some.items if item[0] not in chosen)
    replaced = some.replaced(**dict.fromkeys(chosen, "another"))
    assert replaced.names == some.names
    assert replaced.sentences == tuple(
        "another" if name in chosen else sentence for name, sentence in some.items
    )


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: SOME.without("four"),
        lambda: SOME.without("one", "four"),
        lambda: SOME.replaced(four="fourth"),
        lambda: SOME + NamedSentences.of(three="third"),
        lambda: NamedSentences((("one", "first"), ("one", "second"))),
        lambda: NamedSentences((("One", "first"),)),
        lambda: NamedSentences((("one more", "first"),)),
        lambda: NamedSentences((("", "first"),)),
    ],
)
def test_names_that_are_absent_or_there_twice_or_none_are_refused(
    attempt: Callable[[], NamedSentences],
) -> None:
    with pytest.raises(LocalError):
        attempt()


def test_a_claim_is_its_clauses_and_what_a_guarantee_says_comes_first() -> None:
    clauses = NamedSentences.of(private="private, given this:", sum="a sum", adversary="nobody learns more")
    guarantee = PrivacyGuarantee(
        1.0, 0.5, "substitution", {"l1": 1.0}, "step", "noise", "all are honest", "proof"
    )
    exact = Claim(clauses=clauses, premises=SOME, limits=SOME).privacy()
    assert exact.claim == "private, given this: a sum; nobody learns more"
    assert (exact.assumptions, exact.not_protected) == (SOME.sentences, SOME.sentences)
    assert (exact.epsilon, exact.delta, exact.unit) == (None, None, None)
    warned = PrivacyGuarantee(**{**guarantee.to_json(), "warnings": ("delta is large",)})  # type: ignore[arg-type]
    others = clauses.without("private")
    noisy = Claim(clauses=others, premises=SOME, limits=SOME, guarantee=warned).privacy()
    assert noisy.claim == "a sum; nobody learns more"
    assert noisy.assumptions == ("all are honest", *SOME.sentences)
    assert noisy.not_protected == ("delta is large", *SOME.sentences)
    assert (noisy.epsilon, noisy.delta, noisy.unit) == (1.0, 0.5, "party")
