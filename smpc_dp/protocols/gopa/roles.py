"""Which machines run GOPA through a relay: noise of lost users kept or rolled back, or a log."""

from __future__ import annotations

from smpc_dp.board.keeping import Board
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.gopa.party import GopaPartyMachine
from smpc_dp.protocols.gopa.relay import GopaRelayMachine
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.party import VerifiablePartyMachine
from smpc_dp.protocols.gopa.verifiable.relay import VerifiableRelayMachine
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.params import SumParameters
from smpc_dp.protocols.secagg.party import PartyMachine
from smpc_dp.protocols.secagg.survivors import FixedSurvivors
from smpc_dp.seen import Seen


def user_machine(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    lanes: Lanes,
    randomness: Randomness | None,
    fixed: FixedSurvivors | None,
    seen: Seen,
) -> PartyMachine:
    """Return the machine of a user; arguments as of `registry.party_machine`."""
    if isinstance(parameters, VerifiableParameters):
        return VerifiablePartyMachine(context, parameters, identity, lanes, randomness, seen)
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return GopaPartyMachine(context, parameters, identity, lanes, randomness)
    return PartyMachine(context, parameters, identity, lanes, randomness, fixed)


def relay_machine(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int,
    watch: Watch | None,
    board: Board | None,
    fixed: FixedSurvivors | None,
) -> AggregatorMachine:
    """Return the machine of the relay; arguments as of `registry.hub_machine`."""
    if isinstance(parameters, VerifiableParameters):
        if board is None:
            raise ConfigError([Fault("board", "a verifiable run needs one")])
        return VerifiableRelayMachine(
            context, parameters, identity, board=board, threads=threads, watch=watch
        )
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return GopaRelayMachine(context, parameters, identity, threads=threads, watch=watch)
    return AggregatorMachine(context, parameters, identity, threads=threads, watch=watch, fixed=fixed)
