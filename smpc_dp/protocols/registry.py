"""Which protocols exist, who checks the parameters of each, and which machines run a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.gopa.params import check_parameters as check_plain_gopa
from smpc_dp.protocols.gopa.party import GopaPartyMachine
from smpc_dp.protocols.gopa.relay import GopaRelayMachine
from smpc_dp.protocols.gopa.verifiable.params import VerifiableParameters
from smpc_dp.protocols.gopa.verifiable.params import check_parameters as check_verifiable
from smpc_dp.protocols.gopa.verifiable.party import VerifiablePartyMachine
from smpc_dp.protocols.gopa.verifiable.relay import Board, VerifiableRelayMachine
from smpc_dp.protocols.pairwise.params import check_parameters as check_pairwise
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.noisy import check_noisy
from smpc_dp.protocols.secagg.params import PRIVACY_KEYS, SumParameters
from smpc_dp.protocols.secagg.params import check_parameters as check_secagg
from smpc_dp.protocols.secagg.party import PartyMachine

# (the parameters as written in the session file, number of parties) -> (checked parameters or None, faults).
# A fault's `where` is a key of [parameters], or "roster" when the number of parties is at fault.
ParameterChecker = Callable[[Mapping[str, object], int], tuple[object | None, list[Fault]]]


def _check_secagg(parameters: Mapping[str, object], parties: int) -> tuple[SumParameters | None, list[Fault]]:
    """An exact sum, or where epsilon, delta or a mechanism is given one with noise."""
    check = check_noisy if set(PRIVACY_KEYS) & set(parameters) else check_secagg
    return check(parameters, parties)


def check_gopa(parameters: Mapping[str, object], parties: int) -> tuple[GopaParameters | None, list[Fault]]:
    """Check a `[parameters]` table of GOPA, verifiable or not; return every fault found."""
    check = check_verifiable if parameters.get("verifiable") is True else check_plain_gopa
    return check(parameters, parties)


PARAMETER_CHECKERS: dict[tuple[str, int], ParameterChecker] = {
    ("secagg", 1): _check_secagg,
    ("gopa", 1): check_gopa,
    ("pairwise", 1): check_pairwise,
}

# The protocols in which exactly one member of the roster must be the aggregator.
NEEDS_AGGREGATOR: frozenset[tuple[str, int]] = frozenset({("secagg", 1), ("gopa", 1)})


def party_machine(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    lanes: Lanes,
    randomness: Randomness | None = None,
) -> PartyMachine:
    """Return the machine of a party; arguments as of `PartyMachine`."""
    if isinstance(parameters, VerifiableParameters):
        return VerifiablePartyMachine(context, parameters, identity, lanes, randomness)
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return GopaPartyMachine(context, parameters, identity, lanes, randomness)
    return PartyMachine(context, parameters, identity, lanes, randomness)


def hub_machine(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,
) -> AggregatorMachine:
    """Return the machine of the aggregator or relay; arguments as of `AggregatorMachine`.

    `board` is where a verifiable run is logged; needed there.
    """
    if isinstance(parameters, VerifiableParameters):
        if board is None:
            raise ConfigError([Fault("board", "a verifiable run needs one")])
        return VerifiableRelayMachine(
            context, parameters, identity, board=board, threads=threads, watch=watch
        )
    if isinstance(parameters, GopaParameters) and parameters.on_dropout == "keep":
        return GopaRelayMachine(context, parameters, identity, threads=threads, watch=watch)
    return AggregatorMachine(context, parameters, identity, threads=threads, watch=watch)
