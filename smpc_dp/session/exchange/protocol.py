"""The protocol "exchange": messages of learners, as requests in sessions that learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smpc_dp.engine.averaging import Averaging
from smpc_dp.engine.session_protocol import Roles, SessionProtocol

if TYPE_CHECKING:
    from smpc_dp.engine.run import Run


def _party(*arguments: Any, **named: Any) -> Run[Any]:
    """Return a party's run of an exchange; the arguments are passed on."""
    from smpc_dp.session.exchange import states

    return states.party(*arguments, **named)


def _aggregator(*arguments: Any, **named: Any) -> Run[Any]:
    """Return the aggregator's run of an exchange; the arguments are passed on."""
    from smpc_dp.session.exchange import states

    return states.aggregator(*arguments, **named)


def _tables() -> Roles:
    """Return the state machines of an exchange: (the party's, the aggregator's)."""
    from smpc_dp.session.exchange import states

    return states.PARTY, states.AGGREGATOR


PROTOCOLS = (
    SessionProtocol(
        name="exchange",
        versions={},
        party=_party,
        aggregator=_aggregator,
        averaging=Averaging(),
        tables={"exchange": _tables},
        vectors=("exchange",),
    ),
)
