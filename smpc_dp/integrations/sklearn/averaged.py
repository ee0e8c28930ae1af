"""Linear models of scikit-learn whose coefficients are averaged over the parties of a session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.errors import Check, Code, ConfigCheck, ConfigError, OtherRequestError, PeerFault
from smpc_dp.optional import import_optional
from smpc_dp.values import MAX_SHOWN, category_of

import_optional("sklearn")

from sklearn import linear_model  # noqa: E402 - says first which extra has it
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone  # noqa: E402
from sklearn.linear_model._base import LinearClassifierMixin, LinearModel  # noqa: E402
from sklearn.linear_model._glm.glm import _GeneralizedLinearRegressor  # noqa: E402
from sklearn.utils import get_tags  # noqa: E402
from sklearn.utils.metaestimators import available_if  # noqa: E402
from sklearn.utils.validation import _num_samples, check_is_fitted  # noqa: E402

if TYPE_CHECKING:
    from smpc_dp.sync import Session
    from smpc_dp.trees import Bounds

# Those that predict from `coef_` and `intercept_` alone, so that exchanging these is exchanging the model.
LINEAR = (LinearClassifierMixin, LinearModel, _GeneralizedLinearRegressor)
_AVERAGED = ("coef_", "intercept_")
# Beginning of the part of the label that says what is fitted.
_FIT = "fit:"


def _fitted_has(name: str) -> Any:
    """Return a check for scikit-learn's `available_if`: AttributeError unless the estimator has a method."""

    def check(self: SecureAveraged) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class SecureAveraged(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Scikit-learn estimator: fits a linear model on own rows, then averages it securely with others.

    All parties call `fit` with their own rows, and have the same model after it. In a session with weights a
    party's secret weight is the sum of its `sample_weight`, which must be whole, or its number of rows.
    Class labels, names of features and the estimator's name are compared through a hash in the label; labels
    by value, as in tables: 1, 1.0 and true are one.

    Args:
        estimator: one that predicts from `coef_` and `intercept_`; it is cloned.
        session: of `smpc_dp.sync`; its `length` is the number of coefficients and intercepts.
        bounds, clip: as of `Session.average`; paths are `['coef_']` and `['intercept_']`.
        label, number: of the request, as of `Session.average`; the label has at most 32 characters.

    Attributes:
        estimator_: the fitted clone, with the averaged coefficients.
        result_: the `Result` of the average: survivors, privacy, evidence.
    """

    def __init__(
        self,
        estimator: Any,
        session: Session | None = None,
        *,
        bounds: Bounds | None = None,
        clip: bool = False,
        label: str = "",
        number: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.session = session
        self.bounds = bounds
        self.clip = clip
        self.label = label
        self.number = number

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803 - scikit-learn's
        """Fit the estimator on own rows, average coefficients with all parties, keep the average.

        Raises:
            ConfigError: there is no session, or no estimator with linear coefficients; before anything is
                sent, and without a request.
            PeerFault: this party fits another model than most others: what is compared of it is named. Else
                as `Session.average`.
        """
        session = self._checked()
        if sample_weight is not None and not session.max_weight:
            reason = "the session has no weights (max_weight = 0)"
            raise ConfigError.at("sample_weight", reason, ConfigCheck.UNSUPPORTED)
        fitted = clone(self.estimator)
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
        fitted.fit(X, y, **weighted)
        tree = {name: _coefficients(fitted, name) for name in _AVERAGED}
        options: dict[str, Any] = {"bounds": self.bounds, "clip": self.clip, "label": self._label(fitted)}
        options["number"] = self.number
        if session.max_weight:
            options["weight"] = (
                _num_samples(X) if sample_weight is None else float(np.asarray(sample_weight).sum())
            )
        try:
            result = session.average(tree, **options)
        except (OtherRequestError, PeerFault) as error:
            raise self._model_fault(error, session.party, fitted) or error from None
        for name, values in result.tree.items():
            own = getattr(fitted, name)
            setattr(fitted, name, values.astype(own.dtype) if isinstance(own, np.ndarray) else float(values))
        self.estimator_, self.result_ = fitted, result
        self.n_features_in_ = fitted.n_features_in_
        for name in ("classes_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))
        return self

    def _checked(self) -> Session:
        """Return the session to average in; ConfigError if missing, or for a wrong estimator or label."""
        if self.session is None:
            raise ConfigError.at("session", "is missing: smpc_dp.sync.connect opens one", ConfigCheck.MISSING)
        if not isinstance(self.estimator, LINEAR):
            reason = f"{type(self.estimator).__name__} does not predict from coef_ and intercept_ alone"
            raise ConfigError.at("estimator", reason, ConfigCheck.UNSUPPORTED)
        if len(self.label) > 32:
            reason = f"at most 32 characters, has {len(self.label)}"
            raise ConfigError.at("label", reason, ConfigCheck.TOO_LARGE)
        return self.session

    def _model_fault(self, error: OtherRequestError | PeerFault, party: str, fitted: Any) -> PeerFault | None:
        """Return the PeerFault that this party fits another model than most; None for other errors."""
        # A hash says nothing to the party that must find what is different.
        reason = f"fits another model than most others. Compare with theirs: {self._described(fitted)}"
        if isinstance(error, PeerFault):
            if (error.code, error.culprit) != (Code.OPERATION, party):
                return None
            accuser = error.accuser
            return PeerFault(party, reason, error.check, error.evidence, accuser=accuser, code=error.code)
        begins = f"{self.label} {_FIT}".strip()
        if error.number != error.asked or not (error.asked_label or "").startswith(begins):
            return None
        return PeerFault(party, reason, Check.OTHER_OPERATION, code=Code.OPERATION)

    def _label(self, fitted: Any) -> str:
        """Return the request's label, with a hash of features, classes and estimator to compare."""
        names = [type(fitted).__name__]
        for kind, values in _compared(fitted).items():
            names += [kind, *values]
        hashed = digest(Label.ESTIMATOR, *(name.encode() for name in names)).hex()[:24]
        return f"{self.label} {_FIT}{hashed}".strip()

    def _described(self, fitted: Any) -> str:
        """Return readable text of what the label's hash covers, to find a difference."""
        parts = [f"label {self.label!r}"] if self.label else []
        parts.append(f"estimator {type(fitted).__name__}, {fitted.n_features_in_} columns")
        for kind, values in _compared(fitted).items():
            more = f" and {len(values) - MAX_SHOWN} more" if len(values) > MAX_SHOWN else ""
            parts.append(f"{kind} {', '.join(values[:MAX_SHOWN]) or 'none'}{more}")
        return "; ".join(parts)

    @available_if(_fitted_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Predict classes or values for rows by the averaged model."""
        return self._call("predict", X)

    @available_if(_fitted_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the scores that the averaged model gives to rows."""
        return self._call("decision_function", X)

    @available_if(_fitted_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the class probabilities that the averaged model gives to rows."""
        return self._call("predict_proba", X)

    @available_if(_fitted_has("score"))  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the averaged model's score on rows: accuracy or R^2, as of the estimator."""
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.score(X, y, sample_weight=sample_weight))

    def _call(self, method: str, rows: Any) -> NDArray[Any]:
        """Return the value of the fitted estimator's method for these rows."""
        check_is_fitted(self, "estimator_")
        values: NDArray[Any] = getattr(self.estimator_, method)(rows)
        return values

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator: it is of the same kind."""
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.target_tags, tags.input_tags = (
            inner.estimator_type,
            inner.target_tags,
            inner.input_tags,
        )
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        return tags


def _compared(fitted: Any) -> dict[str, list[str]]:
    """Return the class labels and column names of a fitted estimator, as parties compare them.

    Labels are those of tables: 1, 1.0, "1" and true are one label.
    """
    columns = [str(name).strip() for name in getattr(fitted, "feature_names_in_", ())]
    return {
        "class labels": [
            _class_text(label) for label in np.asarray(getattr(fitted, "classes_", ())).tolist()
        ],
        "names of columns (of a frame)": columns,
    }


def _class_text(label: object) -> str:
    """Return a class label as text, so that parties can compare theirs."""
    text = category_of(label)
    truths = {"true": "1", "false": "0"}
    return repr(label) if text is None else truths.get(text, text)


def _coefficients(fitted: Any, name: str) -> NDArray[np.float64]:
    """Return the estimator's fitted array of this name as floats; raise ConfigError without one."""
    values = getattr(fitted, name, None)
    array = np.asarray(values)
    if values is None or array.dtype.kind not in "fiu":
        reason = f"{type(fitted).__name__} has no {name} of numbers after it was fitted"
        raise ConfigError.at("estimator", reason, ConfigCheck.UNSUPPORTED)
    return array.astype(np.float64)


def coefficient_count(name: str, features: int, classes: int) -> int:
    """Return how many coefficients and intercepts a scikit-learn model has; ConfigError for others.

    That is the length of a vector of `SecureAveraged`: they are counted after a fit to made-up rows.

    Args:
        name: of the model's class, such as Ridge.
        features: columns of a row, at least 1.
        classes: of a classifier, at least 2; a regressor has one target.

    Raises:
        ConfigError: no linear model has this name, or a number is too small.
    """
    kind = getattr(linear_model, name, None)
    if not (isinstance(kind, type) and issubclass(kind, LINEAR)):
        reason = f"{name!r} is no model of sklearn.linear_model that predicts from coef_ and intercept_ alone"
        raise ConfigError.at("estimator", reason, ConfigCheck.CHOICE)
    for where, number, least in (("features", features, 1), ("classes", classes, 2)):
        if number < least:
            raise ConfigError.at(where, f"{number} is below {least}", ConfigCheck.RANGE)
    targets = np.arange(2 * classes) % classes
    rows = np.outer(targets, np.ones(features))
    with warnings.catch_warnings(action="ignore"):
        fitted = kind().fit(rows, targets)
    return sum(_coefficients(fitted, one).size for one in _AVERAGED)
