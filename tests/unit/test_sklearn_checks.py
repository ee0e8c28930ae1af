"""scikit-learn's own checks of `SecureAveraged`, on a session of one party; what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.integrations.sklearn import SecureAveraged

# Of any type: `OneParty` is no session of the library.
secure: Any = SecureAveraged
X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
Y = np.array([0, 0, 1, 1])
EXPECTED_FAILURES = {"check_estimators_overwrite_params": "fit changes its session, which counts requests"}


class OneParty:
    """A session whose average is its one party's own tree."""

    def __init__(self, max_weight: int = 10**9) -> None:
        self.max_weight = max_weight
        self.requests: list[dict[str, Any]] = []

    def average(self, tree: dict[str, Any], /, **options: Any) -> Any:
        self.requests.append(options)
        return SimpleNamespace(tree=tree)

    def __repr__(self) -> str:
        # Names of tests have it: it must be the same in every process.
        return "OneParty()"

    def __sklearn_clone__(self) -> Self:
        return self


@pytest.mark.thin(3)
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [secure(LogisticRegression(), OneParty()), secure(Ridge(), OneParty())],
    expected_failed_checks=lambda _estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [KMeans(2), SVC(kernel="linear"), SVC(), MLPClassifier(), make_pipeline(StandardScaler(), Ridge())],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_estimator_without_linear_coefficients_is_refused_before_a_request(estimator: Any) -> None:
    session = OneParty()
    with pytest.raises(ConfigError, match="does not predict from coef_ and intercept_ alone") as error:
        secure(estimator, session).fit(X, Y)
    assert [(issue.where, issue.check) for issue in error.value.issues] == [
        ("estimator", ConfigCheck.UNSUPPORTED)
    ]
    assert session.requests == []


@pytest.mark.parametrize(
    ("session", "options", "where"),
    [
        (None, {}, "session"),
        (OneParty(max_weight=0), {"sample_weight": np.ones(4)}, "sample_weight"),
    ],
)
def test_a_fit_without_session_or_with_weights_that_it_lacks_is_refused(
    session: OneParty | None, options: dict[str, Any], where: str
) -> None:
    with pytest.raises(ConfigError) as error:
        secure(Ridge(), session).fit(X, Y, **options)
    assert [issue.where for issue in error.value.issues] == [where]
    assert session is None or session.requests == []


def test_a_long_label_is_refused() -> None:
    session = OneParty()
    with pytest.raises(ConfigError, match="label: at most 32 characters, has 33"):
        secure(Ridge(), session, label="x" * 33).fit(X, Y)
    assert session.requests == []


def test_the_weight_is_the_number_of_rows_or_the_sum_of_their_weights() -> None:
    session = OneParty()
    secure(Ridge(), session).fit(X, Y)
    secure(Ridge(), session).fit(X, Y, sample_weight=[1, 2, 3, 4])
    secure(Ridge(), OneParty(max_weight=0)).fit(X, Y)
    assert [options["weight"] for options in session.requests] == [4, 10.0]


def test_sample_weights_weigh_the_own_fit_too() -> None:
    weights = np.array([1, 1, 5, 1])
    fitted = secure(Ridge(), OneParty()).fit(X, Y, sample_weight=weights)
    assert fitted.estimator_.coef_.tolist() == Ridge().fit(X, Y, sample_weight=weights).coef_.tolist()


def test_labels_differ_where_coefficients_are_of_something_else() -> None:
    labels = set()
    for estimator, classes in (
        (LogisticRegression(), Y),
        (LogisticRegression(), Y + 1),
        (LogisticRegression(), Y.astype(str)),
        (Ridge(), Y),
        (LinearRegression(), Y),
        (PoissonRegressor(), Y),
    ):
        session = OneParty()
        secure(estimator, session, label="round 1").fit(X, classes)
        labels.add(session.requests[0]["label"])
    # Classes "0" and "1" are 0 and 1.
    assert len(labels) == 5
    assert all(label.startswith("round 1 fit:") and len(label) <= 64 for label in labels)
