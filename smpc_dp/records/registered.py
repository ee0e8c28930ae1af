"""The statistics of records: this package's, and those that other packages register.

Others register in the entry-point group `smpc_dp.statistics`. Which sums their answer needs stands as data in
the session (`schema.SumsOfRows`), and is compared with what the package has registered. Its code sees no row:
it computes the answer from sums with noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Never

import msgspec

from smpc_dp.decoding import convert
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.extensions import Group, called, describe_others, find
from smpc_dp.records import cells, checks, formula, fourth, sandwich, terms
from smpc_dp.records.asked import Reader, Statistic
from smpc_dp.records.comparisons import differences, independence, risks
from smpc_dp.records.composed import Answer, composed
from smpc_dp.records.cox import cox
from smpc_dp.records.heterogeneity import heterogeneity
from smpc_dp.records.moments import correlations, covariances
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.quantiles import quantiles
from smpc_dp.records.regression import regressions
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import NAME, Schema, SumsOfRows
from smpc_dp.records.survival import log_rank, survival
from smpc_dp.records.table1 import TABLE1

__all__ = ["RecordStatistic", "SumsOfRows", "describe_statistic", "statistic_of_sums"]


def _no_check(one: Statistic, schema: Schema, where: str) -> None:
    """Accept any columns; the default check of a statistic does nothing."""
    pass


@dataclass(frozen=True)
class RecordStatistic:
    """Definition of a kind of statistic: functions that parse, check, plan and estimate such requests.

    Attributes:
        name: as in what is asked, and of the entry point of another package.
        read: reads its arguments, for the kind of the result; None where no parentheses follow the name.
        terms: returns its numbers, with the blocks that each needs.
        estimates: yields its numbers, from the noisy sums of these blocks.
        check: raises ConfigError, at `where`, for what else it demands of its columns.
        numeric: whether its columns must be numbers.
        several: whether it needs two columns at least.
        groups: whether it may have `by`; conditions: whether it may have `where`.
        counts: whether it gives counts of rows.
        linear: whether it gives one sum with its noise where all others that it needs are public.
        any_noise: whether its intervals hold for Laplace noise too.
        sums, answer: of another package, see `statistic_of_sums`.
    """

    name: str
    read: Callable[[Reader, str], Statistic] | None
    terms: Callable[[Statistic, Schema], list[terms.Term]]
    estimates: Callable[[Statistic, NoisySums, Display], Iterator[Estimate]]
    check: Callable[[Statistic, Schema, str], None] = _no_check
    numeric: bool = True
    several: bool = False
    groups: bool = False
    conditions: bool = True
    counts: bool = False
    linear: bool = False
    any_noise: bool = False
    sums: SumsOfRows | None = None
    answer: Answer | None = None


def statistic_of_sums(name: str, sums: SumsOfRows, answer: Answer) -> RecordStatistic:
    """Return a new kind of statistic, computed from sums of rows, for another package to register.

    Args:
        name: of the statistic, and of the entry point.
        sums: which sums of rows it needs; its `package` is filled in.
        answer: returns the answer for the sums of products of values, in the order of `sums`, of which one
            is the number of rows. The sums have noise: those of squares may be below 0. It must be pure, and
            may raise ArithmeticError or ValueError where there is no answer.
    """
    return RecordStatistic(
        name,
        Reader.columns,
        partial(terms.described_terms, sums),
        partial(composed, sums, answer),
        partial(checks.check_arguments, sums),
        # the type is checked when it is found
        groups=isinstance(sums, SumsOfRows) and sums.groups,
        sums=sums,
        answer=answer,
    )


def _in_steps(one: Statistic, *_: object) -> Never:
    """Raise ConfigError always; stands in where a statistic of several requests cannot be planned as one."""
    reason = f"{one.text!r} is a loop of requests: it is asked for alone, with protocol 'secagg'"
    raise ConfigError.at("ask", reason, ConfigCheck.UNSUPPORTED)


_COUNTS = partial(
    RecordStatistic,
    terms=terms.count_terms,
    estimates=cells.counts,
    numeric=False,
    counts=True,
    linear=True,
    any_noise=True,
)
_LINEAR = partial(RecordStatistic, groups=True, linear=True, any_noise=True)
_MOMENTS = partial(RecordStatistic, several=True, groups=True)
_QUANTILES = partial(
    RecordStatistic,
    terms=terms.quantile_terms,
    estimates=quantiles,
    check=checks.check_levels,
    groups=True,
    any_noise=True,
)
_COX = partial(
    RecordStatistic,
    read=Reader.time_and_event_over,
    terms=terms.cox_terms,
    check=checks.check_cox,
    numeric=False,
    groups=True,
    any_noise=True,
)
_IN_STEPS = partial(RecordStatistic, terms=_in_steps, estimates=_in_steps, conditions=False)
_STATISTICS = (
    _COUNTS("count", None, groups=True),
    _COUNTS("table", None, check=checks.check_table),
    _COUNTS("histogram", Reader.column_and_bins, check=checks.check_histogram),
    _LINEAR("sum", Reader.one_column, terms.sum_terms, cells.sums),
    _LINEAR("mean", Reader.one_column, terms.mean_terms, cells.means),
    RecordStatistic(
        "missing",
        Reader.one_column,
        terms.missing_terms,
        cells.missing,
        checks.check_missing,
        numeric=False,
        groups=True,
        any_noise=True,
    ),
    RecordStatistic(
        "variance", Reader.one_column, terms.variance_terms, cells.variances, groups=True, any_noise=True
    ),
    _MOMENTS("covariance", Reader.columns, terms.covariance_terms, covariances, any_noise=True),
    _MOMENTS("correlation", Reader.columns, terms.correlation_terms, correlations, any_noise=True),
    # kinds of a question whose last argument is `robust`
    RecordStatistic("robust variance", None, fourth.VARIANCE.terms, fourth.VARIANCE.estimates, groups=True),
    _MOMENTS("robust covariance", None, fourth.COVARIANCE.terms, fourth.COVARIANCE.estimates),
    _MOMENTS("robust correlation", None, fourth.CORRELATION.terms, fourth.CORRELATION.estimates),
    _QUANTILES("quantile", Reader.column_and_levels),
    _QUANTILES("median", Reader.median),
    RecordStatistic(
        "regression",
        formula.read_formula,
        formula.regression_terms,
        regressions,
        formula.check_linear,
        numeric=False,
        groups=True,
        any_noise=True,
    ),
    RecordStatistic(
        sandwich.NAME,
        sandwich.read_sandwich,
        sandwich.sandwich_terms,
        sandwich.sandwiches,
        sandwich.check_sandwich,
        numeric=False,
        linear=True,
        any_noise=True,
    ),
    RecordStatistic(
        "survival",
        Reader.time_and_event,
        terms.survival_terms,
        survival,
        checks.check_survival,
        numeric=False,
        groups=True,
        any_noise=True,
    ),
    RecordStatistic(
        "logrank",
        Reader.time_and_event,
        terms.logrank_terms,
        log_rank,
        checks.check_two_groups,
        numeric=False,
        groups=True,
        any_noise=True,
    ),
    _COX("cox", estimates=cox),
    _COX("cox_breslow", estimates=partial(cox, ties="breslow")),
    _COX("cox_efron", estimates=partial(cox, ties="efron")),
    RecordStatistic(
        "difference",
        Reader.one_column,
        terms.difference_terms,
        differences,
        checks.check_difference,
        groups=True,
        any_noise=True,
    ),
    RecordStatistic(
        "risk", Reader.one_column, terms.risk_terms, risks, checks.check_risk, groups=True, any_noise=True
    ),
    RecordStatistic(
        "chi_square",
        Reader.columns,
        terms.independence_terms,
        independence,
        checks.check_independence,
        numeric=False,
        several=True,
        any_noise=True,
    ),
    # how many parties have rows that satisfy a condition is not known
    RecordStatistic(
        "heterogeneity", Reader.one_column, terms.heterogeneity_terms, heterogeneity, conditions=False
    ),
    _IN_STEPS("logistic", formula.read_formula, check=formula.check_binary_response, numeric=False),
    _IN_STEPS("poisson", formula.read_formula, check=formula.check_positive_response, numeric=False),
    _IN_STEPS("random_effects", Reader.column_and_least, check=checks.check_least),
)
# Statistics of this package by name: looked up first.
BUILT_IN: Mapping[str, RecordStatistic] = MappingProxyType({one.name: one for one in _STATISTICS})
# What takes several requests.
LOOPS = tuple(one.name for one in _STATISTICS if one.terms is _in_steps)
# Names that no other package can take: those, and the words of a question.
RESERVED = frozenset({*BUILT_IN, TABLE1, "by", "x"})


def statistic_of(one: Statistic) -> RecordStatistic:
    """Return the definition of the kind of statistic that is asked for; LocalError if its package is gone.

    Raises LocalError if its package is gone since the question was read.
    """
    result = find_statistic(one.kind)
    if result is None:
        raise LocalError(f"the package of the statistic {one.kind!r} is not installed any more")
    return result


def terms_of(one: Statistic, schema: Schema) -> list[terms.Term]:
    """Return the numbers that a statistic yields, each with the sums that its error depends on."""
    return [terms.where(term, one) for term in statistic_of(one).terms(one, schema)]


def find_statistic(name: str) -> RecordStatistic | None:
    """Return a kind of statistic by name, None if there is none; LocalError if a package's is malformed.

    Raises LocalError that names entry point and package for another object. What another package registers is
    made anew from its sums and its function: nothing else of it is called.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    result = None if name in RESERVED else find(Group.STATISTICS, name)
    if result is None:
        return None
    value = result.value
    if not isinstance(value, RecordStatistic) or value.name != name or not NAME.fullmatch(name):
        raise result.unfit(f"is no RecordStatistic with the name '{name}'")
    if not isinstance(value.sums, SumsOfRows) or value.answer is None or not callable(value.answer):
        raise result.unfit("has no SumsOfRows, or no function for its answer")
    try:
        # Its own class, and values of its types alone, as a session has them.
        described = called(lambda: convert(msgspec.to_builtins(value.sums), SumsOfRows))
    except LocalError:
        raise result.unfit("has a SumsOfRows with values of other types") from None
    if issues := described.issues("sums"):
        raise result.unfit("; ".join(f"{issue.where} {issue.reason}" for issue in issues))
    sums = msgspec.structs.replace(described, package=result.origin)
    return statistic_of_sums(name, sums, value.answer)


def describe_statistic(name: str) -> dict[str, Any]:
    """Return the JSON description of another package's statistic; ConfigError for built-in or unknown names.

    Raises ConfigError for a name that no package registers, and LocalError as `find_statistic` does.
    """
    result = find_statistic(name)
    if result is None or result.sums is None:
        reason = f"{name!r} is unknown{describe_others(Group.STATISTICS)}"
        raise ConfigError.at("statistics", reason, ConfigCheck.UNKNOWN_NAME)
    described: dict[str, Any] = json.loads(msgspec.json.encode(result.sums))
    return described


def check_registered(name: str, described: SumsOfRows, where: str) -> RecordStatistic:
    """Return the installed statistic that a session file describes; ConfigError if absent or different.

    Raises ConfigError, naming the answer, unless the described package is here, and describes the same.
    """
    result = find_statistic(name)
    package = described.package or "an unnamed package"
    if result is None or result.sums is None:
        reason = f"{name!r} is a statistic of {package}, which is not installed here"
        raise ConfigError.at(where, reason, ConfigCheck.UNSUPPORTED)
    if result.sums.package != described.package:
        reason = f"{name!r} is a statistic of {package}, and here that of {result.sums.package}"
        raise ConfigError.at(where, reason, ConfigCheck.DIFFERS)
    if result.sums != described:
        reason = f"the session describes {name!r} otherwise than {package} does"
        raise ConfigError.at(where, reason, ConfigCheck.DIFFERS)
    return result
