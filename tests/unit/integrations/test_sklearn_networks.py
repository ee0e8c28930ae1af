"""Classifiers of scikit-learn that simulate a network: its own checks, groups, bounds, privacy."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_fit_idempotent, parametrize_with_checks
from sklearn.utils.validation import _num_samples

from smpc_dp import simulate
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.integrations.sklearn import (
    NetworkDPLogisticRegression,
    PersonalizedBoosting,
    PersonalizedLogisticRegression,
)

BOUNDS = (-15.0, 15.0)
OPEN: dict[str, Any] = {"epsilon": None, "delta": None}
PRIVATE: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-5}
RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, (60, 2))
Y = np.where(X[:, 0] - 0.5 * X[:, 1] > 0, "yes", "no")
GROUPS = np.repeat(["a", "b", "c"], 20)


class _Dealt:
    """Rows dealt in turn to a few parties where a check names none."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:  # noqa: N803
        try:
            groups = np.arange(_num_samples(X)) % 3
        except TypeError:
            groups = None  # For fit to refuse.
        return super().fit(X, y, groups)  # type: ignore[misc,no-any-return]


# scikit-learn's checks demand the class's own constructor, which these inherit.
class Logistic(_Dealt, PersonalizedLogisticRegression):
    pass


class Boosting(_Dealt, PersonalizedBoosting):
    pass


class Walk(_Dealt, NetworkDPLogisticRegression):
    pass


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed the noise: with the system's, two fits differ."""
    monkeypatch.setattr(
        "smpc_dp.integrations.sklearn.networks.simulate.learn",
        partial(simulate.learn, seed_for_simulation=1),
    )


def expected_failures(estimator: Any) -> dict[str, str]:
    """Return the checks that this estimator fails."""
    if isinstance(estimator, Walk):
        return {"check_classifiers_train": "three parties need too much noise for 83 % of the labels"}
    return {}


@pytest.mark.thin(24)
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        Logistic(bounds=BOUNDS, **OPEN),
        Logistic(bounds=BOUNDS, **PRIVATE),
        Logistic(bounds=BOUNDS, epsilon=50.0, delta=None, rounds=5, mechanism="k-norm", start={"share": 0.5}),
        Boosting(bounds=BOUNDS, **OPEN),
        Boosting(bounds=BOUNDS, **PRIVATE),
        Walk(bounds=BOUNDS, **PRIVATE),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.usefixtures("seeded")
def test_scikit_learns_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [Logistic, Boosting, Walk])
def test_the_noise_is_the_systems_so_that_two_fits_differ(kind: Any) -> None:
    with pytest.raises(AssertionError, match="Idempotency check failed"):
        check_fit_idempotent(kind.__name__, kind(bounds=BOUNDS, **PRIVATE))


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (PersonalizedLogisticRegression, "record"),
        (PersonalizedBoosting, "record"),
        (NetworkDPLogisticRegression, "party"),
    ],
)
def test_a_fitted_object_carries_its_privacy(kind: Any, unit: str) -> None:
    fitted = kind(bounds=(-1, 1), epsilon=4.0, delta=1e-6).fit(X, Y, GROUPS)
    guarantee = fitted.privacy_
    assert (guarantee.epsilon, guarantee.delta, guarantee.protects) == (4.0, 1e-6, unit)
    assert fitted.learned_.guarantee is guarantee
    assert list(fitted.classes_) == ["no", "yes"]
    assert list(fitted.parties_) == ["a", "b", "c"]


@pytest.mark.parametrize("mechanism", ["gaussian", "k-norm", "laplace"])
def test_a_private_start_and_a_mechanism_are_the_learners(seeded: None, mechanism: str) -> None:
    delta = 1e-6 if mechanism == "gaussian" else None
    given: dict[str, Any] = {"bounds": (-1, 1), "epsilon": 4.0, "delta": delta, "mechanism": mechanism}
    fitted = PersonalizedLogisticRegression(start={"share": 0.3, "rounds": 4}, **given).fit(X, Y, GROUPS)
    settings = {
        "learner": "personalized",
        "features": 2,
        "sizes": [20] * 3,
        "ticks": 60,
        "record_bound": 2**0.5,
        "epsilon": 4.0,
        "mechanism": mechanism,
        "start": {"share": 0.3, "rounds": 4},
    }
    settings |= {} if delta is None else {"delta": delta}
    tables = [np.column_stack([X, Y == "yes"])[group == GROUPS] for group in "abc"]
    learned = simulate.learn(settings, tables, seed_for_simulation=1)
    assert np.array_equal(fitted.learned_.values, learned.values)
    assert fitted.privacy_ is not None
    assert fitted.privacy_ == learned.guarantee
    assert (fitted.privacy_.epsilon, fitted.privacy_.delta) == (4.0, delta or 0.0)
    assert "local models" in fitted.privacy_.mechanism


def test_without_epsilon_there_is_no_guarantee() -> None:
    assert PersonalizedLogisticRegression(bounds=(-1, 1), **OPEN).fit(X, Y, GROUPS).privacy_ is None


def test_models_are_the_learners_on_scaled_features() -> None:
    """Bounds of a column become -1 and 1; coefficients are of the unscaled features."""
    lower, upper = np.array([-3.0, -2.0]), np.array([1.0, 6.0])
    scaled = (X - (lower + upper) / 2) * 2 / (upper - lower)
    tables = [np.column_stack([scaled, Y == "yes"])[group == GROUPS] for group in "abc"]
    settings = {
        "learner": "personalized",
        "features": 2,
        "sizes": [20] * 3,
        "ticks": 60,
        "record_bound": 2**0.5,
        "topology": [[0, 1], [1, 2]],
        "weights": [2.0, 0.5],
    }
    learned = simulate.learn(settings, tables)
    fitted = PersonalizedLogisticRegression(
        bounds=(lower, upper), topology=[("a", "b"), ("b", "c")], weights=[2.0, 0.5], **OPEN
    ).fit(X, Y, GROUPS)
    assert np.array_equal(fitted.learned_.values, learned.values)
    scores = X @ fitted.coef_.T + fitted.intercept_
    assert np.allclose(scores, scaled @ learned.values[:, :2].T + learned.values[:, 2])
    own = scores[np.arange(60), np.repeat(range(3), 20)]
    assert np.allclose(fitted.decision_function(X, GROUPS), own)
    assert np.allclose(fitted.decision_function(X), scores.mean(axis=1))
    assert fitted.score(X, Y, groups=GROUPS) == np.mean((own > 0) == (Y == "yes"))
    assert np.allclose(fitted.predict_proba(X, GROUPS)[:, 1], 1 / (1 + np.exp(-own)))


def test_parties_with_opposite_labels_have_models_of_their_own() -> None:
    labels = np.where(GROUPS == "a", X[:, 0] > 0, X[:, 0] < 0)
    for kind in (PersonalizedLogisticRegression, PersonalizedBoosting):
        fitted = kind(bounds=(-1, 1), coupling=0.01, **OPEN).fit(X, labels, GROUPS)
        assert fitted.score(X, labels, groups=GROUPS) > 0.9
        assert fitted.score(X, labels) < 0.75


def test_without_groups_each_row_is_a_party() -> None:
    fitted = NetworkDPLogisticRegression(bounds=(-1, 1), **PRIVATE).fit(X, Y)
    assert len(fitted.parties_) == 60


def test_features_beyond_the_bounds_count_as_the_bound() -> None:
    far = np.where(X > 0.5, 1e6, X)
    fits = [
        PersonalizedLogisticRegression(bounds=(-1, 0.5), **OPEN).fit(rows, Y, GROUPS)
        for rows in (far, np.minimum(X, 0.5))
    ]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)


def test_a_walk_takes_several_classes() -> None:
    labels = np.repeat([3, 5, 9], 20)
    fitted = NetworkDPLogisticRegression(bounds=(-1, 1), **PRIVATE).fit(X, labels, GROUPS)
    assert fitted.coef_.shape == (3, 2)
    assert np.allclose(fitted.predict_proba(X).sum(axis=1), 1)
    assert np.array_equal(fitted.predict(X), fitted.classes_[fitted.predict_proba(X).argmax(axis=1)])


@pytest.mark.parametrize(
    ("settings", "groups", "where", "check"),
    [
        ({}, GROUPS[:5], "groups", ConfigCheck.SHAPE),
        ({"bounds": 1.0}, GROUPS, "bounds", ConfigCheck.SHAPE),
        ({"bounds": ([0, 0, 0], 1.0)}, GROUPS, "bounds", ConfigCheck.SHAPE),
        ({"bounds": (1.0, -1.0)}, GROUPS, "bounds", ConfigCheck.RANGE),
        ({"bounds": (-1.0, np.inf)}, GROUPS, "bounds", ConfigCheck.RANGE),
        ({"epsilon": 1.0}, GROUPS, "delta", ConfigCheck.MISSING),
        ({"topology": [("a", "z")]}, GROUPS, "topology", ConfigCheck.UNKNOWN_NAME),
        ({"mechanism": "laplace", "epsilon": 1.0, "delta": 1e-6}, GROUPS, "delta", ConfigCheck.UNSUPPORTED),
        ({"mechanism": "normal"}, GROUPS, "mechanism", ConfigCheck.CHOICE),
        ({"mechanism": "k-norm"}, GROUPS, "mechanism", ConfigCheck.UNSUPPORTED),
        ({"start": {"share": 2.0}}, GROUPS, "start.share", ConfigCheck.RANGE),
        ({"start": {"shares": 0.2}}, GROUPS, "start.shares", ConfigCheck.UNKNOWN_KEY),
    ],
)
def test_bad_groups_bounds_and_settings_are_refused(
    settings: dict[str, Any], groups: Any, where: str, check: ConfigCheck
) -> None:
    with pytest.raises(ConfigError) as error:
        PersonalizedLogisticRegression(**{"bounds": (-1.0, 1.0), **OPEN, **settings}).fit(X, Y, groups)
    assert [(issue.where, issue.check) for issue in error.value.issues] == [(where, check)]


def test_a_group_without_a_model_is_refused() -> None:
    fitted = PersonalizedLogisticRegression(bounds=(-1, 1), **OPEN).fit(X, Y, GROUPS)
    with pytest.raises(ConfigError, match="was not among those of fit"):
        fitted.predict(X, np.repeat("d", 60))
    with pytest.raises(ConfigError, match="groups: shape must be"):
        fitted.predict(X, GROUPS[:3])


def test_epsilon_delta_and_bounds_have_no_default() -> None:
    for kind in (PersonalizedLogisticRegression, PersonalizedBoosting, NetworkDPLogisticRegression):
        with pytest.raises(TypeError, match=r"epsilon.*delta.*bounds"):
            kind()  # type: ignore[call-arg]
