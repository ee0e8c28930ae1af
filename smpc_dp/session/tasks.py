"""What the parties of a session compute: the tasks by name, which sessions and commands ask.

A session has one task, as its protocol says (`SessionProtocol.task`); others are requests beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, cast

from smpc_dp.engine.registry import origin_of
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.extensions import CAPABILITIES, imported
from smpc_dp.session.session_file import SessionFile

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from smpc_dp.engine.result import Outcome
    from smpc_dp.engine.run import Run
    from smpc_dp.engine.session_protocol import Audit
    from smpc_dp.errors import PeerFault
    from smpc_dp.identity.roster import Role, Roster
    from smpc_dp.logs.keeping import Board
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.empirical import Progress, ReleaseAudit
    from smpc_dp.report.document import Section
    from smpc_dp.session.call_types import Kernel
    from smpc_dp.session.events import OnEvent
    from smpc_dp.session.launcher import ProcessOutcome
    from smpc_dp.wire.signing import Context

# Classes of those who ask a task: to import them here would be a circle.
Membership: TypeAlias = Any
PartyRequests: TypeAlias = Any
# A result as JSON data.
Json: TypeAlias = Mapping[str, Any]
# Reads ledgers: the state of each that can be read, by party, and why others cannot.
Ledgers: TypeAlias = "Callable[[], tuple[dict[str, dict[str, Any]], list[str]]]"

# By its name, where each task is, in the attribute TASKS of the module.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "vector": "smpc_dp.secagg.requests.vector_task",
        "records": "smpc_dp.records.requests.records_task",
        "pairs": f"{CAPABILITIES}.pairs.capability",
        "circuit": f"{CAPABILITIES}.pairs.capability",
        "similarities": f"{CAPABILITIES}.pairs.capability",
        "pairs-on-shares": f"{CAPABILITIES}.servers.capability",
        "learner": f"{CAPABILITIES}.learn.capability",
        "report": f"{CAPABILITIES}.reports.capability",
    }
)


# The options of sums.
SUM_OPTIONS = frozenset({"--operation", "--weight", "--weights", "--clip", "--number"})


@dataclass(frozen=True)
class Beside:
    """Kind of request beside a session's sums, with a protocol of its own, through the aggregator.

    Attributes:
        task: the name of a `BesideTask`, whose capability may be absent.
        protocol, version: in whatever its members sign.
    """

    task: str
    protocol: str
    version: int

    @property
    def is_there(self) -> bool:
        """Whether this installation has the code for this kind of request."""
        return imported(BUILT_IN[self.task]) is not None

    def context(self, context: Context) -> Context:
        """Return a copy of a sum's context with the protocol and version of this kind of request."""
        return replace(context, protocol=self.protocol, version=self.version)

    def find(self) -> BesideTask:
        """Return the task that implements this kind of request; ConfigError if it is not installed."""
        return cast("BesideTask", find_task(self.task))


# What a party can be convicted in: certificates of it are judged by this task, whatever a session computes.
CONVICTING = Beside("pairs", "pairwise-statistic", 3)
# By the step of the hello that asks for it.
BESIDE: Mapping[str, Beside] = MappingProxyType({"statistic-hello": CONVICTING})


class AuditedRelease(NamedTuple):
    """Result of an empirical privacy audit of a session's release, with text to print.

    Attributes:
        audit: the result.
        release: what is in a release, in words.
        rows: of the printed table, beside those of every audit.
    """

    audit: ReleaseAudit
    release: str
    rows: Sequence[tuple[str, str]]


class GivenInputs(NamedTuple):
    """Input files, weights and options of all parties, for a run on one machine.

    Attributes:
        files: by party, in the roster's order.
        membership: returns that of a party.
        weights: of the parties that have one.
        clip: whether values out of bounds are clipped, and no fault.
    """

    files: Mapping[str, Path]
    membership: Callable[[str], Membership]
    weights: Mapping[str, int]
    clip: bool


class Task:
    """Base class of what parties compute together: how a session and the commands handle its requests.

    Attributes:
        name: of the task.
        has_vectors: whether requests have vectors of an encoding.
        is_long_to_plan: whether to plan a session may take an auditor long.
        refused, refusal: options of `smpc-dp run` and `smpc-dp party` that do not apply, and why.
        refused_together: those that besides do not apply to `smpc-dp run`, which reads all inputs.
        is_saved: whether its requests can go on after the process of a member has ended, in sessions that are
            saved.
        without_ledgers: why parties cannot do without; "" where they can.
        agreed: keys of a result that are the same for all who have one.
        on_leaving: what a report says of losses; "" for nothing.
    """

    name: ClassVar[str]
    has_vectors: ClassVar[bool] = True
    is_long_to_plan: ClassVar[bool] = False
    is_saved: ClassVar[bool] = False
    refused: ClassVar[frozenset[str]] = frozenset()
    refusal: ClassVar[str] = ""
    refused_together: ClassVar[frozenset[str]] = frozenset()
    without_ledgers: ClassVar[str] = ""
    agreed: ClassVar[tuple[str, ...]] = ()
    on_leaving: ClassVar[str] = ""

    def error_of_other_request(self, session: SessionFile) -> ConfigError:
        """Return the ConfigError for asking a session of this kind for something else."""
        reason = f"'{session.protocol}' has no such requests"
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    def error_in_other_session(self, session: SessionFile) -> ConfigError:
        """Return the ConfigError for asking for this task in a session of another kind."""
        reason = f"is '{session.protocol}', which has no such requests"
        return ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    async def request(self, requests: PartyRequests, *arguments: Any, **named: Any) -> Any:
        """Run a party's request of this kind, and return its result; subclasses implement this."""
        raise NotImplementedError

    def check_ledger(self, ledger: Ledger, membership: Membership) -> None:
        """Raise an error for a ledger that does not fit the session; here nothing is checked."""

    # Inputs of commands

    def suffixes(self, session: SessionFile) -> tuple[str, ...]:  # noqa: ARG002
        """Return the file suffixes of parties' input files."""
        # Not at the top: NumPy, which reads them, takes a while to load.
        from smpc_dp.session.inputs import SUFFIXES

        return SUFFIXES

    def has_weights(self, session: SessionFile) -> bool:  # noqa: ARG002
        """Return whether parties may give weights in this session; here always true."""
        return True

    def check_inputs(self, session: SessionFile, given: GivenInputs) -> None:
        """Check the input files of all parties before a run; here nothing is checked."""

    def check_ledgers(self, session: SessionFile, ledgers: Mapping[str, Path]) -> None:
        """Raise PrivacyError if parties' ledgers do not suffice for a run; here nothing is checked."""

    # Runs of commands

    def ends_run(self, session: SessionFile) -> str | None:
        """Return the member at whose end a local run ends, by default the aggregator; else None."""
        aggregator = session.roster.aggregator
        return None if aggregator is None else aggregator.name

    def members_with_result(self, session: SessionFile) -> list[str]:
        """Return the names of the members that get a result in this session; here all parties."""
        return [*session.roster.party_names]

    def steps(self, session: SessionFile) -> int:  # noqa: ARG002
        """Return how many requests an aggregator or server serves by default; here 1."""
        return 1

    async def serve(self, host: Any, role: Role, requests: int | None, results: list[Any]) -> list[str]:
        """Serve requests, append results to `results`, return errors as text; subclasses implement this.

        `host`: the aggregator or server, a `session.host.HostMember`. Returns the errors of requests that
        do not end the others, and raises the first other one.
        """
        raise NotImplementedError

    async def serve_opened(
        self,
        membership: Membership,
        opening: AbstractAsyncContextManager[Any],  # noqa: ARG002
        on_event: OnEvent,  # noqa: ARG002
    ) -> Any:
        """Serve a simulated session as its aggregator; here ConfigError: it cannot be simulated.

        `opening` opens the connections. Returns what was served, as of `serve`. Raises ConfigError for a task
        that is not simulated so.
        """
        reason = f"a session of '{membership.session.protocol}' is not simulated as a whole"
        raise ConfigError.at("protocol", reason, ConfigCheck.UNSUPPORTED)

    async def contribute(
        self, host: Any, membership: Membership, options: Mapping[str, Any], results: list[Any]
    ) -> Any:
        """Run one party, append its result to `results`, return an audit report or None; for subclasses.

        Args:
            host: the party, a `session.host.HostMember`.
            options: --operation, --weight, --clip and --number, None where they are not given.

        Returns the auditor's report (`logs.audits.audit_report.Report`), where an audit is asked for.
        """
        raise NotImplementedError

    def has_log(self, session: SessionFile) -> bool:
        """Return whether a run of this session writes a public log at the aggregator."""
        return session.is_logged

    # Results of commands, by member, as JSON data

    def read_numbers(self, stored: Json) -> Any:  # noqa: ARG002
        """Decode the numbers of a stored result; by default None, as there are none to check."""
        return None

    def check_numbers(
        self, numbers: Any, parameters: Any, outcome: Outcome, operation: str, names: Sequence[str]
    ) -> None:
        """Raise VerificationError unless a stored result's numbers fit the log; here nothing is checked.

        `operation`: the question of the run, its kind first; `names`: of the parties.
        """

    def text(self, results: Mapping[str, Json]) -> str:
        """Return the results as lines of text for a person; subclasses implement this."""
        raise NotImplementedError

    def print_run(
        self,
        session: SessionFile,  # noqa: ARG002
        outcomes: Mapping[str, ProcessOutcome],  # noqa: ARG002
        results: Mapping[str, dict[str, Any]],  # noqa: ARG002
        planned: Sequence[str],  # noqa: ARG002
        *,
        as_json: bool,  # noqa: ARG002
        out: Path | None,  # noqa: ARG002
    ) -> bool | None:
        """Print a local run's results, write them to `out`, return if written; here None: nothing is done.

        Returns whether that was done; None where all have the same result, which the command prints.
        """
        return None

    # Reports

    def views(self, session: SessionFile) -> list[str]:
        """Return which explanations of roles a report shows; none for another package's protocol."""
        if origin_of(session.protocol):
            return []
        every = [parameters.view for parameters in session.checked_parameters.requests]
        return [*dict.fromkeys(view for view in every if view)]

    def title(self, result: Json) -> str:
        """Return the title of a report on a result; subclasses implement this."""
        raise NotImplementedError

    def own_sections(self, session: SessionFile, result: Json) -> list[Section]:
        """Return the report sections that only this kind of result has; here NotImplementedError."""
        raise NotImplementedError

    def sections(
        self,
        session: SessionFile,
        results: Mapping[str, Json],
        ledgers: Ledgers,  # noqa: ARG002
    ) -> list[Section]:
        """Return the sections of a report on the results and their privacy."""
        from smpc_dp.report.sections import limits_section, privacy_section

        result = next(iter(results.values()))
        privacy = result["privacy"]
        receipts = {name: one["privacy"].get("receipt") for name, one in results.items()}
        own = self.own_sections(session, result)
        return [*own, *privacy_section(privacy, receipts), *limits_section(privacy["not_protected"])]

    def counted(self, results: Mapping[str, Json]) -> int:
        """Return how many parties the results include."""
        result = next(iter(results.values()))
        return len(result["survivors"]) or result.get("parties", 0)

    def privacy(self, result: Json) -> Json:
        """Return the privacy part of a result as JSON: epsilon (None if exact), delta, unit and more."""
        privacy: Json = result["privacy"]
        return privacy

    def audit_release(
        self,
        session: SessionFile,  # noqa: ARG002
        samples: int | None,  # noqa: ARG002
        epsilon: float | None,  # noqa: ARG002
        delta: float | None,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
        executor: Executor | None,  # noqa: ARG002
    ) -> AuditedRelease:
        """Test the session's privacy claim on drawn releases, return the audit; here ConfigError.

        Args:
            samples: releases on each of two inputs; None: as many as the audit needs.
            epsilon, delta: another claim than the session's; None: its own.
            progress: is called with how many releases are drawn, and of how many.
            executor: draws blocks of releases; None: this process does.

        Raises ConfigError where nothing is released that can be audited, or for an argument out of range.
        """
        from smpc_dp.privacy.empirical import NO_RELEASE

        raise ConfigError.at("session", NO_RELEASE, ConfigCheck.UNSUPPORTED)


class ConvictedParties(Protocol):
    """Interface of a store of parties that are convicted of cheating by certificates in a folder."""

    @property
    def files(self) -> Mapping[str, Path]:
        """Paths of the stored certificates, by the name of the convicted party."""
        ...

    def fault(self, peer: str) -> PeerFault:
        """Return the error with which this member refuses to compute with a convicted party."""
        ...

    def add(self, name: str, content: bytes) -> Path:
        """Write a certificate that convicts a party to a file, and return the file."""
        ...


class BesideTask(Task):
    """Base class of kinds of requests beside a session's sums, which have a protocol of their own.

    Attributes:
        accuses: the step of a message with evidence against a party, which is stored at once.
        audit: of the logs of its runs.
    """

    accuses: ClassVar[str]
    audit: ClassVar[Audit]

    def aggregator(
        self, context: Context, membership: Membership, board: Board, kernels: Sequence[Kernel]
    ) -> Run[Any]:
        """Return the aggregator's run of this kind of request; subclasses implement this."""
        raise NotImplementedError

    def audit_certificate(self, path: Path, session: str | None) -> Any:
        """Check a certificate of cheating in a file, and return a report; for subclasses.

        `session`: the session file of which the convicted party should be. Raises ConfigError and LocalError
        for files that cannot be read, and a session file with faults.
        """
        raise NotImplementedError

    def convictions(self, folder: Path, roster: Roster) -> ConvictedParties:
        """Check all certificates in a folder, return the parties that they convict; for subclasses.

        Raises LocalError for a folder or a certificate that cannot be read: it may convict a party.
        """
        raise NotImplementedError


def find_task(name: str) -> Task:
    """Return the task of this name, such as "vector"; ConfigError if not installed, LookupError if unknown.

    Raises ConfigError where the folder of its capability is absent, LookupError for a name not in `BUILT_IN`.
    """
    module = imported(BUILT_IN[name])
    tasks: tuple[Task, ...] = () if module is None else module.TASKS
    for task in tasks:
        if task.name == name:
            return task
    raise ConfigError.at("task", f"'{name}' is not in this installation", ConfigCheck.UNSUPPORTED)


def task_of(session: SessionFile) -> Task:
    """Return the task of a session: the object that knows what its parties compute."""
    return find_task(session.described.task(session.parameters))


def checked_for(session: SessionFile, task: str) -> Any:
    """Return a session's checked parameters; raise ConfigError if it has another task."""
    if task_of(session).name != task:
        raise find_task(task).error_in_other_session(session)
    return session.checked_parameters
