"""What a protocol of sessions is: the check of its parameters, its members, its roles, its logs and its cost.

A package registers one `SessionProtocol` for each of its protocols (`smpc_dp.engine.registry`). Functions
of a protocol of this package import what they need themselves: a session loads the modules of its own
protocol alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.identity.roster import Member, Role

if TYPE_CHECKING:
    from smpc_dp.crypto.randomness import Randomness
    from smpc_dp.encoding import RingVector
    from smpc_dp.engine.averaging import Averaging
    from smpc_dp.engine.collector import CollectorRole
    from smpc_dp.engine.party import PartyRole
    from smpc_dp.engine.phases.cost import Cost
    from smpc_dp.engine.phases.key_graph import Watch
    from smpc_dp.engine.phases.last_results import HeldResult, SentResults
    from smpc_dp.engine.phases.survivors import FixedSurvivors
    from smpc_dp.engine.run import Run
    from smpc_dp.logs.auditing import LogAuditor
    from smpc_dp.logs.keeping import Board
    from smpc_dp.logs.log import Header
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.seen import Seen
    from smpc_dp.wire.signing import Context, Signer

# `[parameters]` as written in a session file.
Written: TypeAlias = Mapping[str, object]
# Who computes: the parties through one aggregator; they alone, all or two of them; or servers for them.
Topology = Literal["aggregator", "direct", "two", "servers"]
# (the parameters as written, number of parties) -> (checked parameters or None, faults). A fault's `where` is
# a key of [parameters], or "roster" when the number of parties is at fault.
ParameterChecker = Callable[[Written, int], tuple[Any, list[ConfigIssue]]]
# The roles of a party and of an aggregator, whose tables of states are public.
Roles: TypeAlias = "tuple[PartyRole, CollectorRole]"

# The key of `[parameters]` that makes the sums of a session statistics of records.
RECORDS = "records"
# The default of `corrupt` of sums in the versions whose sessions of few parties tolerate no colluding one.
EARLIER_CORRUPT = 0.1


class CheckedParameters(Protocol):
    """Interface of the checked `[parameters]` of every protocol."""

    @property
    def requests(self) -> tuple[Any, ...]:
        """The parameters of each kind of request that a session makes; empty if it cannot be run."""
        ...


class OpenedOnce(Protocol):
    """Interface of a party's durable record of requests on a data set of which one table may be opened."""

    def check(self) -> None:
        """Raise PrivacyError if an earlier request has opened a table of the same data set."""
        ...

    def add(self, run_id: bytes) -> None:
        """Record a request before anything of its rows is sent; PrivacyError if it was made before."""
        ...


class MakeParty(Protocol):
    """Type of the function that makes a party's run of one request.

    Arguments as of `smpc_dp.secagg.states.party`; `seen`: the party's state of the session log, for
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
        *,
        last: HeldResult | None = None,
    ) -> Run[Any]: ...


class MakeAggregator(Protocol):
    """Type of the function that makes the aggregator's run of one request.

    Arguments as of `smpc_dp.secagg.states.aggregator`; `board` stores the log of a verifiable run.
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
        last: SentResults | None = None,
    ) -> Run[Any]: ...


def _any_session(_parameters: Written, _members: int) -> None:
    """Do nothing: accept `[parameters]` for any number of members."""
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """How an auditor checks the public logs of a protocol: functions and facts about its logs.

    Attributes:
        check_run_id: raises VerificationError unless a header's run id is that of its session and parties; it
            needs no plan of the session.
        auditor: makes the auditor of a log, from the context of the run, the parameters, the header, what
            reads the log again, and the workers for expensive checks.
        view: returns what pages show of such logs, a `logs.audits.log_watch.LogView`.
        planned: whether its checks need the plan of the parameters; else `auditor` has c in their place.
        redraws: whether a run may go on under another run id than that of its header.
        protocol: of the runs, where it is another one than the session's.
        certifies: protocol and version of the certificates of its runs in a session log.
        check_session: raises VerificationError for a session, by parameters as written and the number of its
            members, whose plan would exhaust an auditor, or whose runs have no log.
        group_of: returns the parties and parameters of a request of a group, from the session, its plan and
            the header; None where all parties are in each.
        is_group: whether a session log of this scope is one of a group of the session; None as above.
    """

    check_run_id: Callable[[Context, Header], None]
    auditor: Callable[..., LogAuditor]
    view: Callable[[], Any]
    planned: bool = True
    redraws: bool = False
    protocol: str | None = None
    certifies: tuple[tuple[str, int], ...] = ()
    check_session: Callable[[Written, int], None] = _any_session
    group_of: Callable[[Any, Any, Header], tuple[tuple[str, ...], Any]] | None = None
    is_group: Callable[[Any, str], bool] | None = None


def _through_aggregator(_parameters: Written) -> Topology:
    """Return "aggregator": by default, parties connect through the aggregator alone."""
    return "aggregator"


def _never(_parameters: Written) -> bool:
    """Return False: by default a protocol writes no public logs."""
    return False


def task_of_vectors(_parameters: Written) -> str:
    """Return the kind of task of sessions that sum vectors only: "vector", for any parameters."""
    return "vector"


def _task_of_sums(parameters: Written) -> str:
    """Return the kind of task of a session: "records" if the parameters have a schema, else "vector"."""
    return "records" if RECORDS in parameters else "vector"


def no_servers(protocol: str, _parameters: Written, members: Sequence[Member]) -> list[ConfigIssue]:
    """Return a configuration fault for each server in a roster whose protocol has no servers."""
    reason = (
        "there are servers in 'mpyc', and in 'learn' with averager.method = 'mpyc', alone: "
        f"here is '{protocol}'"
    )
    return [
        ConfigIssue(f"roster[{index}].role", reason, ConfigCheck.CONFLICT)
        for index, member in enumerate(members)
        if member.role == "server"
    ]


def with_earlier_defaults(parameters: Written) -> Written:
    """Return a copy of parameters; unless given, `corrupt` has the default of earlier versions."""
    return {"corrupt": EARLIER_CORRUPT, **parameters}


def corrupt_as_written(first: int, version: int, parameters: Written, parties: int) -> int:
    """Return how many parties may collude by `corrupt`, rounded down; ConfigError outside [0, 1).

    `first`: the first version whose sessions tolerate one colluding party unless they say otherwise.
    """
    from smpc_dp.privacy.secagg_plan import default_corrupt, part_of

    written = parameters if version >= first else with_earlier_defaults(parameters)
    corrupt = written.get("corrupt", default_corrupt(parties))
    if isinstance(corrupt, bool) or not isinstance(corrupt, int | float) or not 0 <= corrupt < 1:
        raise ConfigError.at("corrupt", f"must be a number in [0, 1), is {corrupt!r}", ConfigCheck.RANGE)
    return part_of(parties, corrupt)


def _cost_of_sum(parameters: Any, servers: int) -> Cost | None:
    """Return the predicted cost of a secure sum in which no party is lost."""
    from smpc_dp.engine.phases.parameters import cost_of_sum

    return cost_of_sum(parameters, servers)


def _event_of_request(parameters: Any) -> Event:
    """Return the privacy event of one request, to charge to a ledger."""
    event: Event = parameters.event()
    return event


def no_unsaved_reason(_parameters: Written, _planned: Any) -> str:
    """Return "": every request can be continued after a crash."""
    return ""


def _any_number(_membership: Any) -> None:
    """Return None: by default rows may be in any number of requests."""
    pass


def _any_requests(_parameters: Written, _planned: Sequence[Any]) -> None:
    """Do nothing: accept any planned requests."""
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProtocol:
    """Description of a protocol for the engine: its versions, checks, roles and other functions.

    A protocol of sums needs name, versions, party and aggregator; another package sets no more.

    Attributes:
        name: as in a session file.
        versions: for each version of sessions that are run a checker of `[parameters]`; more than one where
            they differ in defaults alone. None for a protocol of single requests, in sessions of other
            protocols.
        audited: as `versions`, for those of earlier releases: their logs are audited, and no session is run.
        named: whether the checkers are given the parties' names, not their number.
        topology: who computes, for parameters as written.
        is_logged: whether runs have a log, for parameters as written.
        task: the name of what the parties of a session compute, for parameters as written
            (`smpc_dp.session.tasks`).
        roster_issues: faults of the members for the protocol's name and parameters as written, apart from
            those of every roster.
        check_requests: raises ConfigError for requests, planned from parameters as written, that cannot be
            computed.
        connections: by topology what opens a party's connection to the others, from its membership, the
            observer of events, the address to listen on and what the party keeps of its session; those
            through the aggregator are opened without.
        serving: by role what serves the requests of a session as such a member, as the aggregator's
            `smpc_dp.session.aggregator.serve` does, from path, name, key, requests, listen_on and on_event.
        opened_once: a party's record, from its membership, of the requests that its rows may be in once;
            None where they may be in any number.
        party, aggregator: make the roles of one request; None where these are no chains of states.
        unsaved: why the requests of a session cannot go on after the process of a member has ended, from
            parameters as written and the checked parameters of a request; "" where they can. None: none can.
        in_rounds: whether another framework's rounds can carry its requests, a step of all parties in each.
        averaging: how learners average by it; None where they do not.
        audit: of its logs; None without logs.
        most_corrupt: c of a session, from version, parameters as written and a number of parties; raises
            ConfigError. None where it follows from the plan alone.
        event: the privacy event of a request with these parameters.
        cost: of one request, for checked parameters and a number of servers; it returns None where none is
            planned.
        tables: of the roles whose states are public, by the name of each.
        steps: of each kind of member, in their order, where it has others than in sums through an
            aggregator.
        vectors: the folders of `protocols/` with its published test vectors.
    """

    name: str
    versions: Mapping[int, Callable[..., tuple[Any, list[ConfigIssue]]]]
    audited: Mapping[int, Callable[..., tuple[Any, list[ConfigIssue]]]] = field(default_factory=dict)
    named: bool = False
    topology: Callable[[Written], Topology] = _through_aggregator
    is_logged: Callable[[Written], bool] = _never
    task: Callable[[Written], str] = _task_of_sums
    roster_issues: Callable[[str, Written, Sequence[Member]], list[ConfigIssue]] = no_servers
    check_requests: Callable[[Written, Sequence[Any]], None] = _any_requests
    connections: Mapping[Topology, Callable[..., Awaitable[Any]]] = field(default_factory=dict)
    serving: Mapping[Role, Callable[..., Awaitable[Sequence[Any]]]] = field(default_factory=dict)
    opened_once: Callable[[Any], OpenedOnce | None] = _any_number
    party: MakeParty | None = None
    aggregator: MakeAggregator | None = None
    unsaved: Callable[[Written, Any], str] | None = None
    in_rounds: bool = False
    averaging: Averaging | None = None
    audit: Audit | None = None
    most_corrupt: Callable[[int, Written, int], int] | None = None
    event: Callable[[Any], Event] = _event_of_request
    cost: Callable[[Any, int], Cost | None] = _cost_of_sum
    tables: Mapping[str, Callable[[], Roles]] = field(default_factory=dict)
    steps: Callable[[], tuple[tuple[str, ...], ...]] = tuple
    vectors: tuple[str, ...] = ()

    @property
    def is_sum(self) -> bool:
        """Whether the protocol's sessions compute sums by its own party and aggregator roles."""
        return self.party is not None

    @property
    def version(self) -> int:
        """The newest version of session files that the protocol has, used for new files."""
        return max(self.versions, default=1)

    def checker(self, version: int) -> Callable[..., tuple[Any, list[ConfigIssue]]] | None:
        """Return the function that checks a version's `[parameters]`; None if no such version is known."""
        return self.versions.get(version) or self.audited.get(version)
