"""A caller's own model: its gradient or local update in the place of a linear model and its loss."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.capabilities.learn.sgd import SgdSettings
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.trees import Tree, flatten

# Of a model, as it was given to begin with, and a party's data.
LocalFunction = Callable[[Any, Any], Any]
Metric = Callable[[Any, Any], float]
_NAME = "model"


@dataclass(frozen=True)
class OwnModel:
    """A caller's own model with its functions, checked against the settings of a session.

    Attributes:
        tree: the model that all parties begin with; start: its values, shape (length,).
        parties: names of the local parties, for errors.
        weights: how often each of them counts; None where all count alike.
    """

    tree: Tree
    start: NDArray[np.float64]
    wrapped: bool
    parties: tuple[str, ...]
    data: Sequence[Any]
    weights: NDArray[np.float64] | None
    function: LocalFunction
    is_update: bool
    measure: Metric | None

    @classmethod
    def check(
        cls,
        settings: SgdSettings,
        grid: Encoding,
        parties: Sequence[str],
        data: Sequence[Any],
        given: OwnFunctions,
        weights: Sequence[float | None],
    ) -> OwnModel:
        """Return the model; raise ConfigError or PrivacyError for what does not fit the settings.

        `grid`: of the averages of models.
        """
        issues = list(_function_issues(settings, given))
        counted = _weights(settings, parties, weights, issues)
        if issues:
            raise ConfigError(issues)
        wrapped = not isinstance(given.model, Mapping)
        read = flatten(_tree(given.model, wrapped, parties[0]), grid, party=parties[0])
        function = given.update if given.gradient is None else given.gradient
        if function is None:
            raise ConfigError.at("gradient", "is missing", ConfigCheck.MISSING)
        start = np.asarray(read.vector, dtype="<f8")
        return cls(
            read,
            start,
            wrapped,
            tuple(parties),
            data,
            counted,
            function,
            given.gradient is None,
            given.metric,
        )

    @property
    def fingerprint(self) -> str:
        """Hash of the model that all begin with, and of its structure, for the operation of requests."""
        hashed = digest(Label.OWN_MODEL, self.tree.structure.encode(), self.start.tobytes())
        return f"model:{hashed.hex()[:32]}"

    @property
    def names(self) -> tuple[str, ...]:
        """None: the learned model is a tree."""
        return ()

    async def gradient(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """See `LocalModel.gradient`; of a local update the model before it less the one after it."""
        graded = np.zeros_like(models)
        for index, row in enumerate(rows.tolist()):
            # Training takes long: connections are served meanwhile.
            returned = await asyncio.to_thread(self.function, self.restore(models[index]), self.data[row])
            tree = _tree(returned, self.wrapped, self.parties[row])
            values = self.tree.values_of(tree, self.parties[row])
            graded[index] = models[index] - values if self.is_update else values
        return graded

    async def metric(self, models: Rows, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """See `LocalModel.metric`; raises ConfigError for what is no finite number."""
        measured = np.zeros(len(rows))
        for index, row in enumerate(rows.tolist()):
            if self.measure is None:
                raise ConfigError.at("metric", "is missing", ConfigCheck.MISSING)
            returned = await asyncio.to_thread(self.measure, self.restore(models[index]), self.data[row])
            measured[index] = _number(returned)
            if not np.isfinite(measured[index]):
                reason = f"{self.parties[row]}: must be a finite number, is {returned!r}"
                raise ConfigError.at("metric", reason, ConfigCheck.RANGE)
        return measured

    def restore(self, weights: NDArray[np.float64]) -> Any:
        """Return a model of this shape with these values."""
        tree = self.tree.restore(weights)
        return tree[_NAME] if self.wrapped else tree


@dataclass(frozen=True)
class OwnFunctions:
    """Arguments of a caller who brings a model of their own, unchecked; all None otherwise."""

    model: Any = None
    gradient: LocalFunction | None = None
    update: LocalFunction | None = None
    metric: Metric | None = None

    def check_unused(self, weights: Sequence[float | None]) -> None:
        """Raise ConfigError if any is given, for a session whose learner has a model of its own."""
        given = {
            name for name in ("model", "gradient", "update", "metric") if getattr(self, name) is not None
        }
        given |= {"weight"} if any(weight is not None for weight in weights) else set()
        reason = "is for sessions with model = 'own'"
        if given:
            raise ConfigError([ConfigIssue(name, reason, ConfigCheck.UNSUPPORTED) for name in sorted(given)])


def _tree(given: Any, wrapped: bool, party: str) -> Any:
    """Return a tree, of an array by itself one with a leaf; raise ConfigError for no array of numbers."""
    if not wrapped:
        return given
    try:
        return {_NAME: np.asarray(given, np.float64)}
    except (TypeError, ValueError):
        reason = f"{party}: must be a dict, or an array of numbers"
        raise ConfigError.at("model", reason, ConfigCheck.TYPE) from None


def _function_issues(settings: SgdSettings, given: OwnFunctions) -> Sequence[ConfigIssue]:
    """Return what is missing or superfluous of a caller's functions."""
    issues = []
    if given.model is None:
        reason = "is missing: the session file has model = 'own', give the one that all parties begin with"
        issues.append(ConfigIssue("model", reason, ConfigCheck.MISSING))
    if (given.gradient is None) == (given.update is None):
        reason = "needs one function: gradient(model, data) or update(model, data)"
        issues.append(ConfigIssue("gradient", reason, ConfigCheck.CONFLICT))
    issues += [
        ConfigIssue(name, f"must be a function, is {type(one).__name__}", ConfigCheck.TYPE)
        for name, one in (("gradient", given.gradient), ("update", given.update), ("metric", given.metric))
        if one is not None and not callable(one)
    ]
    if (given.metric is None) != (settings.metric_every == 0):
        reason = (
            f"is missing: the session file has metric_every = {settings.metric_every}"
            if given.metric is None
            else "needs metric_every in the session file, for which noise is planned"
        )
        issues.append(ConfigIssue("metric", reason, ConfigCheck.CONFLICT))
    return issues


def _weights(
    settings: SgdSettings,
    parties: Sequence[str],
    weights: Sequence[float | None],
    issues: list[ConfigIssue],
) -> NDArray[np.float64] | None:
    """Return the weights of the local parties, None where all count alike; add what is wrong with them."""
    if settings.weights == "equal":
        if any(weight is not None for weight in weights):
            reason = "the session has no weights (weights = 'points')"
            issues.append(ConfigIssue("weight", reason, ConfigCheck.UNSUPPORTED))
        return None
    if len(weights) != len(parties):
        reason = f"{len(weights)} weights for {len(parties)} parties"
        issues.append(ConfigIssue("weight", reason, ConfigCheck.SHAPE))
        return None
    counted = np.array([_number(weight) for weight in weights])
    for party, weight, number in zip(parties, weights, counted, strict=True):
        # Written so that NaN fails.
        if not 1 <= number <= settings.max_points:
            reason = f"{party}: must be from 1 to {settings.max_points}, is {weight!r}"
            issues.append(ConfigIssue("weight", reason, ConfigCheck.RANGE))
    return counted


def _number(given: Any) -> float:
    """Return a number, of an array without dimensions too; NaN for anything else."""
    try:
        return math.nan if isinstance(given, str | bytes) else float(given)
    except (TypeError, ValueError, OverflowError):
        return math.nan
