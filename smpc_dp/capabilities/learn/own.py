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
    """A caller's own model: its gradient or update functions and start, checked against the settings.

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
        """Return the checked model of a caller; ConfigError for its form, PrivacyError for its values.

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
        """Hash of the caller's starting model and its structure, which parties compare for equality."""
        hashed = digest(Label.OWN_MODEL, self.tree.structure.encode(), self.start.tobytes())
        return f"model:{hashed.hex()[:32]}"

    @property
    def names(self) -> tuple[str, ...]:
        """An empty tuple: the coordinates of a caller's model, which is a tree, have no names."""
        return ()

    async def gradient(self, models: Rows, rows: NDArray[np.intp]) -> Rows:
        """Return gradients by the caller's function; for a local update, the old model minus the new."""
        graded = np.zeros_like(models)
        for index, row in enumerate(rows.tolist()):
            # Training takes long: connections are served meanwhile.
            returned = await asyncio.to_thread(self.function, self.restore(models[index]), self.data[row])
            tree = _tree(returned, self.wrapped, self.parties[row])
            values = self.tree.values_of(tree, self.parties[row])
            graded[index] = models[index] - values if self.is_update else values
        return graded

    async def metric(self, models: Rows, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the caller's metric of local parties' models; raise ConfigError unless a finite number."""
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
        """Return the values as a model with the structure of the caller's starting model."""
        tree = self.tree.restore(weights)
        return tree[_NAME] if self.wrapped else tree


@dataclass(frozen=True)
class OwnFunctions:
    """Arguments of a caller who brings an own model: its functions, not yet checked; None if not given."""

    model: Any = None
    gradient: LocalFunction | None = None
    update: LocalFunction | None = None
    metric: Metric | None = None

    def check_unused(self, weights: Sequence[float | None]) -> None:
        """Raise ConfigError if functions or weights are given although the model is a built-in one."""
        given = {
            name for name in ("model", "gradient", "update", "metric") if getattr(self, name) is not None
        }
        given |= {"weight"} if any(weight is not None for weight in weights) else set()
        reason = "is for sessions with model = 'own'"
        if given:
            raise ConfigError([ConfigIssue(name, reason, ConfigCheck.UNSUPPORTED) for name in sorted(given)])


def _tree(given: Any, wrapped: bool, party: str) -> Any:
    """Return a value as it is, or, if `wrapped`, as a tree of one array, or ConfigError if not numbers."""
    if not wrapped:
        return given
    try:
        return {_NAME: np.asarray(given, np.float64)}
    except (TypeError, ValueError):
        reason = f"{party}: must be a dict, or an array of numbers"
        raise ConfigError.at("model", reason, ConfigCheck.TYPE) from None


def _function_issues(settings: SgdSettings, given: OwnFunctions) -> Sequence[ConfigIssue]:
    """Return the caller's functions that are missing, or that the settings do not allow, as faults."""
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
    """Return the local parties' weights, or None if all count alike; append faults to `issues`."""
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
    """Return a caller's result as a float (also from an array); NaN if it is no number."""
    try:
        return math.nan if isinstance(given, str | bytes) else float(given)
    except (TypeError, ValueError, OverflowError):
        return math.nan
