"""The protocol "secagg" of sessions: exact and noisy sums, and statistics of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smpc_dp.errors import ConfigIssue
from smpc_dp.protocols.session_protocol import Roles, SessionProtocol, corrupt_as_written

if TYPE_CHECKING:
    from smpc_dp.protocols.engine.run import Run
    from smpc_dp.protocols.phases.parameters import SumParameters


def _check(parameters: Mapping[str, object], parties: int) -> tuple[SumParameters | None, list[ConfigIssue]]:
    from smpc_dp.protocols.secagg.check import check_session

    return check_session(parameters, parties)


def _party(*arguments: Any, **named: Any) -> Run[Any]:
    from smpc_dp.protocols.secagg import states

    return states.party(*arguments, **named)


def _aggregator(*arguments: Any, **named: Any) -> Run[Any]:
    from smpc_dp.protocols.secagg import states

    return states.aggregator(*arguments, **named)


def _tables() -> Roles:
    from smpc_dp.protocols.secagg import states

    return states.PARTY, states.AGGREGATOR


PROTOCOLS = (
    SessionProtocol(
        name="secagg",
        versions={1: _check},
        party=_party,
        aggregator=_aggregator,
        most_corrupt=corrupt_as_written,
        tables={"secagg": _tables},
        vectors=("secagg",),
    ),
)
