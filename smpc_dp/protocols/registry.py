"""The protocols: checkers of the parameters of each, and the roles of a sum.

Another package registers a `SumProtocol` in the entry-point group `smpc_dp.protocols`, by its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector, shown
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.extensions import Extension, Group, find
from smpc_dp.identity.roster import Member
from smpc_dp.privacy.guarantee import BUDGET
from smpc_dp.protocols.descriptor import DESCRIPTORS, Descriptor
from smpc_dp.protocols.engine.run import Run
from smpc_dp.protocols.names import (
    EXCHANGE,
    GOPA,
    LEARN,
    MPYC,
    PAIRWISE,
    RECORDS,
    REPORTS,
    SECAGG,
    VERIFIABLE_VERSION,
    VERSION,
    is_verifiable,
)
from smpc_dp.protocols.phases.key_graph import Watch
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.phases.survivors import FixedSurvivors
from smpc_dp.protocols.secagg.noisy import check_noisy
from smpc_dp.protocols.secagg.params import PRIVACY_KEYS
from smpc_dp.protocols.secagg.params import check_parameters as check_secagg
from smpc_dp.protocols.secagg.records import asks_fit, check_records
from smpc_dp.seen import NOTHING_SEEN, Seen
from smpc_dp.wire.signing import Context, Signer

if TYPE_CHECKING:
    from smpc_dp.log.keeping import Board
    from smpc_dp.privacy.budget import Released
    from smpc_dp.protocols.gopa.params import GopaParameters
    from smpc_dp.protocols.secret_sharing.records import SharedRecordParameters

T = TypeVar("T", bound="Released")

# Every sum is a secure sum, or similar. Further modules of the other protocols are imported by their sessions
# alone, in the functions below.

# (the parameters as written in the session file, number of parties) -> (checked parameters or None, faults).
# A fault's `where` is a key of [parameters], or "roster" when the number of parties is at fault.
ParameterChecker = Callable[[Mapping[str, object], int], tuple[object | None, list[ConfigIssue]]]


def _check_secagg(
    parameters: Mapping[str, object], parties: int
) -> tuple[SumParameters | None, list[ConfigIssue]]:
    """Check an exact sum, one with noise (epsilon, delta or a mechanism), or statistics of records."""
    if BUDGET in parameters and not asks_fit(parameters):
        # Of several requests together Gaussian noise is smaller than Laplace noise.
        records = functools.partial(check_records, laplace=False)
        return _check_budget(records if RECORDS in parameters else _check_secagg, parameters, parties)
    if RECORDS in parameters:
        return check_records(parameters, parties)
    check = check_noisy if set(PRIVACY_KEYS) & set(parameters) else check_secagg
    return check(parameters, parties)


def _check_budget(
    check: Callable[[Mapping[str, object], int], tuple[T | None, list[ConfigIssue]]],
    parameters: Mapping[str, object],
    parties: int,
) -> tuple[T | None, list[ConfigIssue]]:
    """Check the parameters of requests that share a budget; see `check_with_budget`."""
    # Not at the top: it loads the accountant.
    from smpc_dp.privacy.budget import check_with_budget

    return check_with_budget(check, parameters, parties)


def version_issue(version: int, expected: int, why: str) -> ConfigIssue:
    """Return the fault of a session file with another version than its parameters need."""
    return ConfigIssue(
        "verifiable",
        f"{why}: write version = {expected} in the place of version = {version}",
        ConfigCheck.CONFLICT,
    )


def _check_gopa_as(
    version: int, parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check parameters of GOPA in a session of one version."""
    verifiable = is_verifiable(GOPA, parameters)
    if verifiable and version != VERIFIABLE_VERSION:
        why = f"needs version {VERIFIABLE_VERSION} of 'gopa', which has the session log"
        return None, [version_issue(version, VERIFIABLE_VERSION, why)]
    if not verifiable and version != VERSION:
        why = f"must be true in version {version} of 'gopa'; without it the version is 1"
        return None, [version_issue(version, VERSION, why)]
    return check_gopa(parameters, parties)


def check_gopa(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table of GOPA, verifiable or not; return every fault found."""
    if BUDGET in parameters and not is_verifiable(GOPA, parameters):
        return _check_budget(check_gopa, parameters, parties)
    if RECORDS in parameters:
        from smpc_dp.protocols.gopa.records import check_records as check_gopa_records

        return check_gopa_records(parameters, parties)
    if not is_verifiable(GOPA, parameters):
        from smpc_dp.protocols.gopa.direct_params import check_parameters as check_plain_gopa

        return check_plain_gopa(parameters, parties)
    from smpc_dp.protocols.gopa.verifiable.params import check_parameters as check_verifiable

    checked, issues = check_verifiable(parameters, parties)
    if parameters.get("topology", "relay") != "relay":
        given = shown(parameters["topology"])
        reason = f"must be 'relay' where verifiable = true, since the relay keeps the log; is {given}"
        return None, [*issues, ConfigIssue("topology", reason, ConfigCheck.CONFLICT)]
    return checked, issues


def _check_pairwise(
    parameters: Mapping[str, object], parties: int
) -> tuple[object | None, list[ConfigIssue]]:
    """Check parameters of a two-party evaluation."""
    from smpc_dp.protocols.garbled.params import check_parameters

    return check_parameters(parameters, parties)


def _check_mpyc(parameters: Mapping[str, object], parties: int) -> tuple[object | None, list[ConfigIssue]]:
    """Check parameters of a computation on shares."""
    if RECORDS in parameters and "smallest_count" in parameters:
        from smpc_dp.protocols.secret_sharing.tables import check_tables

        return check_tables(parameters, parties)
    if RECORDS in parameters and BUDGET in parameters:
        return _check_budget(_check_shared_records, parameters, parties)
    if RECORDS in parameters:
        return _check_shared_records(parameters, parties)
    from smpc_dp.protocols.secret_sharing.params import check_parameters

    return check_parameters(parameters, parties)


def _check_shared_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[SharedRecordParameters | None, list[ConfigIssue]]:
    """Check statistics of records on shares."""
    from smpc_dp.protocols.secret_sharing.records import check_records as check_shared_records

    return check_shared_records(parameters, parties)


PARAMETER_CHECKERS: dict[tuple[str, int], ParameterChecker] = {
    (SECAGG, VERSION): _check_secagg,
    (GOPA, VERSION): functools.partial(_check_gopa_as, VERSION),
    (GOPA, VERIFIABLE_VERSION): functools.partial(_check_gopa_as, VERIFIABLE_VERSION),
    (PAIRWISE, VERSION): _check_pairwise,
    (MPYC, VERSION): _check_mpyc,
}

# The protocols in which exactly one member of the roster must be the aggregator, but for `names.is_direct`.
REQUIRES_AGGREGATOR: frozenset[tuple[str, int]] = frozenset(
    {(SECAGG, VERSION), (GOPA, VERSION), (GOPA, VERIFIABLE_VERSION)}
)


# Names that another package cannot register: they would stand for this package's in signed and hashed data.
RESERVED = frozenset({SECAGG, GOPA, EXCHANGE, PAIRWISE, "pairwise-statistic", MPYC, LEARN, REPORTS})


def direct_roster_issues(members: Iterable[Member]) -> list[ConfigIssue]:
    """Return the faults of a direct session's members that prevent them from connecting."""
    issues: list[ConfigIssue] = []
    for index, member in enumerate(members):
        if member.role == "aggregator":
            issues.append(
                ConfigIssue(
                    f"roster[{index}].role",
                    "there is no aggregator in the direct topology",
                    ConfigCheck.CONFLICT,
                )
            )
        elif member.address is None:
            reason = f"'{member.name}' needs an address, host:port, in the direct topology"
            issues.append(ConfigIssue(f"roster[{index}].address", reason, ConfigCheck.MISSING))
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


class MakeParty(Protocol):
    """Makes the role of a party in one request: `party` of a protocol, or the caller's own in its place.

    Arguments as of `smpc_dp.protocols.secagg.states.party`; `seen`: the party's state of the session log, for
    a verifiable run. A role of such a run is also given `check_total=False` where the party does not compute
    the total.
    """

    def __call__(
        self,
        context: Context,
        parameters: Any,
        identity: Signer,
        ring_vector: RingVector,
        randomness: Randomness | None = None,
        fixed: FixedSurvivors | None = None,
        seen: Seen = NOTHING_SEEN,
    ) -> Run[Any]: ...


class MakeAggregator(Protocol):
    """Makes the role of the aggregator in one request.

    Arguments as of `smpc_dp.protocols.secagg.states.aggregator`; `board` stores the log of a verifiable run.
    """

    def __call__(
        self,
        context: Context,
        parameters: Any,
        identity: Signer,
        *,
        threads: int = 1,
        watch: Watch | None = None,
        board: Board | None = None,
        fixed: FixedSurvivors | None = None,
    ) -> Run[Any]: ...


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


def versions_of(protocol: str) -> Mapping[int, ParameterChecker]:
    """Return the versions of a protocol with their checkers; none for an unknown one.

    Raises LocalError.
    """
    own = {version: checker for (name, version), checker in PARAMETER_CHECKERS.items() if name == protocol}
    registered = None if own else _registered(protocol)
    if registered is None:
        return own
    added, extension = registered

    def check_with(checker: ParameterChecker) -> ParameterChecker:
        def check(parameters: Mapping[str, object], parties: int) -> tuple[object | None, list[ConfigIssue]]:
            checked, issues = checker(parameters, parties)
            fits = isinstance(checked, SumParameters) and checked.protocol == protocol
            if not fits and (checked is not None or not issues):
                raise extension.unfit(f"makes no SumParameters with the protocol '{protocol}'")
            return checked, issues

        return check

    return {version: check_with(checker) for version, checker in added.versions.items()}


def requires_aggregator(protocol: str, version: int) -> bool:
    """Tell whether one member must be the aggregator, except for `names.is_direct`.

    Raises LocalError.
    """
    return (protocol, version) in REQUIRES_AGGREGATOR or _registered(protocol) is not None


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
    make: Callable[..., Run[Any]] = roles_of(parameters).party
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
    make: MakeAggregator = roles_of(parameters).aggregator
    return make(context, parameters, identity, threads=threads, watch=watch, board=board, fixed=fixed)
