"""What SecureAveraged compares of a fitted model, without a session."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from smpc_dp.errors import Check, Code, PeerFault
from smpc_dp.integrations.sklearn import SecureAveraged

X = np.random.default_rng(0).normal(size=(40, 2))
Y = (X[:, 0] > 0).astype(int)


def asked(labels: Any, *, names: list[str] | None = None) -> str:
    """Return the label of the request of a party with these class labels."""
    session = mock.Mock(max_weight=0)
    session.average.return_value = mock.Mock(tree={})
    model = LogisticRegression().fit(X, labels)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    with mock.patch("smpc_dp.integrations.sklearn.averaged.clone", return_value=model):
        model.fit = mock.Mock()
        SecureAveraged(LogisticRegression(), session).fit(X, labels)
    return str(session.average.call_args.kwargs["label"])


@pytest.mark.parametrize("kind", [float, bool, np.int8, str, "f4"])
def test_labels_of_one_value_are_one(kind: Any) -> None:
    assert asked(Y.astype(kind)) == asked(Y)


@pytest.mark.parametrize(
    "other", [Y + 1, Y * 2, np.where(Y, "yes", "no"), np.where(np.arange(40) < 3, 2, Y), -Y]
)
def test_other_labels_are_others(other: Any) -> None:
    assert asked(other) != asked(Y)


def test_names_of_columns_count_without_blanks() -> None:
    assert asked(Y, names=["age ", "bmi"]) == asked(Y, names=["age", "bmi"]) != asked(Y)
    assert asked(Y, names=["bmi", "age"]) != asked(Y, names=["age", "bmi"])


def refused(culprit: str) -> PeerFault:
    return PeerFault(culprit, "asks for something else", Check.REPORTED, code=Code.OPERATION)


def test_a_party_that_differs_reads_what_is_compared() -> None:
    session = mock.Mock(max_weight=0, party="bob")
    session.average.side_effect = refused("bob")
    with pytest.raises(PeerFault) as caught:
        SecureAveraged(LogisticRegression(), session, label="round 1").fit(X, Y.astype(float))
    for part in (
        "bob: fits another model than most others",
        "label 'round 1'; estimator LogisticRegression, 2 columns; class labels 0, 1",
        "names of columns (of a frame) none",
    ):
        assert part in str(caught.value)
    assert caught.value.code is Code.OPERATION
    # An error about another party is left as it is.
    session.average.side_effect = refused("carol")
    with pytest.raises(PeerFault, match="carol: asks for something else"):
        SecureAveraged(LogisticRegression(), session).fit(X, Y)
