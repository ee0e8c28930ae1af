"""Which roles run GOPA through an aggregator: noise of lost parties kept or rolled back, or a log."""

from __future__ import annotations

from typing import Any

from smpc_dp.board.keeping import Board
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.gopa import states
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.gopa.verifiable import states as verifiable
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.phases.key_graph import Watch
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.phases.survivors import FixedSurvivors
from smpc_dp.protocols.secagg import states as secagg
from smpc_dp.seen import NOTHING_SEEN, Seen


def party(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    lanes: Lanes,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,
    seen: Seen = NOTHING_SEEN,
    *,
    check_total: bool = True,
) -> Run[Any]:
    """Return the role of a party; arguments as of `registry.MakeParty`."""
    if isinstance(parameters, VerifiableParameters):
        return verifiable.party(
            context, parameters, identity, lanes, randomness, seen, check_total=check_total
        )
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return states.party(context, parameters, identity, lanes, randomness)
    return secagg.party(context, parameters, identity, lanes, randomness, fixed)


def aggregator(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,
    fixed: FixedSurvivors | None = None,
) -> Run[Any]:
    """Return the role of the aggregator; arguments as of `registry.MakeAggregator`."""
    if isinstance(parameters, VerifiableParameters):
        if board is None:
            raise ConfigError([Fault("board", "a verifiable run needs one")])
        return verifiable.aggregator(context, parameters, identity, board=board, threads=threads, watch=watch)
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return states.aggregator(context, parameters, identity, threads=threads, watch=watch)
    return secagg.aggregator(context, parameters, identity, threads=threads, watch=watch, fixed=fixed)
