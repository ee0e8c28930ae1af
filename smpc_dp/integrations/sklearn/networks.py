"""Classifiers that simulate a network of parties in one process: each group of rows is a party's data.

The guarantee is of the fitted models, and of all messages that the parties would have sent. Whoever calls
`fit` has the rows. Labels, groups and the number of rows of each group are public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp import simulate
from smpc_dp.capabilities.learn.boosting import PersonalizedBoosting as BoostingSettings
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.optional import import_optional
from smpc_dp.privacy.record_gradients import Mechanism
from smpc_dp.values import refuse_masked

import_optional("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402 - says first which extra has it
from sklearn.metrics import accuracy_score  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

Floats = NDArray[np.float64]
# Lower and upper bounds of features: numbers, or one of each column.
Bounds = tuple[ArrayLike, ArrayLike]
# "ring", "complete", or pairs of groups.
Graph = Literal["ring", "complete"] | Sequence[tuple[Any, Any]]


class _NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of scikit-learn classifiers that simulate a network of parties training together.

    Attributes:
        classes_: the labels, taken for public.
        parties_: the groups, sorted.
        learned_: the `Learned` of the simulation.
        privacy_: the `PrivacyGuarantee` of all that was released, None without epsilon.
    """

    bounds: Bounds
    epsilon: float | None

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:  # noqa: N803 - scikit-learn's
        """Simulate training, rows divided by `groups`; return self; ConfigError or ValueError if unfit.

        Args:
            X: features, shape (rows, columns); those beyond `bounds` count as the nearest bound.
            y: labels, shape (rows,).
            groups: the party of each row, shape (rows,); None: each row is a party of its own.

        Raises:
            ConfigError: groups, bounds or a setting is refused.
            ValueError: rows or labels are refused by scikit-learn.
            PrivacyError: values are masked.
        """
        refuse_masked("X", X)
        refuse_masked("y", y)
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {self.classes_}")
        if len(self.classes_) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise ValueError(
                f"Only binary classification is supported. {type(self).__name__} got {len(self.classes_)} "
                "classes. Unknown label type: multiclass"
            )
        groups = np.arange(len(rows)) if groups is None else np.asarray(groups)
        if groups.shape != (len(rows),):
            reason = f"shape must be ({len(rows)},), is {groups.shape}"
            raise ConfigError.at("groups", reason, ConfigCheck.SHAPE)
        self.parties_, numbers = np.unique(groups, return_inverse=True)
        table = np.column_stack([np.clip(self._scaled(rows), -1.0, 1.0), codes])
        tables = [table[numbers == party] for party in range(len(self.parties_))]
        settings = self._settings([len(one) for one in tables], rows.shape[1])
        self.learned_ = simulate.learn(
            {name: value for name, value in settings.items() if value is not None}, tables
        )
        self.privacy_ = self.learned_.guarantee
        self._keep(self.learned_.values)
        return self

    def _scaled(self, rows: Floats) -> Floats:
        """Return features scaled so that their bounds become -1 and 1."""
        centre, half = self._box(rows.shape[1])
        return np.asarray((rows - centre) / half)

    def _box(self, features: int) -> tuple[Floats, Floats]:
        """Return the centre and half width of each feature's bounds; raise ConfigError if invalid."""
        try:
            lower, upper = (np.broadcast_to(np.asarray(one, np.float64), features) for one in self.bounds)
        except (TypeError, ValueError):
            reason = f"must be (lower, upper), each a number or {features} numbers"
            raise ConfigError.at("bounds", reason, ConfigCheck.SHAPE) from None
        if not (np.isfinite(lower) & np.isfinite(upper) & (lower < upper)).all():
            raise ConfigError.at("bounds", "must be finite, lower below upper", ConfigCheck.RANGE)
        return (lower + upper) / 2, (upper - lower) / 2

    def _linear(self, weights: Floats) -> tuple[Floats, Floats]:
        """Convert models on scaled features to (coefficients, intercepts) on the original ones."""
        centre, half = self._box(self.n_features_in_)
        coefficients = weights[:, :-1] / half
        return coefficients, weights[:, -1] - coefficients @ centre

    def _settings(self, sizes: list[int], features: int) -> dict[str, Any]:
        """Return the simulation's arguments for party sizes and features; subclasses override it."""
        raise NotImplementedError

    def _keep(self, values: Floats) -> None:
        """Store the learned models as fitted attributes; subclasses implement this."""
        raise NotImplementedError

    def _rows(self, rows: Any) -> Floats:
        """Return features as an array; raise NotFittedError before `fit`, ValueError if malformed."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, rows, dtype=np.float64, reset=False))

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.epsilon is not None
        tags.classifier_tags.multi_class = False
        return tags


class _PersonalizedClassifier(_NetworkClassifier):
    """Base of scikit-learn classifiers that learn one model for each party of a network."""

    def decision_function(self, X: Any, groups: Any = None) -> Floats:  # noqa: N803
        """Return each row's score, above 0 for `classes_[1]`, by its group's model, or raise ConfigError.

        Args:
            groups: the party of each row, whose model scores it; None: the mean of all parties' models.

        Raises:
            ConfigError: a group has no model.
        """
        terms = self._terms(self._rows(X))
        if groups is None:
            return np.asarray(terms @ self.learned_.values.mean(axis=0))
        groups = np.asarray(groups)
        if groups.shape != (len(terms),):
            reason = f"shape must be ({len(terms)},), is {groups.shape}"
            raise ConfigError.at("groups", reason, ConfigCheck.SHAPE)
        unknown = groups[~np.isin(groups, self.parties_)]
        if len(unknown):
            reason = f"{unknown[0]!r} was not among those of fit"
            raise ConfigError.at("groups", reason, ConfigCheck.UNKNOWN_NAME)
        models = self.learned_.values[np.searchsorted(self.parties_, groups)]
        return np.asarray((terms * models).sum(axis=1))

    def predict(self, X: Any, groups: Any = None) -> NDArray[Any]:  # noqa: N803
        """Return each row's label, by the model of its group, or by the mean of all models."""
        positive = self.decision_function(X, groups) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:  # noqa: N803
        """Return the accuracy of predictions by the models of the rows' groups, or by the mean of all."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _terms(self, rows: Floats) -> Floats:
        """Return by row the values that a model's weights multiply; subclasses override it."""
        raise NotImplementedError

    def _edges(self) -> Any:
        """Return a topology's name unchanged, or its edges as numbers of groups; ConfigError if unknown."""
        topology: Any = self.topology
        if isinstance(topology, str):
            return topology
        ends = np.asarray(list(topology))
        unknown = ends[~np.isin(ends, self.parties_)]
        if len(unknown):
            raise ConfigError.at("topology", f"{unknown[0]!r} has no rows", ConfigCheck.UNKNOWN_NAME)
        return np.searchsorted(self.parties_, ends).tolist()


class PersonalizedLogisticRegression(_PersonalizedClassifier):
    """Scikit-learn classifier: a logistic regression for each party, drawn towards its neighbours'.

    Learner `personalized`; unit of privacy: one row.

    Args:
        epsilon, delta: for one row, of all messages and models; both None: NO privacy.
        bounds: (lower, upper) of features, public.
        rounds: updates of a party on average.
        topology: "ring" or "complete", or pairs of groups; `weights`: of the pairs, 1 each by default.
        coupling, ridge, seed: as of the learner; `seed` is public, of who updates when.
        mechanism: of the noise: "gaussian", or "k-norm" or "laplace", which need delta=None.
        start: the learner's table `start`, such as {"share": 0.2}: private local models, propagated over the
            graph, that models start from; None: models start at 0.

    Attributes:
        coef_, intercept_: shapes (parties, columns) and (parties,).
    """

    def __init__(
        self,
        *,
        epsilon: float | None,
        delta: float | None,
        bounds: Bounds,
        rounds: int = 20,
        topology: Graph = "complete",
        weights: Sequence[float] = (),
        coupling: float = 1.0,
        ridge: float = 1.0,
        mechanism: Mechanism = "gaussian",
        start: Mapping[str, Any] | None = None,
        seed: int = 1,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.rounds = rounds
        self.topology = topology
        self.weights = weights
        self.coupling = coupling
        self.ridge = ridge
        self.mechanism = mechanism
        self.start = start
        self.seed = seed

    def _settings(self, sizes: list[int], features: int) -> dict[str, Any]:
        """Return the simulation's parameters for these numbers of rows and features."""
        return {
            "learner": "personalized",
            "features": features,
            "sizes": sizes,
            "ticks": self.rounds * len(sizes),
            "record_bound": float(np.sqrt(features)),
            "topology": self._edges(),
            "weights": list(self.weights),
            "coupling": self.coupling,
            "ridge": self.ridge,
            "mechanism": self.mechanism,
            "start": self.start,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
        }

    def _keep(self, values: Floats) -> None:
        """Store the learned models as the fitted attributes `coef_` and `intercept_`."""
        self.coef_, self.intercept_ = self._linear(values)

    def _terms(self, rows: Floats) -> Floats:
        """Return the rows scaled, with a column of ones for the intercept."""
        return np.column_stack([self._scaled(rows), np.ones(len(rows))])

    def predict_proba(self, X: Any, groups: Any = None) -> Floats:  # noqa: N803
        """Return class probabilities, shape (rows, 2), by the rows' groups' models, or by their mean."""
        return _probabilities(self.decision_function(X, groups))


class PersonalizedBoosting(_PersonalizedClassifier):
    """Scikit-learn classifier: weighted decision stumps for each party, drawn towards its neighbours'.

    Learner `personalized-boosting`; unit of privacy: one row. With privacy it needs hundreds of rows a party.

    Args:
        stumps: thresholds of each column, evenly spaced within `bounds`.
        beta: the l1 norm of a combination at most.
        epsilon, delta, bounds, rounds, topology, weights, coupling, seed: as of
            `PersonalizedLogisticRegression`.

    Attributes:
        coef_: of the stumps, thresholds of a column side by side; shape (parties, columns * stumps).
    """

    def __init__(
        self,
        *,
        epsilon: float | None,
        delta: float | None,
        bounds: Bounds,
        stumps: int = 7,
        beta: float = 1.0,
        rounds: int = 20,
        topology: Graph = "complete",
        weights: Sequence[float] = (),
        coupling: float = 1.0,
        seed: int = 1,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.stumps = stumps
        self.beta = beta
        self.rounds = rounds
        self.topology = topology
        self.weights = weights
        self.coupling = coupling
        self.seed = seed

    def _settings(self, sizes: list[int], features: int) -> dict[str, Any]:
        """Return the simulation's parameters for these numbers of rows and features."""
        return {
            "learner": "personalized-boosting",
            "features": features,
            "sizes": sizes,
            "ticks": self.rounds * len(sizes),
            "beta": self.beta,
            "stumps": self.stumps,
            "topology": self._edges(),
            "weights": list(self.weights),
            "coupling": self.coupling,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
        }

    def _keep(self, values: Floats) -> None:
        """Store the learned weights of the decision stumps as the fitted attribute `coef_`."""
        self.coef_ = values

    def _terms(self, rows: Floats) -> Floats:
        """Return the value of every decision stump on each row."""
        # The margins of a row with label 1 are the predictors' values.
        labelled = np.column_stack([self._scaled(rows), np.ones(len(rows))])
        settings = BoostingSettings(
            features=rows.shape[1], sizes=(1,), ticks=1, beta=self.beta, stumps=self.stumps
        )
        return settings.margins(labelled)


class NetworkDPLogisticRegression(_NetworkClassifier):
    """Scikit-learn classifier: logistic regression by a token that visits parties, with noise each step.

    Learner `walk-sgd`; unit of privacy: all rows of a party, towards `colluding` other parties.

    Args:
        epsilon, delta: for all rows of a party.
        bounds: (lower, upper) of features, public.
        rounds: steps of the walk, for each party on average.
        colluding: parties who pool what they see.
        rate, clip: step size, and L2 norm that a party's gradient is clipped to.

    Attributes:
        coef_, intercept_: as of scikit-learn's `LogisticRegression`.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        bounds: Bounds,
        rounds: int = 5,
        colluding: int = 1,
        rate: float = 0.1,
        clip: float = 1.0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.rounds = rounds
        self.colluding = colluding
        self.rate = rate
        self.clip = clip

    def _settings(self, sizes: list[int], features: int) -> dict[str, Any]:
        """Return the simulation's parameters for these numbers of rows and features."""
        return {
            "learner": "walk-sgd",
            "features": features,
            "steps": 1 + self.rounds * len(sizes),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "colluding": self.colluding,
            "rate": self.rate,
            "clip": self.clip,
            "model": "softmax" if len(self.classes_) > 2 else "logistic",
            "classes": len(self.classes_) if len(self.classes_) > 2 else None,
        }

    def _keep(self, values: Floats) -> None:
        """Store the learned models as the fitted attributes `coef_` and `intercept_`."""
        self.coef_, self.intercept_ = self._linear(values[0].reshape(-1, self.n_features_in_ + 1))

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return scores, above 0 for `classes_[1]`, shape (rows,); of more classes (rows, classes)."""
        scores = self._rows(X) @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.coef_) == 1 else scores)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the predicted label of each row, shape (rows,)."""
        scores = self.decision_function(X)
        numbers = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return probabilities of the classes, shape (rows, classes)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return _probabilities(scores)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


def _probabilities(scores: Floats) -> Floats:
    """Return the probabilities of two classes by the logistic function of the scores."""
    second = 0.5 * (1 + np.tanh(scores / 2))
    return np.column_stack([1 - second, second])
