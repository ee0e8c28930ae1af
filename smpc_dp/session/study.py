"""The plan of a study: what a session's answers will show, what improves them, and what a budget leaves."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
from msgspec.structs import asdict

from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Gaussian
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.privacy.search import bisect, first_integer
from smpc_dp.records.forecast import Expected
from smpc_dp.records.parameters import PlannedRecordParameters
from smpc_dp.records.study import check_expected, forecasts, most_deviation
from smpc_dp.session.planned import MOST_REPEATED, Changed, Remaining, StudiedAnswer, Study
from smpc_dp.session.session_file import SessionFile, plan_parameters

# The largest epsilon of a budget.
MOST_BUDGET = 1000.0
_ONLY = "is for statistics of records with noise"


def record_parameters(session: SessionFile) -> PlannedRecordParameters | None:
    """Return the parameters of a session's statistics of records with noise; None without any."""
    return next((one for one in session.checked_parameters.requests if one.hides_records), None)


def read_expected(given: Sequence[str], session: SessionFile) -> dict[str, Expected]:
    """Return expected means and deviations by column, of options `NAME=MEAN:DEVIATION`; ConfigError if wrong.

    Raises ConfigError for a text of another form, and what the bounds of the column do not allow. Without a
    deviation it is the largest for the mean.
    """
    expected: dict[str, Expected] = {}
    asked = record_parameters(session)
    if given and asked is None:
        raise ConfigError.at("--expect", _ONLY, ConfigCheck.UNSUPPORTED)
    if asked is None:
        return expected
    for text in given:
        name, _, numbers = text.partition("=")
        mean, colon, deviation = numbers.partition(":")
        try:
            values = float(mean), float(deviation) if colon else math.nan
        except ValueError:
            reason = f"{text!r} is not NAME=MEAN:DEVIATION, nor NAME=MEAN"
            raise ConfigError.at("--expect", reason, ConfigCheck.FORMAT) from None
        if name in expected:
            raise ConfigError.at(f"--expect {name}", "is there twice", ConfigCheck.DUPLICATE)
        column = asked.schema.columns.get(name)
        if not colon and column is not None:
            values = values[0], most_deviation(values[0], asked.schema.number(name, f"--expect {name}"))
        expected[name] = Expected(*values)
    check_expected(expected, asked.schema)
    return expected


def with_rows(session: SessionFile, rows: int) -> SessionFile:
    """Return a session replanned for another number of expected rows; ConfigError if that cannot be."""
    asked = record_parameters(session)
    if asked is None:
        raise ConfigError.at("--rows", _ONLY, ConfigCheck.UNSUPPORTED)
    if asked.public_rows is not None:
        reason = "rows are public: the session file states those of each party in `public_rows`"
        raise ConfigError.at("--rows", reason, ConfigCheck.CONFLICT)
    most = len(session.roster.parties) * asked.schema.max_rows
    if not 1 <= rows <= most:
        reason = f"must be from 1 to {most}, max_rows of each party, is {rows}"
        raise ConfigError.at("--rows", reason, ConfigCheck.RANGE)
    parameters = _altered(session.parameters, rows=rows)
    checked, issues = _checked(session, parameters, 0)
    if issues:
        raise ConfigError(issues)
    return replace(session, parameters=parameters, checked_parameters=checked)


def study_of(session: SessionFile, expected: Mapping[str, Expected]) -> Study | None:
    """Return the plan of a study; None without noisy statistics of records, or a number of rows."""
    asked = record_parameters(session)
    rows = None if asked is None else _rows(asked)
    if asked is None or not rows:
        return None
    parties = len(session.roster.parties)
    more_rows = round(rows * (parties + 1) / parties)
    public = asked.public_rows and [*asked.public_rows, more_rows - rows]
    larger = _altered(session.parameters, rows=None if public else more_rows, public_rows=public)
    twice = _altered(session.parameters, factor=2.0)
    one_more, doubled = (
        _changed(session, parameters, more, expected) for parameters, more in ((larger, 1), (twice, 0))
    )
    answers = tuple(
        StudiedAnswer(
            **asdict(one),
            one_more_party=one_more.get((one.text, one.name)),
            twice_epsilon=doubled.get((one.text, one.name)),
        )
        for one in forecasts(asked.request, parties, rows, expected)
    )
    return Study(rows=rows, parties=parties, answers=answers)


def _rows(asked: PlannedRecordParameters) -> int | None:
    """Return the number of rows of all parties: the public one, or the expected one, None if not stated."""
    public = asked.public_rows
    return asked.schema.rows_expected if public is None else sum(public)


def _altered(
    parameters: Mapping[str, object],
    *,
    rows: int | None = None,
    public_rows: Sequence[int] | None = None,
    factor: float = 1.0,
) -> dict[str, object]:
    """Return a copy of parameters with other expected or public rows, or with `factor` times the epsilon."""
    result = dict(parameters)
    if rows is not None:
        result[RECORDS] = {**cast("Mapping[str, object]", result[RECORDS]), "rows_expected": rows}
    if public_rows is not None:
        result["public_rows"] = list(public_rows)
    if factor != 1 and BUDGET in result:
        budget = cast("Mapping[str, Any]", result[BUDGET])
        result[BUDGET] = {**budget, "epsilon": factor * budget["epsilon"]}
    elif factor != 1:
        result["epsilon"] = factor * cast("float", result["epsilon"])
    return result


def _checked(
    session: SessionFile, parameters: Mapping[str, object], more: int
) -> tuple[Any, list[ConfigIssue]]:
    """Return (checked parameters of a session with so many parties more, or None; faults)."""
    names = [member.name for member in session.roster.parties]
    further = (name for name in map("party-{}".format, itertools.count()) if name not in names)
    names += itertools.islice(further, more)
    issues: list[ConfigIssue] = []
    checked = plan_parameters(session.protocol, session.version, parameters, names, issues)
    return checked, issues


def _changed(
    session: SessionFile, parameters: Mapping[str, object], more: int, expected: Mapping[str, Expected]
) -> dict[tuple[str, str], Changed]:
    """Return forecasts for other parameters or parties, by (text, name); empty if they cannot be planned."""
    checked, issues = _checked(session, parameters, more)
    if issues:
        return {}
    asked = record_parameters(replace(session, parameters=parameters, checked_parameters=checked))
    rows = None if asked is None else _rows(asked)
    if asked is None or rows is None:
        return {}
    return {
        (one.text, one.name): Changed(noise=one.noise, both=one.both, detected=one.detected)
        for one in forecasts(asked.request, len(session.roster.parties) + more, rows, expected)
    }


def remaining(
    session: SessionFile, *, epsilon: float | None = None, ledger: Ledger | None = None
) -> Remaining:
    """Return what a budget or ledger leaves after a session's request; raise an error if that costs more.

    The budget is `epsilon` at the delta of a request, with nothing spent, or that of a ledger.

    Raises ConfigError for a session without such requests, a budget that is none, and one below what a
    request costs; PrivacyError, of the ledger, for the latter.
    """
    asked = record_parameters(session)
    where = "--budget" if ledger is None else "--ledger"
    if asked is None:
        raise ConfigError.at(where, _ONLY, ConfigCheck.UNSUPPORTED)
    events = [asked.event()] * asked.request.steps
    delta = asked.request.delta
    if ledger is not None:
        if ledger.terms.epsilon is None:
            raise ConfigError.at(where, "the ledger has no budget", ConfigCheck.INFEASIBLE)
        ledger.check(events)
        spent = ledger.spent().epsilon or 0.0
        whole, composition, of_budget = ledger.terms.epsilon, ledger.terms.composition, ledger.terms.delta

        def spending(further: Sequence[Event]) -> float:
            return _or_infinite(ledger.would_spend(*further).epsilon)

    else:
        if epsilon is None or not 0 < epsilon < MOST_BUDGET:
            reason = f"must be above 0 and below {MOST_BUDGET:g}, is {epsilon}"
            raise ConfigError.at(where, reason, ConfigCheck.RANGE)
        spent, whole, composition, of_budget = 0.0, epsilon, "fixed", delta

        def spending(further: Sequence[Event]) -> float:
            together = Composition(further)
            exact = together.epsilon(delta)
            return whole if exact > whole and together.delta(whole) <= delta else exact

    after = spending(events)
    if after > whole:
        reason = f"must be at least {after:.6g}, which this request costs at delta = {delta:g}, is {whole:g}"
        raise ConfigError.at(where, reason, ConfigCheck.RANGE)

    @functools.cache
    def exceeds(requests: int) -> bool:
        return spending([*events] * (requests + 1)) > whole

    most = 1
    while most < MOST_REPEATED and not exceeds(most):
        most = min(4 * most, MOST_REPEATED)
    repeated = first_integer(exceeds, 0, most) - 1 if exceeds(most) else most
    return Remaining(
        epsilon=whole,
        delta=of_budget,
        composition=composition,
        spent=spent,
        after=after,
        repeated=repeated,
        later_epsilon=_later(lambda later: spending([*events, later]) <= whole, events[0], whole, delta),
    )


def _later(fits: Callable[[Event], bool], like: Event, whole: float, delta: float) -> float:
    """Return about the largest epsilon of one later Gaussian request within a budget; 0 if there is none."""

    def affords(epsilon: float) -> bool:
        noise = Gaussian(gaussian_mu(epsilon, delta))
        return fits(msgspec.structs.replace(like, mechanism="a later request", descriptions=(noise,)))

    least = whole / 1024
    return bisect(affords, least, whole, 10)[0] if affords(least) else 0.0


def _or_infinite(epsilon: float | None) -> float:
    """Return the given epsilon, or infinity for None."""
    return math.inf if epsilon is None else epsilon
