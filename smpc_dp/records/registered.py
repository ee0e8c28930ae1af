"""Statistics of records that other packages register in the entry-point group `smpc_dp.statistics`.

Which sums an answer needs stands as data in the session (`schema.SumsOfRows`), and is compared with what the
package has registered. Its code sees no row: it computes the answer from sums with noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.extensions import Group, describe_others, find
from smpc_dp.records.schema import NAME, SumsOfRows

# Names of this package: looked up first.
RESERVED = frozenset(
    (
        *("count", "table", "histogram", "sum", "mean", "variance", "covariance", "correlation", "quantile"),
        *("median", "regression", "logistic", "poisson", "random_effects", "survival", "logrank"),
        *("heterogeneity", "by", "x"),
    )
)


@dataclass(frozen=True)
class RecordStatistic:
    """An answer of another package.

    Attributes:
        name: as in what is asked, and of the entry point.
        sums: which sums of rows it needs; its `package` is filled in.
        answer: returns the answer for the sums of products of values, in the order of `sums`, of which one
            is the number of rows. The sums have noise: those of squares may be below 0. It must be pure, and
            may raise ArithmeticError or ValueError where there is no answer.
    """

    name: str
    sums: SumsOfRows
    answer: Callable[[tuple[float, ...]], float]


def find_statistic(name: str) -> RecordStatistic | None:
    """Return the statistic that another package registers, with its `package`; None if there is none.

    Raises LocalError that names entry point and package for another object.
    """
    result = None if name in RESERVED else find(Group.STATISTICS, name)
    if result is None:
        return None
    value = result.value
    if not isinstance(value, RecordStatistic) or value.name != name or not NAME.fullmatch(name):
        raise result.unfit(f"is no RecordStatistic with the name '{name}'")
    if not isinstance(value.sums, SumsOfRows) or not callable(value.answer):
        raise result.unfit("has no SumsOfRows, or no function for its answer")
    if issues := value.sums.issues("sums"):
        raise result.unfit("; ".join(f"{issue.where} {issue.reason}" for issue in issues))
    sums = msgspec.structs.replace(value.sums, package=result.origin)
    return RecordStatistic(name, sums, value.answer)


def describe_statistic(name: str) -> dict[str, Any]:
    """Return the description of a registered statistic, as a session has it in `records.statistics`.

    Raises ConfigError for a name that no package registers, and LocalError as `find_statistic` does.
    """
    result = find_statistic(name)
    if result is None:
        reason = f"{name!r} is unknown{describe_others(Group.STATISTICS)}"
        raise ConfigError.at("statistics", reason, ConfigCheck.UNKNOWN_NAME)
    described: dict[str, Any] = json.loads(msgspec.json.encode(result.sums))
    return described


def check_registered(name: str, described: SumsOfRows, where: str) -> None:
    """Raise ConfigError, naming the answer, unless the described package is here, and describes the same."""
    result = find_statistic(name)
    package = described.package or "an unnamed package"
    if result is None:
        reason = f"{name!r} is a statistic of {package}, which is not installed here"
        raise ConfigError.at(where, reason, ConfigCheck.UNSUPPORTED)
    if result.sums.package != described.package:
        reason = f"{name!r} is a statistic of {package}, and here that of {result.sums.package}"
        raise ConfigError.at(where, reason, ConfigCheck.DIFFERS)
    if result.sums != described:
        reason = f"the session describes {name!r} otherwise than {package} does"
        raise ConfigError.at(where, reason, ConfigCheck.DIFFERS)
