"""The protocols of sums, those of other packages too, and the roles of one request.

Another package registers a `SumProtocol` in the entry-point group `smpc_dp.protocols`, by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector
from smpc_dp.errors import ConfigCheck, ConfigIssue, Issues
from smpc_dp.extensions import Extension, Group, find
from smpc_dp.identity.roster import Member
from smpc_dp.protocols.descriptor import DESCRIPTORS, Descriptor, MakeAggregator, MakeParty, ParameterChecker
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.names import EXCHANGE, GOPA, LEARN, MPYC, PAIRWISE, REPORTS, SECAGG
from smpc_dp.protocols.phases.key_graph import Watch
from smpc_dp.protocols.phases.parameters import SumParameters, cost_of_sum
from smpc_dp.protocols.phases.survivors import FixedSurvivors
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.signing import Context, Signer

if TYPE_CHECKING:
    from smpc_dp.log.keeping import Board

PARAMETER_CHECKERS: Mapping[tuple[str, int], ParameterChecker] = {
    (one.protocol, one.version): one.check for one in DESCRIPTORS.values() if one.check is not None
}

# Names that another package cannot register: they would stand for this package's in signed and hashed data.
RESERVED = frozenset({SECAGG, GOPA, EXCHANGE, PAIRWISE, "pairwise-statistic", MPYC, LEARN, REPORTS})


def direct_roster_issues(members: Iterable[Member]) -> list[ConfigIssue]:
    """Return the faults of a direct session's members that prevent them from connecting."""
    issues = Issues()
    for index, member in enumerate(members):
        if member.role == "aggregator":
            issues.add_issue(
                f"roster[{index}].role", "there is no aggregator in the direct topology", ConfigCheck.CONFLICT
            )
        elif member.address is None:
            reason = f"'{member.name}' needs an address, host:port, in the direct topology"
            issues.add_issue(f"roster[{index}].address", reason, ConfigCheck.MISSING)
    return issues


def server_roster_issues(protocol: str, members: Iterable[Member]) -> list[ConfigIssue]:
    """Return the faults of a session's servers: too few, or any where the protocol has none."""
    if protocol == MPYC:
        from smpc_dp.protocols.secret_sharing.params import roster_issues

        return roster_issues(members)
    return [
        ConfigIssue(
            f"roster[{index}].role",
            f"there are servers in '{MPYC}', and in 'learn' with averager.method = '{MPYC}', alone: "
            f"here is '{protocol}'",
            ConfigCheck.CONFLICT,
        )
        for index, member in enumerate(members)
        if member.role == "server"
    ]


@dataclass(frozen=True)
class SumProtocol:
    """Protocol of another package: sums through an aggregator, by roles of its own.

    Attributes:
        versions: for each version a checker of `[parameters]` that returns `SumParameters`, whose `protocol`
            is the registered name.
        party, aggregator: make the roles for one request.
    """

    versions: Mapping[int, ParameterChecker]
    party: MakeParty
    aggregator: MakeAggregator


def _registered(protocol: str) -> tuple[SumProtocol, Extension] | None:
    """Return the registered protocol of another package, None if there is none."""
    result = None if protocol in RESERVED else find(Group.PROTOCOLS, protocol)
    if result is None:
        return None
    if not isinstance(result.value, SumProtocol):
        raise result.unfit("is no SumProtocol")
    return result.value, result


def versions_of(protocol: str) -> Mapping[int, Descriptor]:
    """Return the versions of a protocol of which there are sessions; none for an unknown one.

    Raises LocalError.
    """
    own = [one for one in DESCRIPTORS.values() if one.protocol == protocol and one.check is not None]
    registered = None if own else _registered(protocol)
    if registered is None:
        return {one.version: one for one in own}
    added, extension = registered

    def check_with(checker: ParameterChecker) -> ParameterChecker:
        def check(parameters: Mapping[str, object], parties: int) -> tuple[object | None, list[ConfigIssue]]:
            checked, issues = checker(parameters, parties)
            fits = isinstance(checked, SumParameters) and checked.protocol == protocol
            if not fits and (checked is not None or not issues):
                raise extension.unfit(f"makes no SumParameters with the protocol '{protocol}'")
            return checked, issues

        return check

    return {
        version: Descriptor(
            protocol=protocol,
            version=version,
            check=check_with(checker),
            requires_aggregator=True,
            party=added.party,
            aggregator=added.aggregator,
            cost=cost_of_sum,
        )
        for version, checker in added.versions.items()
    }


def origin_of(protocol: str) -> str:
    """Return the package, with its version, that registers a protocol; "" for one of this package."""
    registered = _registered(protocol)
    return "" if registered is None else registered[1].origin


def roles_of(parameters: SumParameters) -> SumProtocol | Descriptor:
    """Return the constructor of a protocol's roles."""
    registered = _registered(parameters.protocol)
    return DESCRIPTORS[parameters.descriptor] if registered is None else registered[0]


def make_party(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    ring_vector: RingVector,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,
    seen: Seen = NOTHING_SEEN,
    **verifiable: bool,
) -> Run[Any]:
    """Return the role of a party in one request of any protocol; see `MakeParty`."""
    make: Callable[..., Run[Any]] = roles_of(parameters).party  # type: ignore[assignment]
    return make(context, parameters, identity, ring_vector, randomness, fixed, seen, **verifiable)


def make_aggregator(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,
    fixed: FixedSurvivors | None = None,
) -> Run[Any]:
    """Return the role of the aggregator in one request of any protocol; see `MakeAggregator`."""
    make: MakeAggregator = roles_of(parameters).aggregator  # type: ignore[assignment]
    return make(context, parameters, identity, threads=threads, watch=watch, board=board, fixed=fixed)
