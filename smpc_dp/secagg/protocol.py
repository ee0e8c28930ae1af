"""The protocol "secagg" of sessions: exact and noisy sums, and statistics of records."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smpc_dp.engine.averaging import Averaging
from smpc_dp.engine.session_protocol import (
    Roles,
    SessionProtocol,
    corrupt_as_written,
    no_unsaved_reason,
    with_earlier_defaults,
)
from smpc_dp.errors import ConfigIssue
from smpc_dp.secagg.versions import AUDITED_VERSION, EARLIER_VERSION, VERSION

if TYPE_CHECKING:
    from smpc_dp.engine.phases.parameters import SumParameters
    from smpc_dp.engine.run import Run
    from smpc_dp.wire.signing import Context

# Groups of learners up to this size have the complete graph: only there all s - c honest members' noise is
# counted on.
MOST_COMPLETE = 512


def _check(parameters: Mapping[str, object], parties: int) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of a secure sum session; return checked ones, or None with the issues found."""
    from smpc_dp.secagg.check import check_session

    return check_session(parameters, parties)


def _check_earlier(
    parameters: Mapping[str, object], parties: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of an earlier protocol version; return parameters, or None and all faults."""
    return _check(with_earlier_defaults(parameters), parties)


def _check_group(
    parameters: Mapping[str, object], members: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check a learner's group's parameters, noisy with an epsilon; return them, or None and all faults."""
    if "epsilon" in parameters and members <= MOST_COMPLETE:
        from smpc_dp.secagg.noisy import check_noisy

        return check_noisy(parameters, members, complete=True)
    return _check(parameters, members)


def states_of(parameters: SumParameters) -> Any:
    """Return the Python module with the functions of party and aggregator for these parameters."""
    from smpc_dp.secagg import checkers, states

    return checkers if parameters.has_checkers else states


def _party(context: Context, parameters: SumParameters, *arguments: Any, **named: Any) -> Run[Any]:
    """Return a party's state machine for one request, with the checks of totals in the parameters."""
    run: Run[Any] = states_of(parameters).party(context, parameters, *arguments, **named)
    return run


def _aggregator(context: Context, parameters: SumParameters, *arguments: Any, **named: Any) -> Run[Any]:
    """Return the aggregator's state machine for one request, with the parameters' checks of totals."""
    run: Run[Any] = states_of(parameters).aggregator(context, parameters, *arguments, **named)
    return run


def _tables() -> Roles:
    """Import and return the state tables of the party and the aggregator of secure sums."""
    from smpc_dp.secagg import states

    return states.PARTY, states.AGGREGATOR


def _checkers_tables() -> Roles:
    """Import and return the state tables of secure sums in which some parties check totals for all."""
    from smpc_dp.secagg import checkers

    return checkers.PARTY, checkers.AGGREGATOR


PROTOCOLS = (
    SessionProtocol(
        name="secagg",
        versions={VERSION: _check, EARLIER_VERSION: _check_earlier},
        audited={AUDITED_VERSION: _check_earlier},
        party=_party,
        aggregator=_aggregator,
        unsaved=no_unsaved_reason,
        in_rounds=True,
        averaging=Averaging(settings=frozenset({"mechanism", "total"}), is_exact=True, check=_check_group),
        most_corrupt=functools.partial(corrupt_as_written, VERSION),
        tables={"secagg": _tables, "secagg-checkers": _checkers_tables},
        vectors=("secagg",),
    ),
)
