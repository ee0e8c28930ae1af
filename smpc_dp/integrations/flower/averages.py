"""The secure average that stands for one kind of Flower's messages, as both sides define it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.encoding import RingVector
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.session.member import Membership
from smpc_dp.session.tolerance import Tolerance, tolerances
from smpc_dp.trees import Bounds, Tree, flatten

TRAIN, EVALUATE = "train", "evaluate"
TASK_DIGITS = 32

Metrics = Mapping[str, tuple[float, float]]


class Average(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a secure average over Flower nodes: session file, and the bounds of its metrics.

    Attributes:
        session: path of the session file. Its vectors have the values of all arrays, and one for each metric.
        metrics: names of the metrics that are averaged, each with its least and its greatest value; others
            are dropped.
    """

    session: str
    metrics: dict[str, tuple[float, float]] = {}


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a Flower node to the aggregator: protocol messages, or an error code.

    `trust`: whom the node trusts with the code of the app, in words. `note` stays on the node; `warns`: it is
    a warning.
    """

    messages: tuple[bytes, ...] = ()
    code: str = ""
    trust: str = ""
    note: str = ""
    warns: bool = False


@dataclass(frozen=True, slots=True)
class SecureAverage:
    """A member's view of one kind of secure average over Flower nodes: session, identity, metrics."""

    membership: Membership
    metrics: Metrics

    @classmethod
    def load(
        cls,
        average: Average,
        name: str | None,
        key: str | os.PathLike[str] | None = None,
        role: str = "party",
    ) -> SecureAverage:
        """Read the session file and the member's key, and return the average's settings.

        Raises:
            ConfigError: the session is none of secure sums, or has statistics of records or a budget; as of
                `Membership.load`.
            LocalError: a file cannot be read.
        """
        membership = Membership.load(average.session, name, key, role)
        session = membership.session
        issues = Issues()
        if not session.described.in_rounds:
            reason = f"is '{session.protocol}' in {average.session}: Flower needs 'secagg'"
            issues.add_issue("protocol", reason, ConfigCheck.UNSUPPORTED)
        issues += [
            ConfigIssue(f"parameters.{name}", f"{average.session}: not with Flower", ConfigCheck.UNSUPPORTED)
            for name in ("records", BUDGET)
            if name in session.parameters
        ]
        issues.raise_issues()
        # Each message may have a process of its own, which would make them anew.
        membership.load_generators_blocking()
        return cls(membership, average.metrics)

    @property
    def least(self) -> int:
        """The smallest number of parties with which an average still succeeds."""
        tolerated = self._tolerance
        return tolerated.parties - tolerated.lost

    @property
    def tolerated(self) -> str:
        """Text that says how many nodes an average may lose."""
        return str(self._tolerance)

    @property
    def _tolerance(self) -> Tolerance:
        """Numbers of parties that may be lost or collude in an average."""
        [tolerated] = tolerances(self.membership.session)
        return tolerated

    @property
    def weighted(self) -> bool:
        """Whether each party's vector has a secret weight."""
        return self.membership.encoding.max_weight > 0

    def flatten(
        self, arrays: Mapping[str, NDArray[Any]], metrics: Mapping[str, object], *, clip: bool = False
    ) -> Tree:
        """Return model arrays and declared metrics as one tree for a sum; ConfigError if they do not fit.

        Arrays of integers are averaged as numbers with fractions, as Flower does.

        Raises:
            ConfigError: a metric is missing or no number; as of `smpc_dp.trees.flatten`.
        """
        party, issues = self.membership.name, []
        values: dict[str, float] = {}
        for name in self.metrics:
            value = metrics.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                reason = f"{party}: a number is needed, is {type(value).__name__}"
                issues.append(ConfigIssue(f"metrics[{name!r}]", reason, ConfigCheck.TYPE))
            else:
                values[name] = float(value)
        if issues:
            raise ConfigError(issues)
        tree: dict[str, Any] = {"arrays": {name: _fractional(array) for name, array in arrays.items()}}
        bounds: Bounds | None = None
        encoding = self.membership.encoding
        if values:
            tree["metrics"] = values
            outer = (float(encoding.lower), float(encoding.upper))
            inner = {f"['metrics'][{name!r}]": given for name, given in self.metrics.items()}
            bounds = {f"['arrays'][{name!r}]": outer for name in arrays} | inner
        return flatten(tree, encoding, party=party, bounds=bounds, clip=clip)

    def template(self, arrays: Mapping[str, NDArray[Any]]) -> Tree:
        """Return a tree of zeros like these arrays, with metrics, by which an average is unflattened."""
        middles = {name: (lower + upper) / 2 for name, (lower, upper) in self.metrics.items()}
        zeros = {name: np.zeros_like(array) for name, array in arrays.items()}
        return self.flatten(zeros, middles, clip=True)

    def operation(self, task: str, tree: Tree) -> str:
        """Return the text of what a request averages; only equal texts are averaged together."""
        planned = self.membership.parameters.planned()
        return " ".join(part for part in ("average", task, planned, tree.structure) if part)

    def encode(self, tree: Tree, examples: object) -> tuple[RingVector, int]:
        """Encode a tree for a secure sum; return (ring elements, number of clipped values).

        In a session with weights they are times the number of examples.

        Raises:
            ConfigError: the number is missing or no whole number.
            PrivacyError: it is above `max_weight`; or a value is not finite, or out of its bounds, and is
                named by its path.
        """
        party, weight = self.membership.name, None
        if self.weighted:
            if isinstance(examples, bool) or not isinstance(examples, int | float):
                reason = f"{party}: a whole number is needed, is {type(examples).__name__}"
                raise ConfigError.at("examples", reason, ConfigCheck.TYPE)
            weight = float(examples)
        return tree.encode(weight=weight)


def task_of(kind: str, parts: Iterable[bytes]) -> str:
    """Return the name of a training or evaluation task: its kind, and a hash of what the node was sent.

    It is in the operation of the request, so that nodes that were sent different models, configurations or
    rounds are not added up with each other.
    """
    return f"{kind} {digest(Label.FLOWER_TASK, kind.encode(), *parts).hex()[:TASK_DIGITS]}"


def structure_of(operation: str) -> str:
    """Return the part of an operation's text that describes the arrays' shapes and types; "" if absent."""
    return "".join(operation.partition("tree:")[1:])


def _fractional(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as floats; integers and booleans are converted."""
    return array if array.dtype.kind not in "iub" else array.astype(np.float64)
