"""What each protocol is: the check of its parameters, its roles, its auditor, its cost and its test vectors.

Each part is loaded at its first use: a session loads the modules of its own protocol alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from smpc_dp.errors import ConfigIssue
from smpc_dp.protocols.names import EXCHANGE, GOPA, MPYC, PAIRWISE, SECAGG, VERIFIABLE_VERSION, VERSION

if TYPE_CHECKING:
    from smpc_dp.crypto.randomness import Randomness
    from smpc_dp.encoding import RingVector
    from smpc_dp.log.keeping import Board
    from smpc_dp.log.log import Header
    from smpc_dp.protocols.engine.run import Run
    from smpc_dp.protocols.gopa.verifiable.audit import Auditor
    from smpc_dp.protocols.phases.cost import Cost
    from smpc_dp.protocols.phases.key_graph import Watch
    from smpc_dp.protocols.phases.survivors import FixedSurvivors
    from smpc_dp.protocols.ustatistic.audit import StatisticAuditor
    from smpc_dp.seen import Seen
    from smpc_dp.wire.signing import Context, Signer

# What takes the entries of a log in order, and then gives its verdict.
LogAuditor: TypeAlias = "Auditor | StatisticAuditor"
# (the parameters as written in the session file, number of parties) -> (checked parameters or None, faults).
# A fault's `where` is a key of [parameters], or "roster" when the number of parties is at fault.
ParameterChecker = Callable[[Mapping[str, object], int], tuple[Any, list[ConfigIssue]]]


class CheckedParameters(Protocol):
    """What the checked parameters of every protocol have."""

    @property
    def requests(self) -> tuple[Any, ...]:
        """The parameters of every kind of request of a session; none where it cannot be run."""
        ...


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
        seen: Seen = ...,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """How the log of a run is audited.

    Attributes:
        check_run_id: raises VerificationError unless a header's run id is that of its session and parties; it
            needs no plan of the session.
        auditor: makes the auditor of a log, from the context of the run, the parameters, the header, what
            reads the log again, and the workers for expensive checks.
        planned: whether its checks need the plan of the parameters; else `auditor` has c in their place.
        redraws: whether a run may go on under another run id than that of its header.
    """

    check_run_id: Callable[[Context, Header], None]
    auditor: Callable[..., LogAuditor]
    planned: bool = True
    redraws: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """One protocol, in one version.

    Attributes:
        protocol, version: as in a session file.
        check: of `[parameters]`; None for one of which there are no sessions. named: whether it is given the
            parties' names, not their number.
        requires_aggregator: whether one member is the aggregator, except for `names.is_direct`.
        party, aggregator: make the roles of one request; None where these are no chains of states.
        states: the module of their tables of states; "" as above, or in another package.
        audit: of its logs; None without logs.
        audited_only: whether its logs are audited, and no session of it is run: an earlier version.
        cost: of one request, for checked parameters and a number of servers; None where none is planned.
        vectors: the folders of `protocols/` with its published test vectors.
    """

    protocol: str
    version: int = VERSION
    check: Callable[..., tuple[Any, list[ConfigIssue]]] | None = None
    named: bool = False
    requires_aggregator: bool = False
    party: MakeParty | None = None
    aggregator: MakeAggregator | None = None
    states: str = ""
    audit: Audit | None = None
    audited_only: bool = False
    cost: Callable[[Any, int], Cost | None] | None = None
    vectors: tuple[str, ...] = ()

    @property
    def is_sum(self) -> bool:
        """Whether its sessions are of sums through an aggregator, beside which pairs may be evaluated."""
        return self.requires_aggregator and self.party is not None

    def role(self, name: str) -> Any:
        """Return the table of states of "party" or "aggregator"."""
        return getattr(import_module(self.states), name.upper())


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a function that loads a module when it is called, and calls the function of this name there."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call


def _stated(states: str, **parts: Any) -> Descriptor:
    """Return the descriptor of a protocol whose roles are in a module of states."""
    roles = {"party": later(states, "party"), "aggregator": later(states, "aggregator")}
    return Descriptor(states=states, **roles, **parts)  # type: ignore[arg-type]


def _audited(module: str, *, planned: bool = True, redraws: bool = False) -> Audit:
    check, auditor = later(module, "check_run_id"), later(module, "auditor")
    return Audit(check_run_id=check, auditor=auditor, planned=planned, redraws=redraws)


_check_gopa = later("smpc_dp.protocols.gopa.check", "check_for_version")
_cost_of_sum = later("smpc_dp.protocols.phases.parameters", "cost_of_sum")

DESCRIPTORS: Mapping[str, Descriptor] = {
    "secagg": _stated(
        "smpc_dp.protocols.secagg.states",
        protocol=SECAGG,
        check=later("smpc_dp.protocols.secagg.check", "check_session"),
        requires_aggregator=True,
        cost=_cost_of_sum,
        vectors=("secagg",),
    ),
    "gopa": _stated(
        "smpc_dp.protocols.gopa.states",
        protocol=GOPA,
        check=functools.partial(_check_gopa, VERSION),
        requires_aggregator=True,
        cost=_cost_of_sum,
        vectors=("gopa",),
    ),
    "gopa-verifiable": _stated(
        "smpc_dp.protocols.gopa.verifiable.states",
        protocol=GOPA,
        version=VERIFIABLE_VERSION,
        check=functools.partial(_check_gopa, VERIFIABLE_VERSION),
        requires_aggregator=True,
        audit=_audited("smpc_dp.protocols.gopa.verifiable.audit"),
        cost=_cost_of_sum,
        vectors=("gopa",),
    ),
    "exchange": _stated("smpc_dp.protocols.exchange.states", protocol=EXCHANGE, vectors=("exchange",)),
    "pairwise": _stated(
        "smpc_dp.protocols.ustatistic.states",
        protocol=PAIRWISE,
        check=later("smpc_dp.protocols.garbled.params", "check_parameters"),
        audit=_audited("smpc_dp.protocols.ustatistic.audit", planned=False, redraws=True),
        vectors=("pairwise", "covert"),
    ),
    "mpyc": Descriptor(
        protocol=MPYC,
        check=later("smpc_dp.protocols.secret_sharing.check", "check_session"),
        cost=later("smpc_dp.protocols.secret_sharing.cost", "cost_on_shares"),
        vectors=("mpyc",),
    ),
}
"""By name. "pairwise" stands for two-party evaluations, and its roles for statistics of pairs by them."""
